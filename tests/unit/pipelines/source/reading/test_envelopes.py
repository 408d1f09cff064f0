"""Records that are envelopes, read as single events."""

import gzip
import json
import zlib

import pyarrow as pa
import pytest
from tests.contracts.source import event, reader_of, spec
from tests.unit.pipelines.source.reading.test_reader import Records, UnreadableHeaders

from headrace.ledger.sums import Fate, Hop
from headrace.model import (
    ArrayEnvelope,
    LinesEnvelope,
    Metadata,
    ObjectEnvelope,
    OffsetRange,
    Raw,
    TopicPartition,
)
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.source.planning.feedback import Feedback
from headrace.testing.memory import MemoryRecord

NUMBERS = TopicPartition("numbers", 0)
ENCODING = "content-encoding"


@pytest.fixture
def reader(tmp_path):
    def of(*records, envelope=None, **changes):
        read = [
            record if isinstance(record, MemoryRecord) else MemoryRecord(at, record)
            for at, record in enumerate(records)
        ]
        declared = spec(
            Records(tuple(read)),
            "numbers",
            tmp_path,
            **{"metadata": (Metadata.OFFSET, Metadata.EVENT_INDEX)} | changes,
            envelope=envelope or ArrayEnvelope(),
        )
        return reader_of(declared, OffsetRange(NUMBERS, 0, len(read)), 0, topic_id="id")

    return of


def array(*numbers):
    return b"[" + b",".join(map(event, numbers)) + b"]"


def zstd(content):
    return pa.compress(content, "zstd", asbytes=True)


def rows(reader):
    return [row for table in reader.tables() for row in table.to_pylist()]


def places(reader):
    return [(row["n"], row["_offset"], row["_event_index"]) for row in rows(reader)]


def letters(reader):
    dead = reader.report().dead
    return [(letter.offset, letter.event_index, letter.reason, letter.value) for letter in dead]


def test_each_event_is_a_row_with_its_place(reader):
    found = reader(array(10, 11), array(), array(12))
    assert places(found) == [(10, 0, 0), (11, 0, 1), (12, 2, 0)]
    report = found.report()
    assert (report.records, report.envelopes, report.position, report.bad) == (3, 3, 3, 0)
    assert report.bytes == sum(len(event(n)) for n in (10, 11, 12))


def test_offsets_of_events_are_those_of_their_envelopes_where_as_many_offsets_are_missing(reader):
    found = reader(MemoryRecord(0, array(10, 11)), MemoryRecord(2, array(12)))
    assert places(found) == [(10, 0, 0), (11, 0, 1), (12, 2, 0)]


def test_key_time_and_headers_are_those_of_the_envelope(reader):
    headers = (("agent", b"7"), (ENCODING, b"gzip"), ("agent", None))
    record = MemoryRecord(0, gzip.compress(array(1, 2)), b"k", 1_000, headers)
    found = rows(reader(record, metadata=(Metadata.KEY, Metadata.TIMESTAMP, Metadata.HEADERS)))
    kept = [{"key": "agent", "value": b"7"}, {"key": "agent", "value": None}]
    assert [row["_headers"] for row in found] == [kept, kept]
    assert [(row["_key"], row["_timestamp"].timestamp()) for row in found] == [(b"k", 1.0)] * 2


def test_headers_that_can_not_be_read_do_not_hide_the_events(reader):
    record = UnreadableHeaders(0, b"[" + event(1) + b', "bad"]')
    found = reader(record, metadata=(Metadata.HEADERS,))
    assert [(row["n"], row["_headers"]) for row in rows(found)] == [(1, None)]
    (letter,) = found.report().dead
    assert letter.detail.endswith("its headers are left out: the name of one is not UTF-8")


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (array(1, 2), None),
        (array(1, 2), b"identity"),
        (gzip.compress(array(1, 2)), None),
        (gzip.compress(array(1, 2)), b"gzip"),
        (gzip.compress(array(1, 2)[:5]) + gzip.compress(array(1, 2)[5:]), b"X-GZIP"),
        (zstd(array(1, 2)), None),
        (zstd(array(1, 2)), b" zstd "),
        (zstd(array(1, 2)[:5]) + zstd(array(1, 2)[5:]), None),
    ],
)
def test_compression_is_told_by_the_header_or_the_first_bytes(reader, value, encoding):
    headers = () if encoding is None else ((ENCODING, encoding),)
    found = reader(MemoryRecord(0, value, header=headers))
    assert places(found) == [(1, 0, 0), (2, 0, 1)]


GZIP = gzip.compress(array(1, 2))


