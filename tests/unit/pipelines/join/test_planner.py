"""How far the time of a join goes, and which partitions it reads."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.contracts.source import event, spec

from headrace.model import BatchLimits, Start
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.offsets import JoinOffset
from headrace.pipelines.join.planner import JoinPlanner
from headrace.pipelines.late_data.event_clock import EventClock
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.planning.feedback import Feedback
from headrace.pipelines.source.state import SourceState
from headrace.testing import MemoryCluster

SECOND = 1_000_000
NOW_MS = 1_764_000_000_000
HOUR_MS = 3_600_000
NO_WAIT = BatchLimits(max_wait=timedelta(0))


class TopicPlanner:
    """A topic whose looks find what a test says."""

    def __init__(self, latest, looked_ms):
        self.latest, self.looked_ms, self.found, self.taken = latest, looked_ms, latest, {}
        self.waits = False
        self.target = None

    def stop_at_latest(self):
        self.target = self.latest

    def is_at_target(self, partition, position):
        return self.target is not None and position >= self.target[partition]

    def plan_next(self, start, *, at_once=False):
        self.latest = self.found
        if self.waits and not at_once:
            return start
        return replace(start, partitions={**start.partitions, **self.taken})


@pytest.fixture
def planner(tmp_path):
    joins = object.__new__(JoinPlanner)
    joins._spec = SimpleNamespace(files=SimpleNamespace(checkpoint="lake/p/1"))
    joins._state = SourceState(tmp_path)
    joins._window = JoinWindow(within_us=3600 * SECOND, wait_us=5 * SECOND)
    joins._stopped_ms = None
    joins._later, joins._earlier = (TopicPlanner({0: 10}, NOW_MS) for _ in range(2))
    joins._state.write_waiting("lake/p/1", {0: NOW_MS * 1000})
    clocks = {topic: {0: EventClock(NOW_MS * 1000)} for topic in ("clicks", "views")}
    ends = {topic: {0: 10} for topic in clocks}
    joins._state.write_feedback("lake/p/1", 0, Feedback(clocks=clocks), ends)
    return joins


def offset(**changes):
    later, earlier = (SourceOffset(topic, "id", {0: 10}, NOW_MS) for topic in ("clicks", "views"))
    moved = {"clicks/0": NOW_MS, "views/0": NOW_MS}
    return JoinOffset(later, earlier, moved_ms=moved, **changes)


def test_time_alone_gives_an_event_up_once_a_topic_was_idle_for_longer_than_it_waits(planner):
    planner._earlier.looked_ms = NOW_MS + 4_000
    assert planner.plan_next(offset()) == offset()
    planner._earlier.looked_ms = NOW_MS + 6_000
    assert planner.plan_next(offset()).clock_us == {0: (NOW_MS + 6_000) * 1000}


def test_time_stands_still_while_the_topic_can_not_be_looked_at(planner, monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: (NOW_MS + HOUR_MS) * 1_000_000)
    planner._earlier.looked_ms = NOW_MS + 1_000
    assert planner.plan_next(offset()) == offset()


@pytest.mark.parametrize(("began_after_ms", "is_due"), [(4_000, False), (6_000, True)])
def test_in_a_run_that_ends_time_goes_to_its_beginning(
    planner, monkeypatch, began_after_ms, is_due
):
    """Else one batch after the other would find the next events due, for as long as they wait."""
    monkeypatch.setattr("time.time_ns", lambda: (NOW_MS + began_after_ms) * 1_000_000)
    planner.stop_at_latest()
    planner._earlier.looked_ms = NOW_MS + HOUR_MS
    end = planner.plan_next(offset())
    assert (end.clock_us == {0: (NOW_MS + began_after_ms) * 1000}) is is_due
    assert (end == offset()) is not is_due


def test_what_a_look_finds_unread_is_not_passed_over(planner):
    """A batch took long, and the earlier event has come meanwhile."""
    planner._earlier.looked_ms = NOW_MS + HOUR_MS
    planner._earlier.found = {0: 11}
    assert planner.plan_next(offset()) == offset()


def test_clocks_of_another_position_say_nothing(planner):
    """As of a checkpoint that was restored: they are ahead of what is read again."""
    older = SourceOffset("views", "id", {0: 4}, NOW_MS, event_us={0: 7 * SECOND})
    planner._earlier.found = planner._earlier.latest = {0: 4}
    start = replace(offset(), earlier=older)
    planner._earlier.looked_ms = NOW_MS + HOUR_MS
    planner._later.taken = {0: 11}
    end = planner.plan_next(start)
    assert end.clock_us[0] == 7 * SECOND + HOUR_MS * 1000


@pytest.mark.parametrize(("start", "begins_at"), [(Start.EARLIEST, 0), (Start.LATEST, 500)])
def test_a_partition_that_one_topic_has_waits_where_it_began(tmp_path, start, begins_at):
    """Until the other topic has it, too; else its state would be looked for, and not be there."""
    cluster, planner = planned_topics(tmp_path, {"clicks": 3, "views": 2}, 500, start)
    initial = planner.initial_offset()
    cluster.append("views", 0, event(1))
    end = planner.plan_next(initial)
    assert (end.later.partitions[2], end.earlier.partitions[0]) == (begins_at, 1)
    assert [work.partition for work in planner.tasks(initial, end)] == [0]
    cluster.add_partitions("views", 3)
    cluster.append("clicks", 2, event(501))
    known = planner.plan_next(end)
    read = planner.plan_next(known)
    (work,) = planner.tasks(known, read)
    assert [(each.range.start, each.range.end) for each in work.ranges] == [(begins_at, 501)]
    assert work.start == work.initial


@pytest.mark.parametrize("partitions", [{"clicks": 3, "views": 2}, {"clicks": 2, "views": 3}])
def test_a_partition_that_waits_for_its_counterpart_ends_the_wait_of_no_other(tmp_path, partitions):
    limits = BatchLimits(max_wait=timedelta(hours=1))
    cluster, planner = planned_topics(tmp_path, partitions, 5, Start.EARLIEST, limits=limits)
    initial = planner.initial_offset()
    cluster.append("views", 0, event(1))
    for _ in range(3):
        assert planner.plan_next(initial) == initial


def planned_topics(tmp_path, partitions, records, start, **changes):
    """Returns topics, and the planner of their join; ``records`` are in partition 2 of one."""
    cluster = MemoryCluster()
    for topic, count in partitions.items():
        cluster.create(topic, count)
        for n in range(records if count == 3 else 0):
            cluster.append(topic, 2, event(n))
    later, earlier = (
        spec(cluster, topic, tmp_path, start=start, **{"limits": NO_WAIT} | changes)
        for topic in ("clicks", "views")
    )
    return cluster, JoinPlanner(later, earlier, JoinWindow(3600 * SECOND, 60 * SECOND))


def test_a_topic_does_not_wait_for_one_that_the_run_has_read_to_its_target(planner):
    """Else the run would end short of its own target."""
    clocks = {"clicks": {0: EventClock((NOW_MS + 60_000) * 1000)}}
    clocks["views"] = {0: EventClock(NOW_MS * 1000)}
    ends = {topic: {0: 10} for topic in clocks}
    planner._state.write_feedback("lake/p/1", 0, Feedback(clocks=clocks), ends)
    planner._earlier.latest = planner._earlier.found = {0: 99}
    planner.plan_next(offset())
    assert planner._later.held == {0}
    planner._earlier.target = {0: 10}
    planner.plan_next(offset())
    assert not planner._later.held


@pytest.mark.parametrize("waiting", ["_later", "_earlier"])
def test_where_one_topic_is_read_the_other_waits_for_no_more_records(planner, waiting):
    """Else the batches of live topics would take turns."""
    planner._later.taken, planner._earlier.taken = {0: 11}, {0: 12}
    getattr(planner, waiting).waits = True
    end = planner.plan_next(offset())
    assert (end.later.partitions, end.earlier.partitions) == ({0: 11}, {0: 12})


def test_a_batch_waits_while_both_topics_do(planner):
    for topic in (planner._later, planner._earlier):
        topic.taken, topic.waits = {0: 11}, True
    assert planner.plan_next(offset()) == offset()
