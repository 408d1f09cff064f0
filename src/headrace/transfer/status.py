"""How instances of mirrors, mergers and dispatchers are doing, for others to see."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from headrace.events.times import TimeMs
from headrace.runtime.instance_name import process_name
from headrace.runtime.json_files import read_json, write_passing

STALE_AFTER_SECONDS = 30.0


class TransferState(enum.StrEnum):
    """The state of an instance."""

    RUNNING = "running"
    WAITING = "waiting"
    STOPPED = "stopped"
    FAILED = "failed"


_ENDED = frozenset({TransferState.STOPPED, TransferState.FAILED})


@dataclass(frozen=True)
class TransferStatus:
    """Counts since the instance began, and how things stand. Names are those of the metrics.

    Attributes:
        name: of the mirror, merger or dispatcher; in JSON and metrics under its :attr:`kind`.
        state: of the instance.
        instance: host and process id.
        reason: why it waits for a site, its readers wait, or it has failed.
        records: that were written to the target and committed.
        value_bytes: of their values.
        restarts: how often it started over from what is committed.
        lags: offsets to the end of each partition that it reads, as ``topic/partition``; ``None``:
            not known yet.
        refused: why partitions can't be gone on with, as ``topic/partition``.
        updated_ms: when this was written.
    """

    name: str
    state: TransferState = TransferState.RUNNING
    instance: str = field(default_factory=process_name)
    reason: str = ""
    records: int = 0
    value_bytes: int = 0
    restarts: int = 0
    lags: Mapping[str, int | None] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    updated_ms: TimeMs = field(default_factory=lambda: time.time_ns() // 1_000_000)

    kind: ClassVar[str]
    figures: ClassVar[tuple[str, ...]] = ("partitions", "refused_partitions", "lag_records")
    """Properties that are figures, too."""

    @property
    def has_ended(self) -> bool:
        """Returns whether the instance has ended."""
        return self.state in _ENDED

    @property
    def partitions(self) -> int:
        """Returns how many partitions it reads."""
        return len(self.lags)

    @property
    def refused_partitions(self) -> int:
        """Returns how many of its partitions it can't go on with."""
        return len(self.refused)

    @property
    def lag_records(self) -> int:
        """Returns the offsets of all its partitions that are to be read."""
        return sum(lag or 0 for lag in self.lags.values())

    @property
    def partition_samples(self) -> dict[str, dict[str, int]]:
        """Returns the values of the metrics of partitions, by metric and ``topic/partition``.

        A lag that is not known yet is left out.
        """
        lags = {name: lag for name, lag in self.lags.items() if lag is not None}
        refused = dict.fromkeys(self.lags, 0) | dict.fromkeys(self.refused, 1)
        return {"lag_records": lags, "refused": refused}

    @property
    def site_samples(self) -> Mapping[str, Mapping[str, float | None]]:
        """Returns the values of the metrics of targets, by metric and site; empty: it has one."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and figures by name."""
        fields = asdict(self)
        named = {self.kind: fields.pop("name")}
        return named | fields | {name: getattr(self, name) for name in self.figures}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what :meth:`to_json` wrote.

        Raises:
            ValueError: if a value has another type than its field.
            KeyError: if there is no value of a field.
        """
        named = {**values, "name": values[cls.kind]}
        return msgspec.convert({member.name: named[member.name] for member in fields(cls)}, cls)


Status = TypeVar("Status", bound=TransferStatus)


class TransferStatusFolder(Generic[Status]):
    """One JSON file per instance under ``.headrace/status``, for ``headrace status``.

    Args:
        folder: for one kind of instances.
        kind: the type of their status.
    """

    def __init__(self, folder: Path, kind: type[Status]) -> None:
        self._folder, self._kind = folder, kind

    def write(self, status: Status) -> None:
        """Replaces the instance's file whole, if the disk takes it."""
        write_passing(self._path(status), status.to_json())

    def read(self) -> list[Status]:
        """Returns what every instance on this machine wrote last, by name and instance.

        An instance that was silent for 30 s has failed. A file that can't be read is left out.
        """
        paths = sorted(self._folder.glob("[!.]*.json"))
        written = (read_json(path, self._kind.from_json) for path in paths)
        return [_with_liveness(status) for status in written if status is not None]

    def forget(self, name: str) -> None:
        """Removes what ended instances of a mirror or merger left."""
        for status in self.read():
            if status.name == name and status.has_ended:
                self._path(status).unlink(missing_ok=True)

    def _path(self, status: Status) -> Path:
        return self._folder / f"{status.name}.{status.instance}.json"


def _with_liveness(status: Status) -> Status:
    if status.has_ended or time.time() - status.updated_ms / 1000 < STALE_AFTER_SECONDS:
        return status
    reason = f"no heartbeat for {STALE_AFTER_SECONDS:.0f} s; the process may have been killed"
    return replace(status, state=TransferState.FAILED, reason=reason)