@pytest.mark.parametrize(
    ("value", "encoding", "reason"),
    [
        (None, None, "null-value"),
        (GZIP[:-4], None, "bad-compression"),
        (GZIP[:20], b"gzip", "bad-compression"),
        (GZIP + b"more", None, "bad-compression"),
        (GZIP[:15] + b"\xff\xff\xff" + GZIP[18:], None, "bad-compression"),
        (GZIP[:-8] + b"12345678", None, "bad-compression"),
        (b"", b"gzip", "bad-compression"),
        (array(1), b"gzip", "bad-compression"),
        (GZIP, b"zstd", "bad-compression"),
        (zstd(array(1, 2))[:-3], None, "bad-compression"),
        (zlib.compress(array(1)), b"deflate", "unknown-encoding"),
        (GZIP, b"gzip, gzip", "unknown-encoding"),
        (GZIP, b"\xff", "unknown-encoding"),
        (GZIP, b"identity", "not-json"),
        (b"no array", None, "not-json"),
        (event(1), None, "not-an-array"),
        (b"", None, "empty"),
    ],
)
def test_an_envelope_that_can_not_be_divided_is_a_dead_letter_as_it_is(
    reader, value, encoding, reason
):
    headers = () if encoding is None else ((ENCODING, encoding),)
    found = reader(array(0), MemoryRecord(1, value, header=headers), array(3))
    assert places(found) == [(0, 0, 0), (3, 2, 0)]
    assert letters(found) == [(1, -1, reason, value)]
    (letter,) = found.report().dead
    assert letter.headers == headers
    assert found.report().records == 3


def test_a_bad_event_is_a_dead_letter_alone_with_its_bytes_and_its_index(reader):
    bad = {
        b'{"n": "1", "name": ""}': "wrong-type",
        b"7": "not-an-object",
        b'{"n": NaN}': "not-json",
        b'{"n": "\xff"}': "not-utf8",
    }
    found = reader(b"[" + b", ".join([event(1), *bad, event(2)]) + b"]", array(3))
    assert places(found) == [(1, 0, 0), (2, 0, 5), (3, 1, 0)]
    assert letters(found) == [
        (0, index, reason, value) for index, (value, reason) in enumerate(bad.items(), 1)
    ]


def test_bad_events_and_bad_envelopes_in_a_row_are_one_run(reader):
    found = reader(array(1), b"[1, 2, 3]", b"bad", b"[4, 5]", array(2))
    assert len(rows(found)) == 2
    assert (found.report().bad, found.report().bad_runs.longest) == (6, 6)


@pytest.mark.parametrize(
    ("envelope", "value", "reason"),
    [
        (ArrayEnvelope(max_bytes=1_000), gzip.compress(b" " * 1_001), "envelope-too-large"),
        (ArrayEnvelope(max_bytes=1_000), zstd(b" " * 1_001), "envelope-too-large"),
        (ArrayEnvelope(max_bytes=1_000), b" " * 1_001, "envelope-too-large"),
        (ArrayEnvelope(), gzip.compress(b" " * 40_000_000), "envelope-too-large"),
        (ArrayEnvelope(max_events=2), array(1, 2, 3), "too-many-events"),
        (LinesEnvelope(max_events=2), b"1\n2\n3", "too-many-events"),
    ],
)
def test_a_bomb_is_a_dead_letter_of_its_own_bytes(reader, envelope, value, reason):
    found = reader(value, envelope=envelope)
    assert rows(found) == []
    assert letters(found) == [(0, -1, reason, value)]


def test_an_envelope_at_its_limits_is_taken(reader):
    envelope = ArrayEnvelope(max_bytes=len(array(1, 2)), max_events=2)
    assert len(rows(reader(gzip.compress(array(1, 2)), envelope=envelope))) == 2


def test_fields_of_the_object_are_copied_and_a_dead_letter_has_them(reader):
    envelope = ObjectEnvelope(copied={"name": "agent.name"})
    value = json.dumps({"agent": {"name": "a"}, "events": [{"n": 1}, {"n": "x"}]}).encode()
    found = reader(value, envelope=envelope)
    assert [(row["n"], row["name"]) for row in rows(found)] == [(1, "a")]
    assert letters(found) == [(0, 1, "wrong-type", b'{"name":"a","n": "x"}')]


def test_events_without_a_class_are_their_json_text(reader):
    found = reader(b'[{"n": 1}, 5]', b"{}", schema=None, format=Raw())
    assert [row["value"] for row in rows(found)] == [b'{"n": 1}', b"5"]
    assert letters(found) == [(1, -1, "not-an-array", b"{}")]


def test_many_events_come_in_several_tables_and_the_position_with_the_last(reader):
    envelopes = [array(*range(4_000)) for _ in range(4)]
    found = reader(*envelopes, metadata=())
    tables = found.tables()
    assert next(tables).num_rows == 12_000
    assert found.report().position == 0
    assert [table.num_rows for table in tables] == [4_000]
    assert (found.report().position, found.report().records) == (4, 16_000)


def test_the_ledger_counts_events(reader):
    rule = LedgerRule(3600, None, None)
    found = reader(array(1, 2), b"[7]", b"bad", ledger=rule)
    rows(found)
    numbers = {(line.key.hop, line.key.fate): line.sums.number for line in found.report().ledger}
    assert numbers == {
        (Hop.READ, Fate.IN): 4,
        (Hop.READ, Fate.OUT): 2,
        (Hop.READ, Fate.DEAD): 2,
    }


def test_batches_are_limited_by_the_size_of_envelopes(reader):
    found = reader(array(*range(100)), array(*range(100)))
    rows(found)
    sizes = Feedback().after([found.report()], {"numbers": 0}).sizes["numbers"][0]
    assert sizes.mean == sum(len(event(n)) for n in range(100))
