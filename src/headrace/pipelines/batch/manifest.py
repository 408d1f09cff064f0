"""What tasks hand to the end of the batch: pieces, dead letters, reports, lines of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.model import DeadLetter, DeadLetterLimit, TopicPartition
from headrace.pipelines.ledger.counting.row_lineage import RowLineage, RowTally, without_lineage
from headrace.pipelines.ledger.counting.tally import SinkTally
from headrace.pipelines.ledger.sums import LedgerLine
from headrace.pipelines.source.reading.bad_records import BadRecords
from headrace.pipelines.source.report import RangeReport
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.runtime.garbage import gc_paused
from headrace.sinks.api import RejectedRow, RejectedValues, WriterFactory
from headrace.sinks.row_json import row_json
from headrace.spark.remote_errors import raising_remote_errors

if TYPE_CHECKING:
    import pyarrow as pa

PIECE, DEAD, REPORT, OMITTED, LINES = COLUMNS = ("piece", "dead", "report", "omitted", "lines")
ROWS_AT_ONCE = 50_000
# Made at import: msgspec crashes where several threads are the first to decode a class.
_LETTER = msgspec.json.Decoder(DeadLetter)
_REPORT = msgspec.json.Decoder(RangeReport)
_LINES = msgspec.json.Decoder(tuple[LedgerLine, ...])


@dataclass(frozen=True)
class Manifest:
    """One batch as its tasks left it.

    Attributes:
        pieces: what their writers returned, for the commit.
        dead: rows that the sink can't take.
        reports: of the ranges that were read; of the fused path, where the reading task writes.
        omitted: rows that the sink can't take beyond those in ``dead``: they are only counted.
        lines: what the ledger counts of the rows after steps.
    """

    pieces: tuple[str, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    reports: tuple[RangeReport, ...] = ()
    omitted: int = 0
    lines: tuple[LedgerLine, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Manifest:
        """Returns the manifest from the rows of :func:`manifest_table`, collected by Spark."""
        collected = list(rows)
        dead = [row[DEAD] for row in collected if row[DEAD]]
        reports = [row[REPORT] for row in collected if row[REPORT]]
        return cls(
            tuple(row[PIECE] for row in collected if row[PIECE]),
            tuple(_LETTER.decode(text) for text in dead),
            tuple(_REPORT.decode(text) for text in reports),
            sum(int(row[OMITTED]) for row in collected if row[OMITTED]),
            tuple(line for row in collected if row[LINES] for line in _LINES.decode(row[LINES])),
        )


def manifest_schema() -> pa.Schema:
    """Returns columns ``piece``, ``dead``, ``report``, ``omitted``, ``lines``: a row has one."""
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in COLUMNS])


def manifest_table(
    pieces: Sequence[str] = (),
    dead: Sequence[DeadLetter] = (),
    reports: Sequence[RangeReport] = (),
    omitted: int = 0,
    lines: Sequence[LedgerLine] = (),
) -> pa.Table:
    """Returns a task's part of the manifest."""
    import pyarrow as pa

    rows = [{PIECE: piece} for piece in pieces]
    rows += [{DEAD: msgspec.json.encode(letter).decode()} for letter in dead]
    rows += [{REPORT: msgspec.json.encode(report).decode()} for report in reports]
    rows += [{OMITTED: str(omitted)}] if omitted else []
    rows += [{LINES: msgspec.json.encode(lines).decode()}] if lines else []
    return pa.Table.from_pylist(rows, manifest_schema())


def write_rows(
    writers: WriterFactory,
    tables: Iterable[pa.Table | pa.RecordBatch],
    origin: str,
    task: int = 0,
    tasks: int = 1,
    tally: SinkTally[Any] | None = None,
) -> pa.Table:
    """Writes a task's rows; removes what was written if anything fails.

    A row that the sink can't take becomes a dead letter of topic ``origin`` that holds the row as
    JSON: after a Spark step it is not known which record it came from. The driver collects these
    letters, so those beyond 16 MiB of a task, or its share of what the driver has room for, are
    only counted. ``task`` numbers the tasks of a batch in the order of the records that they read;
    ``tasks`` is at least their number. After steps it is not known: there Spark itself fails a
    batch whose tasks return more than ``spark.driver.maxResultSize``, by default 1 GiB. ``tally``
    counts the rows for the ledger.
    """
    import uuid

    # WriterFactory promises ids that sort as the tasks read: the last row of a key wins an upsert.
    writer = writers(f"{task:08x}{uuid.uuid4().hex[:24]}")
    bad = BadRecords(DeadLetterLimit(), tasks)
    # Also if Spark kills the task: the files that it wrote must not stay.
    with cleaning_up_after_failure(writer.abort):
        for table in _regrouped(tables):
            with gc_paused():
                rejected = writer.write(table)
            if tally is not None:
                tally.written(table.num_rows, [row.index for row in rejected])
            letters = (derived_row_letter(table, row, origin) for row in rejected)
            bad.take(letters, longest_run=0)  # rows of a step are in no order
        return manifest_table(writer.close(), bad.kept, omitted=bad.omitted)


def _regrouped(tables: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields the rows in larger tables: dividing them by partition costs by the table."""
    import pyarrow as pa

    gathered: list[pa.Table] = []
    for rows in tables:
        gathered.append(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]))
        if sum(table.num_rows for table in gathered) >= ROWS_AT_ONCE:
            yield pa.concat_tables(gathered)
            gathered = []
    if gathered:
        yield pa.concat_tables(gathered)


def arrow_writer(
    writers: WriterFactory, topics: Sequence[str], *, counts_rows: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The last step of the Spark path, for ``mapInArrow``: rows in, manifest out.

    Args:
        writers: of the sink.
        topics: of the pipeline's sources; the first one is named by dead letters.
        counts_rows: whether rows have the column :data:`LINEAGE`; the ledger counts them by it.
    """
    import pyarrow as pa

    origin = topics[0]

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with raising_remote_errors():
            if not counts_rows:
                yield from write_rows(writers, batches, origin).to_batches()
                return
            tally, at_sink = RowTally(topics), SinkTally[RowLineage]()
            rows = without_lineage(batches, at_sink, tally)
            written = write_rows(writers, rows, origin, tally=at_sink)
            lines = manifest_table(lines=tally.lines())
            yield from pa.concat_tables([written, lines]).to_batches()

    return write


def derived_row_letter(table: pa.Table, rejected: RejectedRow, origin: str) -> DeadLetter:
    """Returns the dead letter of a row that a sink can't take, for those of topic ``origin``."""
    text = row_json(table.slice(rejected.index, 1))
    return derived_letter(RejectedValues(text, rejected.reason, rejected.detail), origin)


def derived_letter(rejected: RejectedValues, origin: str) -> DeadLetter:
    """Returns the dead letter of a row that belongs to no record, for those of topic ``origin``."""
    no_position, value = TopicPartition(origin, -1), rejected.values.encode()
    return DeadLetter(no_position, -1, rejected.reason, rejected.detail, None, value)
