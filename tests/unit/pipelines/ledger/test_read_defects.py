"""Defects planted in the code of a read task: the ledger names the hop."""

import json

import pyarrow as pa
import pytest
from tests.contracts.source import reader_of, spec
from tests.unit.pipelines.late_data.test_late_events import (
    HOUR_US,
    NOW_MS,
    PARTITION,
    TIMES,
    Timed,
)

from headrace.ledger.sums import Fate, Hop
from headrace.model import OffsetRange, event_schema
from headrace.pipelines.late_data.late_events import LateEvents, OnTime
from headrace.pipelines.late_data.rule import LateRule
from headrace.pipelines.ledger.comparison import HopComparison
from headrace.pipelines.ledger.completeness import CompletenessBounds
from headrace.pipelines.ledger.counting.tally import LedgerRule, RangeTally
from headrace.pipelines.ledger.entry import LedgerEntry
from headrace.testing.memory import MemoryCluster


@pytest.fixture
def differences(tmp_path):
    """Reads events of which one is late, without handing them to a sink: what is missing where."""

    def read():
        cluster = MemoryCluster()
        cluster.create("t", 1)
        for n, at in enumerate(TIMES):
            cluster.append("t", 0, json.dumps({"n": n, "at": at}).encode())
        late = LateRule(HOUR_US, to_dead_letters=True)
        declared = spec(
            cluster,
            "t",
            tmp_path,
            schema=event_schema(Timed),
            event_time="at",
            late=late,
            ledger=LedgerRule(3600, "at", None),
        )
        range_ = OffsetRange(PARTITION, 0, len(TIMES))
        reader = reader_of(declared, range_, NOW_MS, topic_id="id", event_us=NOW_MS * 1000)
        pa.concat_tables(reader.tables())
        entry = LedgerEntry(1, 0, 0, 3600, (), reader.report().ledger)
        balance = HopComparison([entry], CompletenessBounds(0), has_steps=False)
        late = sum(window.fates.get(Fate.LATE, 0) for window in balance.windows())
        missing = [each for window in balance.windows() for each in window.differences]
        return late, sum(each.number for each in missing if each.hop is Hop.READ)

    return read


def test_without_a_defect_nothing_is_missing(differences):
    assert differences() == (1, 0)


def test_a_late_event_that_is_dropped_is_missing_at_read(differences, monkeypatch):
    without = LateEvents.without

    def dropping(self, rows, records):
        on_time = without(self, rows, records)
        return OnTime(on_time.rows, on_time.records, {})

    monkeypatch.setattr(LateEvents, "without", dropping)
    assert differences() == (0, 1)


def test_a_late_event_that_goes_on_and_is_counted_as_late_is_too_many(differences, monkeypatch):
    add = RangeTally.add

    def twice(self, hop, fate, columns):
        add(self, hop, fate, columns)
        if fate is Fate.LATE:
            add(self, hop, Fate.OUT, columns)

    monkeypatch.setattr(RangeTally, "add", twice)
    assert differences() == (1, -1)
