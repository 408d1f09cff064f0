"""Which account and window a record counts for: those that its producer placed it by."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace

import pytest

from headrace.model import Avro, ByAccount, EpochMillis, OffsetRange, Topic, TopicPartition
from headrace.topics.spreads import loads as module
from headrace.topics.spreads.loads import AccountReader, SampledLoads

AT = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
NUMBER = (AT - datetime(1970, 1, 1, tzinfo=UTC)) // HOUR


class Event:
    at: datetime
    owner: dict[str, str]


class Tick:
    at: EpochMillis


class Record:
    def __init__(self, value, key=None, headers=()):
        self._value, self._key, self._headers = value, key, list(headers)

    def value(self):
        return self._value

    def key(self):
        return self._key

    def headers(self):
        return self._headers or None


def topic(event=Event, **changes) -> Topic:
    strategy = ByAccount(HOUR, account=changes.pop("account", None))
    return Topic("events", event=event, event_time="at", partitioning=strategy, **changes)


def text(at: object = "2026-05-01T12:30:00Z", **fields: object) -> bytes:
    return json.dumps({"at": at, **fields}).encode()


@pytest.mark.parametrize(
    ("declared", "record", "account"),
    [
        (topic(), Record(text(), b"acme"), "acme"),
        (topic(), Record(text(), b"k", [("account", b"a"), ("account", b"acme")]), "acme"),
        (topic(key="at"), Record(text(), b"2026", [("account", "ä".encode())]), "ä"),
        (topic(account="owner.id"), Record(text(owner={"id": "acme"}), b"k"), "acme"),
        (topic(account="owner.id"), Record(text(owner={"id": 7}), b"k"), "7"),
        (topic(account="owner.id"), Record(text(), b"k", [("account", b"other")]), ""),
        (topic(event=Tick), Record(text(int(AT.timestamp() * 1000)), b"acme"), "acme"),
    ],
)
def test_the_account_is_that_of_the_header_the_key_or_the_field(declared, record, account):
    assert AccountReader(declared).place(record) == (account, NUMBER)


@pytest.mark.parametrize(
    ("declared", "record"),
    [
        (topic(key="at"), Record(text(), b"2026")),
        (topic(), Record(text())),
        (topic(), Record(None, b"acme")),
        (topic(), Record(b"[]", b"acme")),
        (topic(), Record(b"{}", b"acme")),
        (topic(account="account"), Record(b"[]", b"acme")),
        (topic(account="account"), Record(b"7", b"acme")),
        (topic(), Record(b"\xff", b"acme")),
        (topic(), Record(text("noon"), b"acme")),
        (topic(), Record(text(7), b"acme")),
        (topic(), Record(text(), b"\xff")),
        (topic(event=Tick), Record(text(10**30), b"acme")),
    ],
)
def test_a_record_without_an_account_or_that_can_not_be_read_has_no_place(declared, record):
    assert AccountReader(declared).place(record) is None


def test_values_of_registered_formats_are_read_as_json():
    texts = {b"\x00avro": text()}
    reads = AccountReader(topic(format=Avro()), texts.get)
    assert reads.place(Record(b"\x00avro", b"acme")) == ("acme", NUMBER)
    assert reads.place(Record(b"\x00other", b"acme")) is None


def test_records_count_for_their_partition_and_account():
    loads = SampledLoads(AT, Fraction(1))
    reads = AccountReader(topic())
    loads.take(0, Record(text(), b"a"), reads)
    loads.take(1, Record(text(), b"b"), reads)
    loads.take(1, Record(b"x"), reads)
    size = len(text()) + 1
    assert loads.partitions == {0: size, 1: size + 1}
    assert loads.sizes == {("a", NUMBER): size, ("b", NUMBER): size}
    assert (loads.unknown, loads.unknown_records) == ({1: 1}, {1: 1})


def test_of_too_many_records_the_same_part_of_each_partition_is_read(monkeypatch):
    partitions = [TopicPartition("events", number) for number in range(3)]
    live = type("Live", (), {"all_partitions": partitions, "partitions": 3})
    marks = dict(zip(partitions, [(0, 1_000), (500, 600), (0, 0)], strict=True))
    read = []
    monkeypatch.setattr(module, "describe", lambda *_: {"events": live})
    monkeypatch.setattr(module, "watermarks", lambda *_: marks)
    monkeypatch.setattr(
        module, "offsets_since", lambda *_: {partitions[0]: 100, partitions[1]: 500}
    )
    monkeypatch.setattr(module, "consumer", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(module, "read_ranges", lambda _, ranges, __: read.extend(ranges) or ())
    loads = module.sampled_loads({}, topic(), AccountReader(topic()), AT, 100)
    assert loads.fraction == Fraction(1, 10)
    assert read == [OffsetRange(partitions[0], 910, 1_000), OffsetRange(partitions[1], 590, 600)]
