"""What tasks hand to the end of the batch: files written, and rows that have no home."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.source.report import RangeReport
from headrace.sinks.files import PartitionedWriter
from headrace.sinks.manifest import WriteSpec, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa

FILE, DEAD, REPORT = "file", "dead", "report"
ROWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Manifest:
    """One batch as its tasks left it.

    Attributes:
        files: what they have written.
        dead: rows that have no home in the table.
        reports: of the ranges that were read; of the fused path, where the reading task writes.
    """

    files: tuple[WrittenFile, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    reports: tuple[RangeReport, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Manifest:
        """From the rows of :func:`manifest_table`, collected by Spark."""
        found = list(rows)
        return cls(
            tuple(WrittenFile.from_json(row[FILE]) for row in found if row[FILE]),
            tuple(msgspec.json.decode(row[DEAD], type=DeadLetter) for row in found if row[DEAD]),
            tuple(
                msgspec.json.decode(row[REPORT], type=RangeReport) for row in found if row[REPORT]
            ),
        )


def manifest_schema() -> pa.Schema:
    """``file``, ``dead`` and ``report``: JSON text; each row has one of them."""
    import pyarrow as pa

    return pa.schema([(FILE, pa.string()), (DEAD, pa.string()), (REPORT, pa.string())])


def manifest_table(
    files: Sequence[WrittenFile] = (),
    dead: Sequence[DeadLetter] = (),
    reports: Sequence[RangeReport] = (),
) -> pa.Table:
    """A task's part of the manifest."""
    import pyarrow as pa

    rows = [{FILE: file.to_json()} for file in files]
    rows += [{DEAD: msgspec.json.encode(letter).decode()} for letter in dead]
    rows += [{REPORT: msgspec.json.encode(report).decode()} for report in reports]
    return pa.Table.from_pylist(rows, manifest_schema())


def write_rows(
    spec: WriteSpec, tables: Iterable[pa.Table | pa.RecordBatch], origin: str
) -> pa.Table:
    """Writes a task's rows; whatever goes wrong, its files are removed again.

    A row whose partition value has no home becomes a dead letter of topic ``origin`` that holds
    the row as JSON: after a Spark step nobody knows which record it came from.
    """
    import uuid

    writer = PartitionedWriter(spec, uuid.uuid4().hex)
    dead: list[DeadLetter] = []
    try:
        for table in _regrouped(tables):
            homeless = writer.write(table)
            dead += [_derived(table, row.index, row.detail, origin) for row in homeless]
        return manifest_table(writer.close(), dead)
    except BaseException:
        writer.abort()
        raise


def _regrouped(tables: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in larger tables: sharing them out to partitions costs by the table."""
    import pyarrow as pa

    held: list[pa.Table] = []
    for table in tables:
        held.append(table if isinstance(table, pa.Table) else pa.Table.from_batches([table]))
        if sum(one.num_rows for one in held) >= ROWS_AT_ONCE:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def arrow_writer(
    spec: WriteSpec, origin: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The last step of the Spark path, for ``mapInArrow``: rows in, manifest out."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from write_rows(spec, batches, origin).to_batches()

    return write


def _derived(table: pa.Table | pa.RecordBatch, index: int, detail: str, origin: str) -> DeadLetter:
    row = table.slice(index, 1).to_pylist()[0]
    value = json.dumps(row, default=str, ensure_ascii=False).encode()
    nowhere = TopicPartition(origin, -1)
    return DeadLetter(nowhere, -1, "unsafe-partition-value", detail, None, value)
