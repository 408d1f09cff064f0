"""A lake's table that is unique, on the real broker, Spark and table."""

import json
from collections import Counter
from datetime import timedelta

import pytest
from tests.integration.flow import Flow, click
from tests.integration.test_ledger import balance, states, totals

from headrace import Lake, Source, Unique
from headrace.ledger.windows import WindowState
from headrace.service.status import State
from headrace.sinks.lake.delta.log_tail import LogTail

PATHS = ("fused", "stepped")
UNIQUE = Unique(by=["event_id"], within=timedelta(days=7))
DUPLICATES, CONFLICTS = "lake_duplicate_rows", "lake_conflicting_rows"


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, event_id="event_id")


def unique(flow, path, **changes):
    sink = Lake(path, partition_by=("day", "hour", "category"), unique=UNIQUE)
    return getattr(flow, "pipeline" if path == "fused" else path)(path, sink=sink, **changes)


def run(flow, pipeline):
    outcome = flow.run(pipeline)[pipeline.name]
    assert outcome.state is State.FINISHED, outcome.reason
    return outcome


def once(*numbers):
    return Counter(f"e{n}" for n in numbers)


def conflicts(flow):
    letters = [stored.letter for stored in flow.dead()]
    assert {letter.reason for letter in letters} <= {"conflicting-key"}
    return Counter(json.loads(letter.value)["n"] for letter in letters)


@pytest.mark.parametrize("path", PATHS)
def test_each_event_is_there_once_whichever_batch_and_partition_repeats_it(flow, path):
    """Also where the driver dies after the first commit, and Spark repeats the batch."""
    pipeline = unique(flow, path)
    flow.send([click(n) for n in range(100)] + [click(n) for n in range(10)], partition=0)
    flow.send([click(n) for n in range(20)] + [click(5, n=1005)], partition=1)
    outcome = run(flow, pipeline)
    assert flow.ids(path) == once(*range(100))
    # Both partitions are one batch: which of the two came first is known on the fused path.
    assert outcome.figures[DUPLICATES] + outcome.figures[CONFLICTS] == 31
    letters = conflicts(flow)
    flow.forget_newest_commit(path)
    flow.send([click(n) for n in range(50, 150)])
    outcome = run(flow, pipeline)
    assert flow.ids(path) == once(*range(150))
    assert (outcome.figures[DUPLICATES], outcome.figures[CONFLICTS]) == (50, 0)
    assert conflicts(flow) == letters
    found = balance(flow, pipeline)
    assert set(states(found)) <= {WindowState.OPEN, WindowState.CLOSING, WindowState.BALANCED}
    dead = sum(conflicts(flow).values())
    expected = {"read": 231, "out": 150, "deduplicated": 81 - dead, "dead": dead}
    assert totals(found) == expected
    if path == "fused":
        assert conflicts(flow) == {1005: 1}


@pytest.mark.parametrize("path", PATHS)
def test_a_crash_before_the_commit_decides_the_batch_anew(flow, path, monkeypatch):
    pipeline = unique(flow, path)
    flow.send([click(n) for n in range(50)])
    run(flow, pipeline)
    append, crashed = LogTail.append, []

    def append_once_down(tail, *args):
        if not crashed:
            crashed.append(True)
            raise OSError("the machine is gone")
        append(tail, *args)

    monkeypatch.setattr(LogTail, "append", append_once_down)
    flow.send([click(n) for n in range(30, 80)] + [click(n) for n in range(60, 70)])
    flow.send([click(7, n=1007)])
    outcome = run(flow, pipeline)
    assert (outcome.restarts, crashed) == (1, [True])
    assert flow.ids(path) == once(*range(80))
    assert (outcome.figures[DUPLICATES], outcome.figures[CONFLICTS]) == (30, 1)
    assert conflicts(flow) == {1007: 1}
    expected = {"read": 111, "out": 80, "deduplicated": 30, "dead": 1}
    assert totals(balance(flow, pipeline)) == expected


def test_reading_all_again_adds_no_row(flow):
    pipeline = unique(flow, "fused", source=Source(flow.topic, min_tasks=4))
    flow.send([click(n) for n in range(200)] + [click(3, n=1003)], partition=0)
    run(flow, pipeline)
    before = sorted(flow.rows(), key=lambda row: row["n"])
    assert len(before) == 200
    flow.reset(pipeline, "earliest")
    outcome = run(flow, pipeline)
    assert (outcome.rows_in, outcome.rows_out) == (201, 0)
    assert (outcome.figures[DUPLICATES], outcome.figures[CONFLICTS]) == (200, 1)
    assert sorted(flow.rows(), key=lambda row: row["n"]) == before
    assert len(flow.rows()) == 200


def test_columns_of_the_record_may_differ_in_a_duplicate(flow):
    from headrace import Metadata

    source = Source(flow.topic, metadata=(Metadata.PARTITION, Metadata.OFFSET, Metadata.KEY))
    pipeline = unique(flow, "fused", source=source)
    flow.send([click(n) for n in range(10)], partition=0)
    flow.send([click(n) for n in range(10)], partition=1)
    outcome = run(flow, pipeline)
    assert flow.ids() == once(*range(10))
    assert (outcome.figures[DUPLICATES], outcome.dead_letters) == (10, 0)
