"""How instances of mirrors are doing, for others to see."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.runtime.instance_name import process_name
from headrace.runtime.json_files import read_json, write_passing

STALE_AFTER_SECONDS = 30.0


class MirrorState(enum.StrEnum):
    """The state of an instance."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class MirrorStatus:
    """Counts since the instance began, and how things stand. Names are those of the metrics.

    Attributes:
        mirror: its name.
        state: of the instance.
        instance: host and process id.
        reason: why it failed.
        records: that were copied and committed.
        value_bytes: of their values.
        loops_skipped: records that have been at one of the two sites before, and were not sent.
        restarts: how often it began anew from what is committed.
        lags: offsets to the end of each partition that it copies, as ``topic/partition``; ``None``:
            not known yet.
        refused: why partitions can't be copied on, as ``topic/partition``.
        updated_ms: when this was written.
    """

    mirror: str
    state: MirrorState = MirrorState.RUNNING
    instance: str = field(default_factory=process_name)
    reason: str = ""
    records: int = 0
    value_bytes: int = 0
    loops_skipped: int = 0
    restarts: int = 0
    lags: Mapping[str, int | None] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    updated_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def partitions(self) -> int:
        """Returns how many partitions it copies."""
        return len(self.lags)

    @property
    def refused_partitions(self) -> int:
        """Returns how many of its partitions can't be copied on."""
        return len(self.refused)

    @property
    def lag_records(self) -> int:
        """Returns the offsets of all its partitions that are to be copied."""
        return sum(lag or 0 for lag in self.lags.values())

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and figures by name."""
        figures = ("partitions", "refused_partitions", "lag_records")
        return asdict(self) | {name: getattr(self, name) for name in figures}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MirrorStatus:
        """Reads what :meth:`to_json` wrote."""
        fields = {name: values[name] for name in cls.__dataclass_fields__}
        return cls(**fields | {"state": MirrorState(values["state"])})


class MirrorStatusFolder:
    """One JSON file per instance under ``.headrace/status/mirrors``, for ``headrace status``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, status: MirrorStatus) -> None:
        """Replaces the instance's file whole, if the disk takes it."""
        write_passing(self._path(status), status.to_json())

    def read(self) -> list[MirrorStatus]:
        """Returns what every instance on this machine wrote last, by mirror and instance.

        An instance that was silent for 30 s has failed. A file that can't be read is left out.
        """
        paths = sorted(self._folder.glob("[!.]*.json"))
        written = (read_json(path, MirrorStatus.from_json) for path in paths)
        return [_with_liveness(status) for status in written if status is not None]

    def forget(self, mirror: str) -> None:
        """Removes what ended instances of a mirror left."""
        for status in self.read():
            if status.mirror == mirror and status.state is not MirrorState.RUNNING:
                self._path(status).unlink(missing_ok=True)

    def _path(self, status: MirrorStatus) -> Path:
        return self._folder / f"{status.mirror}.{status.instance}.json"


def _with_liveness(status: MirrorStatus) -> MirrorStatus:
    is_ended = status.state is not MirrorState.RUNNING
    if is_ended or time.time() - status.updated_ms / 1000 < STALE_AFTER_SECONDS:
        return status
    reason = f"no heartbeat for {STALE_AFTER_SECONDS:.0f} s; the process may have been killed"
    return replace(status, state=MirrorState.FAILED, reason=reason)
