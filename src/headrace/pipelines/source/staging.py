"""What read tasks and steps leave for the end of the batch, in Spark's path.

There the rows go through steps, so that the reading task has nothing of its own to hand over. It
leaves a file a range, named by the range, so a retried task overwrites what its first attempt
left. Steps leave files with rows that they took out and lines of the ledger, named by batch and
task. The folder is the run's own: what a killed run left is never read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec

from headrace.model import DeadLetter, DeadLetterLimit, OffsetRange
from headrace.pipelines.ledger.sums import LedgerLine
from headrace.pipelines.source.reading.bad_records import MAX_BATCH_BYTES, BadRecords
from headrace.pipelines.source.report import RangeReport
from headrace.storage import files as storage
from headrace.storage.files import NO_OPTIONS, Options


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a task of a step leaves, or all tasks of the steps of a batch.

    Attributes:
        lines: what the ledger counts of rows that are taken out.
        behind: dead letters of rows that were taken out, since they are behind the watermark.
        omitted: such rows that could not be carried.
    """

    lines: tuple[LedgerLine, ...] = ()
    behind: tuple[DeadLetter, ...] = ()
    omitted: int = 0


# Made at import: msgspec crashes where several threads are the first to decode a class.
_REPORT_DECODER = msgspec.json.Decoder(RangeReport)
_STEP_DECODER = msgspec.json.Decoder(StepReport)


def driver_staging(lake: str, pipeline: str, state: Path) -> str:
    """Folder for the runs of one pipeline from one project folder, which has an id for that.

    Its runs follow one another, so that a new one may delete what it holds. Another machine or
    checkout, on the same lake, has an id and a folder of its own.

    Args:
        lake: root URI of the lake.
        pipeline: its name.
        state: the pipeline's folder on this machine; the caller holds the pipeline's lock.
    """
    file = state / "driver"
    # Without an id it would be the folder of all drivers, and what they left is deleted at a start.
    if not file.exists() or not file.stat().st_size:
        state.mkdir(parents=True, exist_ok=True)
        file.write_text(uuid4().hex)
    return storage.join(lake, "_headrace", "staging", pipeline, file.read_text())


_REPORT, _STEP = ".json", ".step"


class Staging:
    """One run's folder of reports. Tasks put, the driver takes."""

    def __init__(self, folder: str, options: Options = NO_OPTIONS) -> None:
        self._folder = folder
        self._options = options

    def put(self, report: RangeReport) -> None:
        """Called once at the end of a read task; atomic."""
        partition, start, end = report.range.partition, report.range.start, report.range.end
        name = f"{partition.topic}-{partition.partition}-{start}-{end}{_REPORT}"
        path = storage.join(self._folder, name)
        storage.write_bytes_atomic(path, msgspec.json.encode(report), self._options)

    def take(self, ranges: Iterable[OffsetRange]) -> list[RangeReport]:
        """Reports of the pieces of ``ranges``, in order of topic, partition and offset.

        Also those of partitions of a join in which time alone has passed: they have no range.
        """
        whole = {range_.partition: range_ for range_ in ranges}
        paths = [storage.join(self._folder, name) for name in self._names(_REPORT)]
        reports = [
            _REPORT_DECODER.decode(storage.read_bytes(path, self._options)) for path in paths
        ]
        mine = [
            report
            for report in reports
            if (report.join is not None and report.range.start == report.range.end)
            or (
                report.range.partition in whole
                and whole[report.range.partition].start <= report.range.start
                and report.range.end <= whole[report.range.partition].end
            )
        ]
        return sorted(mine, key=lambda report: (report.range.partition, report.range.start))

    def put_step(self, batch_id: int, task: str, report: StepReport) -> None:
        """Called once at the end of a task of a step; atomic.

        Args:
            batch_id: Spark's id of the batch.
            task: a name that the task's attempts share, and no other task of the batch has.
            report: what it leaves.
        """
        path = storage.join(self._folder, f"{batch_id}-{task}{_STEP}")
        storage.write_bytes_atomic(path, msgspec.json.encode(report), self._options)

    def take_steps(self, batch_id: int) -> StepReport:
        """Returns what the tasks of the steps of a batch have left, as one report.

        Letters beyond what the driver has room for are omitted.
        """
        lines, omitted = list[LedgerLine](), 0
        behind = BadRecords(DeadLetterLimit(), max_bytes=MAX_BATCH_BYTES)
        for name in self._names(_STEP):
            if name.startswith(f"{batch_id}-"):
                content = storage.read_bytes(storage.join(self._folder, name), self._options)
                report = _STEP_DECODER.decode(content)
                lines += report.lines
                behind.take(report.behind, longest_run=0)
                omitted += report.omitted
        return StepReport(tuple(lines), tuple(behind.kept), behind.omitted + omitted)

    def clear(self) -> None:
        """Empties the folder after the batch."""
        names = [*self._names(_REPORT), *self._names(_STEP)]
        storage.delete_files(self._folder, names, self._options)

    def _names(self, ending: str) -> list[str]:
        names = storage.list_files(self._folder, self._options)
        return [name for name in names if name.endswith(ending)]
