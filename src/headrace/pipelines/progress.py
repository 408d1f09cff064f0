"""How a pipeline is doing, counted at the end of each batch."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from headrace.events.times import TimeMs
from headrace.runtime.json_files import read_json, write_passing


class PipelineState(enum.StrEnum):
    """The state of a pipeline. FINISHED, FAILED, REFUSED and STOPPED are final."""

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

    Units: rows, records, seconds; names are those of ``headrace.metrics``. In JSON the ``figures``
    stand beside the others.

    Attributes:
        batch_id: None before the first batch of the run.
        backlog_records: None while it is not known: the planner has not seen the ends of the topics
            since the run began, or the broker does not respond.
        backlog_seconds: None while it is not known: as of ``backlog_records``, and while there is a
            backlog and the run has read nothing.
        exit_code: what ``headrace run`` ends with for it: 0 unless it failed or was refused.
        figures: of the pipeline's sink and steps, by the names of their metrics; texts say why
            something beside the batches fails.
    """

    pipeline: str
    state: PipelineState = PipelineState.STARTING
    reason: str = ""
    batch_id: int | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    late_side_rows: int = 0
    late_dead_letters: int = 0
    duplicate_rows: int = 0
    behind_watermark_rows: int = 0
    dropped_by_watermark_rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    replays_skipped: int = 0
    records_per_second: float = 0.0
    batch_seconds: float = 0.0
    backlog_records: int | None = None
    backlog_seconds: float | None = None
    idle_partitions: tuple[str, ...] = ()
    paused_partitions: tuple[str, ...] = ()
    restarts: int = 0
    exit_code: int = 0
    figures: Mapping[str, int | str] = field(default_factory=dict)
    updated_ms: TimeMs = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def final(self) -> bool:
        """Whether the pipeline has ended."""
        return self.state in FINAL_STATES

    def after(self, **changes: Any) -> PipelineProgress:
        """Returns the progress with ``changes``, updated now."""
        return replace(self, updated_ms=time.time_ns() // 1_000_000, **changes)

    def same_as(self, other: PipelineProgress) -> bool:
        """Whether nothing but the time differs."""
        return replace(self, updated_ms=other.updated_ms) == other

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        values = asdict(self)
        figures: dict[str, Any] = values.pop("figures")
        return figures | values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PipelineProgress:
        """Reads what :meth:`to_json` wrote.

        Raises:
            ValueError: if a value has another type than its field.
        """
        names = {member.name for member in fields(cls)}
        figures = {name: value for name, value in values.items() if name not in names}
        return msgspec.convert({**values, "figures": figures}, cls)


# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(PipelineProgress)


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
        statuses = (read_json(path, PipelineProgress.from_json) for path in paths)
        return [progress for progress in statuses if progress is not None]
