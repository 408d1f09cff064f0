"""Late events on the real broker and Spark: kept, dead letters, and a side table."""

import uuid
from collections import Counter
from datetime import timedelta

import pytest
from tests.integration.flow import NOW_MS, Flow, click
from tests.integration.test_ledger import balance, side_differences, totals
from tests.integration.test_sinks import records

from headrace import Kafka, Lake, LateData, Metadata, Source, Topic
from headrace.errors import SinkUnavailableError
from headrace.kafka.dead_letters.replay import DeadLetterFilter, replay
from headrace.ledger.sums import Fate
from headrace.service.status import State
from headrace.sinks.lake.driver import LakeDriver

PATHS = ("fused", "stepped")
HOUR_MS = 3_600_000


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=1, event_id="event_id")


def built(flow, path, **changes):
    made = getattr(flow, "pipeline" if path == "fused" else path)
    return made(path, sink=Lake(path, partition_by=("day",)), **changes)


def late(n):
    return click(n, event_time=NOW_MS - 5 * HOUR_MS)


def run(flow, pipeline):
    outcome = flow.run(pipeline)[pipeline.name]
    assert outcome.state is State.FINISHED, outcome.reason
    return outcome


def ids(*numbers):
    return {f"e{n}": 1 for n in numbers}


def test_late_events_are_dead_letters_and_a_replay_brings_them_into_the_table(flow):
    pipeline = built(flow, "fused", late_data=LateData.DEAD_LETTER)
    flow.send([late(0), *map(click, range(1, 5))])
    assert run(flow, pipeline).late_rows == 0
    flow.send([*map(late, range(5, 15)), click(15)])
    outcome = run(flow, pipeline)
    assert (outcome.late_rows, outcome.late_dead_letters, outcome.dead_letters) == (10, 10, 10)
    assert flow.ids() == ids(*range(5), 15)
    assert Counter(stored.letter.reason for stored in flow.dead()) == {"late-event": 10}
    replay(flow.client, flow.name, DeadLetterFilter())
    outcome = run(flow, pipeline)
    assert (outcome.late_rows, outcome.dead_letters) == (10, 0)
    assert flow.ids() == ids(*range(16))


@pytest.mark.parametrize("path", PATHS)
def test_a_crash_between_the_two_commits_adds_nothing_to_either_table(flow, path, monkeypatch):
    """The ledger does not count the batch while it is in the side table alone."""
    side = Lake("late", partition_by=("day",))
    source = Source(flow.topic, metadata=(Metadata.OFFSET,))
    pipeline = built(flow, path, source=source, late_data=side)
    flow.send(map(click, range(20)))
    run(flow, pipeline)
    flow.send([*map(late, range(20, 25)), *map(click, range(25, 30))])
    commit, crashed = LakeDriver.commit, []

    def crashing(self, pieces, *rest):
        if self.positions.uri.endswith(f"/{path}") and not crashed:
            crashed.append(flow.ids("late"))
            between = balance(flow, pipeline)
            crashed.append((side_differences(between), totals(between)))
            raise SinkUnavailableError("table", "the driver was killed here")
        return commit(self, pieces, *rest)

    monkeypatch.setattr(LakeDriver, "commit", crashing)
    outcome = run(flow, pipeline)
    unfinished = ([], {"read": 20, Fate.OUT: 20})
    assert (outcome.restarts, crashed) == (1, [ids(*range(20, 25)), unfinished])
    assert outcome.late_side_rows == 5
    assert flow.ids("late") == ids(*range(20, 25))
    assert flow.ids(path) == ids(*range(20), *range(25, 30))
    assert {"event_id", "_offset", "day"} < set(flow.rows("late")[0])
    flow.forget_newest_commit(path)
    run(flow, pipeline)
    assert flow.ids("late") == ids(*range(20, 25))
    assert flow.ids(path) == ids(*range(20), *range(25, 30))
    result = balance(flow, pipeline)
    assert (side_differences(result), result.breaks) == ([], ())
    assert totals(result) == {"read": 30, Fate.OUT: 25, Fate.LATE: 5}
    assert sum(window.side_rows for window in result.windows) == 5


def test_steps_that_do_not_read_their_input_lose_no_late_events(flow):
    pipeline = flow.pipeline(
        "none", sink=Lake("none"), steps=[lambda rows: rows.where("false")], late_data=Lake("late")
    )
    flow.send(map(click, range(10)))
    run(flow, pipeline)
    flow.send(map(late, range(10, 15)))
    assert run(flow, pipeline).late_side_rows == 5
    assert flow.ids("late") == ids(*range(10, 15))


def test_a_restart_goes_on_with_the_event_clocks_of_its_checkpoint(flow):
    pipeline = built(flow, "fused", late_data=Lake("late"), allowed_lateness=timedelta(minutes=10))
    flow.send(map(click, range(10)))
    run(flow, pipeline)
    flow.send([click(10)])
    run(flow, pipeline)
    (flow.folder / ".headrace" / "state" / "fused" / "feedback.json").unlink()
    flow.send([late(11)])
    assert run(flow, pipeline).late_side_rows == 1
    assert flow.ids("late") == ids(11)


def test_a_topic_takes_late_events_with_their_origin(flow):
    target = Topic(f"late-{uuid.uuid4().hex[:8]}", event=flow.topic.event, event_id="event_id")
    flow.create(target.name, 1)
    pipeline = flow.stepped(sink=Lake("stepped"), late_data=Kafka(target))
    flow.send(map(click, range(10)))
    run(flow, pipeline)
    flow.send([late(10)])
    assert run(flow, pipeline).late_side_rows == 1
    [record] = records(flow.client, target.name)
    assert dict(record.headers())["origin"].decode().startswith(f"{flow.name}/")
