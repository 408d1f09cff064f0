"""What an instance of a merger does with what its reader gives, without brokers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.errors import LinkDamagedError
from headrace.links.merger import merging
from headrace.links.merger.merging import MergerCarrier
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.merger.positions.position import InputPosition
from headrace.links.source_reader import DamagedRecordsError
from headrace.model import TopicPartition

SOURCES = {"a": ClockSource.WALL, "b": ClockSource.WALL}
PLAN = MergerPlan("m", "g", {}, SOURCES, "sorted", "late", 0, 1.0)
A, TARGET = TopicPartition("a", 0), TopicPartition("sorted", 0)


def test_damaged_records_refuse_their_partition(monkeypatch):
    def read(*_):
        raise DamagedRecordsError(A, 7, "failed CRC32C check")

    reader = SimpleNamespace(assign=lambda _: None, read=read)
    monkeypatch.setattr(merging, "SourceReader", lambda *_: reader)
    monkeypatch.setattr(merging, "LinkWriter", lambda *_, one_by_one: None)
    carrier = MergerCarrier(PLAN, "id", {})
    carrier.add({TARGET: (InputPosition(5, 5), InputPosition(5, 5))})
    with pytest.raises(LinkDamagedError) as refusal:
        carrier.move(0)
    error = refusal.value
    assert (error.code, error.source, error.offset) == ("MERGER_DAMAGED", ("a", 0), 7)
    assert "headrace merger accept m a/0" in error.remedy
