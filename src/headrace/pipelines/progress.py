"""How a pipeline is doing, counted at the end of each batch."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.runtime.json_files import read_json, write_passing


class PipelineState(enum.StrEnum):
    """Where a pipeline is in its life. FINISHED, FAILED, REFUSED and STOPPED are final."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    REFUSED = "refused"


FINAL_STATES = frozenset(
    {
        PipelineState.FINISHED,
        PipelineState.STOPPED,
        PipelineState.FAILED,
        PipelineState.REFUSED,
    }
)


@dataclass(frozen=True)
class PipelineProgress:
    """Counts since the run began, and figures of the last batch.

    Units: rows, records, seconds; names are those of ``headrace.metrics``.
    """

    pipeline: str
    state: PipelineState = PipelineState.STARTING
    reason: str = ""
    batch_id: int = -1
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    duplicate_rows: int = 0
    dropped_by_watermark_rows: int = 0
    dead_letters: int = 0
    replays_skipped: int = 0
    files_written: int = 0
    files_merged: int = 0
    maintenance_failures: int = 0
    maintenance_reason: str = ""
    records_per_second: float = 0.0
    batch_seconds: float = 0.0
    backlog_records: int = 0
    backlog_seconds: float = 0.0
    idle_partitions: tuple[str, ...] = ()
    paused_partitions: tuple[str, ...] = ()
    restarts: int = 0
    updated_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def final(self) -> bool:
        """Whether the pipeline has ended."""
        return self.state in FINAL_STATES

    def after(self, **changes: Any) -> PipelineProgress:
        """The same pipeline, later."""
        return replace(self, updated_ms=time.time_ns() // 1_000_000, **changes)

    def same_as(self, other: PipelineProgress) -> bool:
        """Whether nothing but the time differs."""
        return replace(self, updated_ms=other.updated_ms) == other

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PipelineProgress:
        """Reads what :meth:`to_json` wrote."""
        lists = {"idle_partitions", "paused_partitions"}
        values: dict[str, Any] = {k: tuple(v) if k in lists else v for k, v in found.items()}
        return cls(**values | {"state": PipelineState(found["state"])})


class StatusFolder:
    """One JSON file a pipeline under ``.headrace/status``, for ``headrace status``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, progress: PipelineProgress) -> None:
        """Replaces the pipeline's file whole, if the disk takes it."""
        write_passing(self._folder / f"{progress.pipeline}.json", progress.to_json())

    def read(self) -> list[PipelineProgress]:
        """Returns what every pipeline wrote last, by name, without files that can't be read."""
        paths = sorted(self._folder.glob("[!.]*.json"))
        found = (read_json(path, PipelineProgress.from_json) for path in paths)
        return [progress for progress in found if progress is not None]
