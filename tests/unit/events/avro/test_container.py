"""Avro container files: every codec, and what damage costs."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime

import fastavro
import pytest
from tests.avro_files import CODECS, MARKER, block, container, header

from headrace.errors import ExtraMissingError
from headrace.events.avro.container import container_records
from headrace.model import event_schema
from headrace.runtime import extras

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


@dataclass
class Order:
    order_id: str
    at: datetime


def orders(*ids):
    return [{"order_id": order_id, "at": AT, "note": None} for order_id in ids]


def read(file, schema=None):
    return list(container_records(io.BufferedReader(io.BytesIO(file)), schema))


def ids(records):
    return [
        json.loads(record.content)["order_id"] for record in records if record.rejection is None
    ]


def rejections(records):
    return [
        (record.number, record.count, *record.rejection)
        for record in records
        if record.rejection is not None
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_read_in_their_order(codec):
    found = read(container(ORDER, orders("a", "b"), orders("c"), codec=codec), event_schema(Order))
    assert [(record.number, record.rejection) for record in found] == [
        (number, None) for number in (1, 2, 3)
    ]
    assert ids(found) == ["a", "b", "c"]
    assert json.loads(found[0].content) == {"order_id": "a", "at": "2026-05-01T12:00:00Z"}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_files_of_another_library_are_read(codec):
    """With many small blocks; it has no package for the other codecs."""
    file = io.BytesIO()
    names = [str(number) for number in range(1000)]
    fastavro.writer(file, ORDER, orders(*names), codec=codec, sync_interval=1000)
    assert ids(read(file.getvalue(), event_schema(Order))) == names


def test_without_a_class_a_record_is_the_json_text_of_all_of_its_fields():
    [record] = read(container(ORDER, orders("a")))
    assert json.loads(record.content) == {
        "order_id": "a",
        "at": "2026-05-01T12:00:00Z",
        "note": None,
    }


def test_a_value_that_does_not_fit_its_class_is_rejected_alone():
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "order_id", "type": ["string", "bytes"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
    records = [{"order_id": order_id, "at": AT} for order_id in ("a", b"b", "c")]
    found = read(container(schema, records), event_schema(Order))
    assert ids(found) == ["a", "c"]
    [(number, _, reason, detail)] = rejections(found)
    assert (number, reason) == (2, "wrong-type")
    assert "order_id" in detail


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_damaged_block_costs_its_own_records(codec):
    blocks = [orders("a", "b"), orders("c", "d", "e"), orders("f")]
    file = container(ORDER, *blocks, codec=codec)
    start = len(container(ORDER, blocks[0], codec=codec))
    damaged = bytearray(file)
    damaged[start + 4 : start + 12] = bytes(8)
    found = read(bytes(damaged))
    assert ids(found) == ["a", "b", "f"]
    [(number, count, reason, detail)] = rejections(found)
    assert (number, count, reason) == (3, 3, "damaged-block")
    assert f"the block at byte {start}, of 3 record(s), can't be read" in detail
    assert found[-1].number == 6
    assert found[2].is_part_lost


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_block_with_another_number_of_records_than_it_says_is_damaged(count):
    file = container(ORDER) + block(ORDER, orders("a", "b"), count=count)
    assert [found[1:3] for found in rejections(read(file))] == [(count, "damaged-block")]


def test_without_a_marker_the_rest_of_the_file_is_lost_and_said_to_be():
    file = container(ORDER, orders("a"), orders("b"), orders("c"))
    start = len(container(ORDER, orders("a")))
    end = file.index(MARKER, start)
    found = read(file[:end] + bytes(16) + file[end + 16 :])
    assert ids(found) == ["a"]
    [(number, _, reason, detail)] = rejections(found)
    assert (number, reason) == (2, "damaged-file")
    assert f"no marker is behind the block at byte {start}" in detail


def test_a_file_may_be_cut_off_anywhere():
    """It has the records of its whole blocks, and says that it is cut off unless one ends there."""
    file = container(ORDER, orders("a"), orders("b"))
    ends = {len(container(ORDER)), len(container(ORDER, orders("a"))), len(file)}
    for size in range(len(file) + 1):
        found = read(file[:size])
        blocks = max(0, sum(end <= size for end in ends) - 1)
        assert ids(found) == ["a", "b"][:blocks]
        assert [record.is_cut_off for record in found if record.rejection] == (
            [] if size in ends else [True]
        )


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"PAR1" + bytes(40), "it is no container file"),
        (container(ORDER, codec="lzo"), "its codec is 'lzo', expected one of null, deflate"),
        (header({"avro.schema": b"{"}), "its schema can't be read"),
        (header({"avro.schema": b'{"type": "records"}'}), "its schema can't be read"),
        (header({}), "its schema can't be read"),
        (b"Obj\x01" + b"\xff" * 20, "there is no number"),
        (container(ORDER) + b"\x02" + b"\xff\xff\xff\xff\x0f" + bytes(20), "says that it has"),
        (container(ORDER) + b"\x01\x00" + MARKER, "no marker"),
    ],
)
def test_what_can_not_be_a_container_file_is_one_rejection(file, words):
    [(number, _, reason, detail)] = rejections(read(file))
    assert (number, reason) == (1, "damaged-file")
    assert words in detail


def test_a_block_that_unpacks_to_more_than_the_limit_is_damaged(monkeypatch):
    monkeypatch.setattr("headrace.events.avro.container.MAX_BLOCK_BYTES", 10_000)
    for codec in CODECS[1:]:
        found = read(container(ORDER, orders("a" * 100_000), orders("b"), codec=codec))
        assert [one[2] for one in rejections(found)] == ["damaged-block"], codec
        assert ids(found) == ["b"]


def test_what_reads_a_file_is_named_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(extras, "MODULES", {"avro": (), "spark": ("pyarrow_2",)})
    assert ids(read(container(ORDER, orders("a")))) == ["a"]
    with pytest.raises(ExtraMissingError, match=r"headrace\[spark\]"):
        read(container(ORDER, orders("a"), codec="snappy"))
    monkeypatch.setattr(extras, "MODULES", {"avro": ("fastavro_2",)})
    with pytest.raises(ExtraMissingError, match=r"headrace\[avro\]"):
        read(container(ORDER, orders("a")))
