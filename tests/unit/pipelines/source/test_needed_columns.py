"""Columns that neither the writers nor the reading of a source look at are not made."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.contracts.source import spec
from tests.unit.pipelines.source.reading.test_reader import NUMBERS, Records

from headrace.events.wire_format import HEADER
from headrace.model import EpochMillis, Metadata, OffsetRange, event_schema
from headrace.pipelines.late_data.rule import LateRule
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.pipelines.source.decode.json_events import JsonDecoder
from headrace.pipelines.source.reading.reader import ReadRange, TaskReader
from headrace.sinks.api import SelectiveWriters
from headrace.testing.memory import MemoryRecord


class Visit:
    id: str
    at: EpochMillis
    page: str
    seconds: int


class Counted:
    id: str


GOOD = b'{"id": "a", "at": 1, "page": "/", "seconds": 2}'
WRONG = b'{"id": "b", "at": 1, "page": "/", "seconds": "2"}'


@dataclass(frozen=True)
class Pages(SelectiveWriters):
    """Writers that look at one field, and are not opened."""

    def __call__(self, task_id):
        raise NotImplementedError(task_id)

    def columns(self):
        return ["page"]


@pytest.fixture
def source(tmp_path):
    def of(*values, **changes):
        records = tuple(MemoryRecord(offset, value) for offset, value in enumerate(values))
        fields = {"schema": event_schema(Visit), "metadata": (Metadata.OFFSET,)}
        return spec(Records(records), "numbers", tmp_path, **fields | changes)

    return of


def read(source, records):
    reader = TaskReader(source, [ReadRange(OffsetRange(NUMBERS, 0, records), 0)])
    (rows,) = reader.tables()
    (report,) = reader.reports()
    return rows, report


def columns(source):
    return read(source.with_needed_columns(), 1)[0].column_names


def test_rows_have_the_columns_that_writers_look_at(source):
    assert columns(source(GOOD, writers=Pages())) == ["page", "_offset"]


def test_rows_have_the_columns_that_reading_looks_at(source):
    assert columns(source(GOOD, writers=Pages(), event_time="at")) == ["at", "page", "_offset"]
    by_id = source(GOOD, writers=Pages(), ledger=LedgerRule(60, "at", "id"))
    assert columns(by_id) == ["id", "at", "page", "_offset"]
    partitioned = source(GOOD, writers=Pages(), partition_columns=("id",))
    assert columns(partitioned) == ["id", "page", "_offset"]


def test_a_side_table_has_all_columns(source):
    found = source(GOOD, writers=Pages(), late=LateRule(writers=Pages()))
    assert columns(found) == [
        *event_schema(Visit).names,
        "_offset",
    ]


def test_other_writers_have_all_columns(source):
    assert columns(source(GOOD, writers=lambda _: None)) == [*event_schema(Visit).names, "_offset"]


def test_a_bad_value_of_a_field_without_a_column_is_a_dead_letter(source):
    rows, report = read(source(GOOD, WRONG, writers=Pages()).with_needed_columns(), 2)
    assert rows.column("page").to_pylist() == ["/"]
    assert [(letter.offset, letter.reason) for letter in report.dead] == [(1, "wrong-type")]


@pytest.mark.parametrize("needed", [[], ["elsewhere"]])
@pytest.mark.parametrize("records", [1, 60])
def test_rows_are_counted_where_no_column_is_looked_at(needed, records):
    counted = event_schema(Counted)
    kind = {"type": "record", "name": "Counted", "fields": [{"name": "id", "type": "string"}]}
    head = HEADER.pack(0, 1)
    for decoder, good, bad in (
        (JsonDecoder(counted, needed), b'{"id": "a"}', b"{}"),
        (AvroDecoder(counted, {1: kind}.get, needed), head + b"\x02a", head + b"\x08a"),
    ):
        decoded = decoder.decode([*[good] * records, bad])
        assert (decoded.rows.num_rows, [*decoded.rejected]) == (records, [records])
