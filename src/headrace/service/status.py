"""What a service reports of itself, and the files from which others on its machine read it."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import msgspec

from headrace.events.times import TimeMs
from headrace.metrics import Metric
from headrace.runtime.clock import now_in_ms
from headrace.runtime.files.json_files import read_json, warn_unreadable, write_passing
from headrace.runtime.instance_name import process_name
from headrace.runtime.servers.process import SeenProcess
from headrace.service.figures import Measured

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample

STALE_AFTER_SECONDS = 30.0  # written every second; a machine that is busy may miss some


class State(enum.StrEnum):
    """The state of a service. Each kind of services has some of them.

    WAITING: for a server, a site or a lease.
    RESTARTING: it failed, and starts again soon.
    DRAINING: nothing new is started, what is in process may end.
    FINISHED: it has caught up, as it was asked to.
    STOPPED, CLOSED: it was asked to end.
    REFUSED: an operator must decide how it continues.
    """

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    RESTARTING = "restarting"
    DRAINING = "draining"
    FINISHED = "finished"
    STOPPED = "stopped"
    CLOSED = "closed"
    FAILED = "failed"
    REFUSED = "refused"


_FINAL = frozenset({State.FINISHED, State.STOPPED, State.CLOSED, State.FAILED, State.REFUSED})


@dataclass(frozen=True)
class ServiceStatus(Measured):
    """The state and the figures of a service. Names are those of the metrics.

    Attributes:
        name: name of what is declared; in JSON and metrics it is called as its :attr:`kind`.
        state: one of :attr:`states`.
        reason: why it waits, restarts or has failed.
        updated_ms: time when this status was made, in milliseconds since 1970.
    """

    name: str
    state: State = State.RUNNING
    reason: str = ""
    updated_ms: TimeMs = field(default_factory=now_in_ms)

    kind: ClassVar[str]
    states: ClassVar[tuple[State, ...]]
    folder: ClassVar[str]
    """The folder of the files of this kind, under ``.headrace/status``."""
    part_metrics: ClassVar[Mapping[str, tuple[Metric, ...]]] = {}
    """Figures of its parts, such as partitions, by part: ``headrace_<kind>_<part>_<name>``."""

    @property
    def has_ended(self) -> bool:
        """Returns whether the service has ended: no other state follows."""
        return self.state in _FINAL

    @property
    def labels(self) -> dict[str, str]:
        """Returns the labels of its metrics."""
        return {self.kind: self.name}

    @property
    def file_name(self) -> str:
        """Returns the name of its file."""
        return f"{self.name}.json"

    def counted(self, counts: Mapping[str, int]) -> Self:
        """Returns the status with these values of its counters."""
        values: dict[str, Any] = dict(counts)
        return replace(self, **values)

    def figure(self, name: str) -> float | None:
        """Returns the value of a metric; ``None``: it is not known."""
        value: float | None = getattr(self, name)
        return value

    def samples(self, part: str, metric: str) -> Iterable[Sample]:  # noqa: ARG002 - it has none
        """Returns the values of a metric of its parts that are known, with labels of the parts."""
        return ()

    def ended(self, state: State, reason: str = "") -> Self:
        """Returns the status of the service that has ended now."""
        return replace(self, state=state, reason=reason, updated_ms=now_in_ms())

    def with_liveness(self) -> Self:
        """Returns the status for readers, who can't know whether its process has died."""
        return self

    def to_file(self) -> dict[str, Any]:
        """Returns what its file holds."""
        return self.to_json()

    @classmethod
    def from_file(cls, values: Mapping[str, Any]) -> Self:
        """Reads what :meth:`to_file` wrote, for readers on this machine.

        Raises:
            ValueError, KeyError: as :meth:`from_json`.
        """
        return cls.from_json(values).with_liveness()

    def beside(self, others: Sequence[Self]) -> Self:  # noqa: ARG002 - for kinds that share parts
        """Returns the status without what another instance has taken over.

        Args:
            others: all statuses of its kind on this machine.
        """
        return self

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and derived figures by name."""
        values = asdict(self)
        named = {self.kind: values.pop("name")}
        return named | values | {name: getattr(self, name) for name in self.derived}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what :meth:`to_json` wrote.

        Raises:
            ValueError: if a value has another type than its field.
            KeyError: if it has no name.
        """
        return msgspec.convert({**values, "name": values[cls.kind]}, cls)


@dataclass(frozen=True)
class InstanceStatus(ServiceStatus):
    """The status of one of several instances, which writes it every second while it runs.

    Attributes:
        instance: host and process id.
    """

    instance: str = field(default_factory=process_name)

    @property
    def labels(self) -> dict[str, str]:
        """Returns the labels of its metrics."""
        return super().labels | {"instance": self.instance}

    @property
    def file_name(self) -> str:
        """Returns the name of its file."""
        return f"{self.name}.{self.instance}.json"

    def with_liveness(self) -> Self:
        """Returns the status; as failed if the instance wrote none for 30 s and has not ended."""
        if self.has_ended or time.time() - self.updated_ms / 1000 < STALE_AFTER_SECONDS:
            return self
        reason = f"no heartbeat for {STALE_AFTER_SECONDS:.0f} s; the process may have been killed"
        return self.killed(reason)

    def killed(self, reason: str) -> Self:
        """Returns the status of an instance that is taken for dead, as it wrote nothing of it."""
        return replace(self, state=State.FAILED, reason=reason)

    def to_file(self) -> dict[str, Any]:
        """Returns what its file holds: also which process writes it."""
        writer = SeenProcess.current()
        return super().to_file() | ({} if writer is None else {"writer": asdict(writer)})

    @classmethod
    def from_file(cls, values: Mapping[str, Any]) -> Self:
        """Reads what :meth:`to_file` wrote; as failed if its process has died since."""
        status = super().from_file(values)
        if status.has_ended or "writer" not in values:  # files of earlier versions have none
            return status
        writer = msgspec.convert(values["writer"], SeenProcess)
        if not writer.has_ended():
            return status
        reason = f"its process {writer.process.pid} has died: it was killed, or has crashed"
        return status.killed(reason)


Status = TypeVar("Status", bound=ServiceStatus)


class StatusFolder(Generic[Status]):
    """One JSON file for each service of a kind, for ``headrace status``.

    Args:
        state: the project's folder on this machine.
        kind: the type of the statuses.
    """

    def __init__(self, state: Path, kind: type[Status]) -> None:
        self._folder, self._kind = state / "status" / kind.folder, kind
        # msgspec crashes where several threads are the first to decode a class.
        msgspec.json.Decoder(kind)

    def write(self, status: Status) -> None:
        """Replaces the file of a service; if the disk fails, the old file stays."""
        write_passing(self._folder / status.file_name, status.to_file())

    def read(self) -> list[Status]:
        """Returns the last status of every service on this machine, by name and instance.

        An instance whose process has died, or that wrote none for 30 s, has failed. A file that
        can't be read is left out, with a warning that is logged once.
        """
        written = map(self._read, sorted(self._folder.glob("[!.]*.json")))
        statuses = [status for status in written if status is not None]
        return [status.beside(statuses) for status in statuses]

    def _read(self, path: Path) -> Status | None:
        try:
            return read_json(path, self._kind.from_file)
        except OSError as error:  # such as the file of another user
            warn_unreadable("Cannot read the status in %s, leaving it out: %s", path, error)
            return None

    def forget(self, name: str) -> None:
        """Removes the files of ended services of this name."""
        for status in self.read():
            if status.name == name and status.has_ended:
                (self._folder / status.file_name).unlink(missing_ok=True)
