"""What only a cluster in memory can show of planning: cuts, outages, and who is asked how often."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from tests.contracts.source import changed, drained, event, read, spec
from tests.waiting import wait_for

from headrace.errors import BrokerUnreachableError, TopicTruncatedError
from headrace.model import BatchLimits, Start
from headrace.pipelines.source.planning import planner, position_check
from headrace.pipelines.source.planning.feedback import Feedback, RecordSizes
from headrace.pipelines.source.planning.planner import Planner
from headrace.pipelines.source.state import SourceState, SourceView
from headrace.testing import MemoryCluster

AT_ONCE = BatchLimits(max_wait=timedelta(0))


@dataclass
class Watched(MemoryCluster):
    """Counts what it is asked, and can be away."""

    away: bool = False
    asked: Counter[str] = field(default_factory=Counter)

    def live(self, topic, *, with_earliest=True):
        self.asked["earliest" if with_earliest else "latest"] += 1
        if self.away:
            raise BrokerUnreachableError("b:9092", "timed out")
        return super().live(topic, with_earliest=with_earliest)


@pytest.fixture
def cluster():
    found = Watched()
    found.create("t")
    return found


@pytest.fixture
def source(cluster, tmp_path):
    return spec(cluster, "t", tmp_path, limits=AT_ONCE)


def fill(cluster, count):
    for n in range(count):
        cluster.append("t", 0, event(n))


def test_a_log_that_was_cut_and_grew_again_is_refused(cluster, source):
    fill(cluster, 100)
    end = drained(Planner(source), Planner(source).initial_offset())
    cluster.truncate("t", 0, 90)
    fill(cluster, 30)
    with pytest.raises(TopicTruncatedError, match="checkpoint offset 100, cut offset 90") as raised:
        Planner(source).plan_next(end)
    assert "--to committed" in raised.value.remedy


def test_a_run_with_a_target_refuses_a_log_that_was_cut(cluster, source):
    fill(cluster, 100)
    end = drained(Planner(source), Planner(source).initial_offset())
    cluster.truncate("t", 0, 90)
    with pytest.raises(TopicTruncatedError):
        drained(Planner(source), end)


def test_another_leader_with_the_whole_log_is_asked_once_for_a_position(cluster, source):
    fill(cluster, 10)
    end = drained(Planner(source), Planner(source).initial_offset())
    cluster.truncate("t", 0, 10)
    found = Planner(source)
    assert found.plan_next(end) == end
    fill(cluster, 5)
    after = found.plan_next(end)
    assert (after.partitions, after.epochs) == ({0: 15}, {0: 1})


def test_a_short_log_of_one_leader_is_waited_for_then_refused(cluster, source, monkeypatch):
    fill(cluster, 10)
    end = drained(Planner(source), Planner(source).initial_offset())
    behind = replace(end, partitions={0: 20})
    found = Planner(source)
    assert found.plan_next(behind) == behind
    monkeypatch.setattr(position_check, "TRUNCATION_GRACE_SECONDS", -1.0)
    with pytest.raises(TopicTruncatedError):
        found.plan_next(behind)


def test_committed_offsets_begin_at_the_cut(cluster, source):
    fill(cluster, 100)
    cluster.commit(source.planning.consumer_group, "t", {0: 100})
    cluster.truncate("t", 0, 90)
    fill(cluster, 30)
    found = changed(source, start=Start.COMMITTED)
    start = Planner(found).initial_offset()
    rows = read(found, start, drained(Planner(found), start))
    assert (start.partitions, len(rows)) == ({0: 90}, 30)


def test_a_planned_batch_of_a_log_that_was_cut_is_not_read(cluster, source):
    fill(cluster, 100)
    start = Planner(source).initial_offset()
    end = drained(Planner(source), start)
    cluster.truncate("t", 0, 90)
    fill(cluster, 30)
    (task,) = Planner(source).tasks(start, end)
    assert isinstance(task.refusal, TopicTruncatedError)


def test_a_range_knows_with_how_many_it_shares_the_drivers_memory(cluster, source):
    fill(cluster, 100)
    planner = Planner(changed(source, min_tasks=4))
    start = planner.initial_offset()
    tasks = planner.tasks(start, drained(planner, start))
    assert (len(tasks) > 1, {task.range_count for task in tasks}) == (True, {len(tasks)})


def test_the_backlog_is_known_from_the_first_look_on(cluster, source):
    fill(cluster, 100)
    found = Planner(source)
    found.plan_next(found.initial_offset())
    view = SourceState(source.files.state).view("t")
    assert (view.latest, view.positions) == ({0: 100}, {0: 0})


def test_the_backlog_is_known_while_a_planned_batch_is_repeated(cluster, source):
    fill(cluster, 60)
    first = Planner(source)
    start = first.initial_offset()
    end = drained(first, start)
    fill(cluster, 40)
    SourceState(source.files.state).forget_view("t")
    Planner(source).tasks(start, end)
    view = SourceState(source.files.state).view("t")
    assert (view.latest, view.positions) == ({0: 100}, {0: 0})


def test_an_outage_is_waited_for(cluster, source):
    start = Planner(source).initial_offset()
    cluster.away = True
    assert Planner(source).plan_next(start) == start
    view = SourceState(source.files.state).view("t")
    assert "timed out" in view.unreachable


def test_a_broker_that_is_slow_is_no_idle_topic(cluster, source, monkeypatch):
    found, state = Planner(source), SourceState(source.files.state)
    start = found.initial_offset()
    found.plan_next(start)
    monkeypatch.setattr(planner, "SLOW_AFTER_SECONDS", 0.0)
    seen, live = [], cluster.live

    def slow(*args, **options):
        wait_for(lambda: state.view("t").unreachable)
        seen.append(state.view("t"))
        return live(*args, **options)

    monkeypatch.setattr(cluster, "live", slow)
    fill(cluster, 10)
    Planner(source).plan_next(start)
    assert seen == [SourceView(unreachable="no response of the broker for 0 s")]
    assert state.view("t").latest == {0: 10}


def test_a_run_with_a_target_never_takes_an_outage_for_its_end(cluster, source):
    fill(cluster, 3_000)
    found = Planner(source)
    start = found.initial_offset()
    found.stop_at_latest()
    first = found.plan_next(start)
    cluster.away = True
    with pytest.raises(BrokerUnreachableError):
        found.plan_next(first)


def test_a_target_that_is_not_there_any_more_is_said(cluster, source, monkeypatch):
    fill(cluster, 10)
    found = Planner(source)
    start = found.initial_offset()
    found.stop_at_latest()
    cluster.truncate("t", 0, 8)
    end = found.plan_next(start)
    assert end.partitions == {0: 8}
    monkeypatch.setattr(planner, "TARGET_GRACE_SECONDS", -1.0)
    with pytest.raises(BrokerUnreachableError, match=r"ended at 10 before, and ends at 8 now"):
        found.plan_next(end)


def test_a_run_with_a_target_does_not_end_on_a_log_that_ends_before_the_checkpoint(
    cluster, source, monkeypatch
):
    fill(cluster, 10)
    end = drained(Planner(source), Planner(source).initial_offset())
    found = Planner(source)
    found.stop_at_latest()
    monkeypatch.setattr(position_check, "TRUNCATION_GRACE_SECONDS", 0.1)
    with pytest.raises(TopicTruncatedError):
        found.plan_next(replace(end, partitions={0: 20}))


def test_a_paused_partition_is_no_target(cluster, source):
    fill(cluster, 10)
    found = Planner(source)
    start = found.initial_offset()
    SourceState(source.files.state).pause("t", frozenset({0}))
    found.stop_at_latest()
    assert found.plan_next(start) == start


def test_only_partitions_that_an_operator_paused_are_shown_as_paused(cluster, source):
    fill(cluster, 5)
    planner, state = Planner(source), SourceState(source.files.state)
    planner.held = frozenset({0})
    start = planner.initial_offset()
    assert planner.plan_next(start) == start
    assert state.view(source.topic).paused == ()


def test_an_idle_source_is_looked_at_less_often_and_its_earliest_offsets_rarely(cluster, source):
    found = Planner(changed(source, limits=BatchLimits(max_wait=timedelta(hours=1))))
    start = found.initial_offset()
    cluster.asked.clear()
    for _ in range(50):
        assert found.plan_next(start) == start
    assert cluster.asked == {"earliest": 1}


def test_a_batch_waits_for_more_unless_it_is_to_be_planned_at_once(cluster, source):
    found = Planner(changed(source, limits=BatchLimits(max_wait=timedelta(hours=1))))
    start = found.initial_offset()
    fill(cluster, 3)
    assert found.plan_next(start) == start
    assert found.plan_next(start, at_once=True).partitions == {0: 3}


def test_a_backlog_is_never_waited_for(cluster, source):
    found = Planner(source)
    start = found.initial_offset()
    cluster.asked.clear()
    for _ in range(20):
        fill(cluster, 1)
        start = found.plan_next(start)
    assert start.partitions == {0: 20}
    assert cluster.asked == {"earliest": 1, "latest": 19}


def test_the_first_batch_is_small_until_the_size_of_records_is_known(cluster, source):
    fill(cluster, 12_000)
    found = Planner(source)
    first = found.plan_next(found.initial_offset())
    assert first.partitions == {0: 10_737}
    state = SourceState(source.files.state)
    sizes = RecordSizes().after(10_737 * 1_000_000, 10_737)
    state.write_feedback(source.files.checkpoint, 0, Feedback({"t": {0: sizes}}), {})
    assert found.plan_next(first).partitions == {0: 10_737 + 536}
