"""Batches with the same offsets are told apart by their ids: Spark ends windows in such ones."""

from dataclasses import replace

import pytest

from headrace.errors import CheckpointBehindTableError, TableBehindCheckpointError
from headrace.model import TopicPartition
from headrace.pipelines.batch.positions import CheckpointIds, TablePositions
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.start.checkpoint import PlannedBatch
from headrace.sinks.api import RestoredTarget

IDS = CheckpointIds("p", 3)


class Table:
    """What a table records, and how often it was asked."""

    def __init__(self, **recorded):
        self.recorded = {"headrace.p": 3} | recorded
        self.asked = 0
        self.before = None

    def restored(self, writer):
        assert writer == {"pipeline": "p"}
        return None if self.before is None else RestoredTarget(Table(**self.before), self)

    def versions(self, app_ids):
        self.asked += 1
        return {name: self.recorded[name] for name in app_ids if name in self.recorded}

    def take(self, transaction):
        for name, expected in transaction.expected.items():
            assert self.recorded.get(name) == expected
        self.recorded |= transaction.versions


def offset(*partitions, topic_id="id"):
    return {"t": SourceOffset("t", topic_id, dict(enumerate(partitions)), planned_ms=1)}


def planned(batch_id, starts, ends, initial=(0, 0)):
    return PlannedBatch(batch_id, offset(*initial), offset(*starts), offset(*ends))


@pytest.fixture
def table():
    """Batch 4 of checkpoint 3 has ended at (10, 5)."""
    table = Table()
    table.take(TablePositions(IDS, table).transaction(planned(4, (0, 0), (10, 5))))
    return table


def test_the_first_transaction_of_a_checkpoint_records_every_partition(table):
    assert table.recorded == {
        "headrace.p": 3,
        "headrace.p/3": 4,
        "headrace.p/3/t/id/0": 10,
        "headrace.p/3/t/id/1": 5,
    }


def test_later_ones_record_what_moved(table):
    positions = TablePositions(IDS, table)
    transaction = positions.transaction(planned(5, (10, 5), (10, 9)))
    assert transaction.versions == {
        "headrace.p": 3,
        "headrace.p/3": 5,
        "headrace.p/3/t/id/1": 9,
    }
    assert transaction.metadata["offsets"] == {"t[1]": [5, 9]}


def test_of_a_sink_that_deletes_it_is_recorded_when_all_had_been_read(table):
    batch = planned(5, (10, 5), (10, 9))
    ends = {"t": replace(batch.ends["t"], caught_up_ms=7)}
    versions = TablePositions(IDS, table).transaction(replace(batch, ends=ends)).versions
    assert versions[IDS.caught_up] == 7


def test_a_checkpoint_begins_elsewhere_with_its_first_transaction_unless_at_the_table(table):
    new, batch = CheckpointIds("p", 4), planned(0, (0, 0), (10, 5))
    nothing = Table()
    nothing.recorded.clear()
    assert TablePositions(IDS, nothing).transaction(batch).begins_elsewhere
    assert not TablePositions(IDS, table).transaction(batch).begins_elsewhere
    assert TablePositions(new, table).transaction(batch).begins_elsewhere
    from_table = TablePositions(new, table, {IDS.newest: 3, IDS.batch: 4})
    assert not from_table.transaction(batch).begins_elsewhere
    # It takes back until when the table was complete, unless it says that itself.
    assert TablePositions(new, table).transaction(batch).metadata["complete_until"] is None
    assert "complete_until" not in from_table.transaction(batch).metadata


def test_the_table_is_asked_once_a_run(table):
    positions, table.asked = TablePositions(IDS, table), 0
    for number in range(5, 9):
        batch = planned(number, (10 * (number - 4), 5), (10 * (number - 3), 5))
        assert not positions.holds(batch)
        table.take(positions.transaction(batch))
        positions.ended(batch)
    assert table.asked == 1


def test_a_batch_that_reads_nothing_runs_once(table):
    ends_windows = planned(5, (10, 5), (10, 5))
    positions = TablePositions(IDS, table)
    assert not positions.holds(ends_windows)
    table.take(positions.transaction(ends_windows))
    assert TablePositions(IDS, table).holds(ends_windows)


def test_an_older_checkpoint_is_seen_also_when_only_such_batches_are_newer(table):
    table.recorded["headrace.p/3"] = 5
    with pytest.raises(CheckpointBehindTableError, match="at batch 5, the table has its batch 5"):
        TablePositions(IDS, table).holds(planned(5, (10, 5), (20, 5)))


def test_ids_may_have_gaps_where_batches_changed_nothing(table):
    assert not TablePositions(IDS, table).holds(planned(9, (10, 5), (11, 5)))


def test_a_partition_that_is_new_begins_where_the_plan_places_it(table):
    positions = TablePositions(IDS, table)
    placed = planned(5, (10, 5), (10, 5, 0))
    assert not positions.holds(placed)
    table.take(positions.transaction(placed))
    assert table.recorded["headrace.p/3/t/id/2"] == 0
    assert not TablePositions(IDS, table).holds(planned(6, (10, 5, 0), (10, 5, 7)))


def test_a_partition_that_the_table_knows_and_the_checkpoint_does_not(table):
    table.recorded["headrace.p/3/t/id/2"] = 7
    with pytest.raises(CheckpointBehindTableError, match=r"t\[2\]"):
        TablePositions(IDS, table).holds(planned(5, (10, 5), (10, 5, 0)))


@pytest.mark.parametrize(
    ("starts", "error"),
    [
        ((8, 5), CheckpointBehindTableError),
        ((12, 5), TableBehindCheckpointError),
        ((10, 0), CheckpointBehindTableError),
    ],
)
def test_any_other_place_is_refused(table, starts, error):
    with pytest.raises(error):
        TablePositions(IDS, table).holds(planned(5, starts, (20, 20)))


def test_a_rollback_between_the_checks_of_the_start_and_the_first_batch_is_refused(table):
    table.before = {"headrace.p/3": 3}
    with pytest.raises(TableBehindCheckpointError, match="during the start"):
        TablePositions(IDS, table).holds(planned(5, (10, 5), (20, 20)))


def test_a_rollback_that_took_no_rows_of_the_checkpoint_is_not_refused(table):
    table.before = dict(table.recorded)
    assert not TablePositions(IDS, table).holds(planned(5, (10, 5), (20, 20)))


def test_offsets_of_a_topic_that_was_made_again_mean_nothing(table):
    batch = PlannedBatch(
        5,
        offset(0, 0, topic_id="new"),
        offset(10, 5, topic_id="new"),
        offset(11, 5, topic_id="new"),
    )
    with pytest.raises(TableBehindCheckpointError):
        TablePositions(IDS, table).holds(batch)


def test_a_new_checkpoint_may_begin_anywhere(table):
    following = CheckpointIds("p", 4)
    batch = planned(0, (2, 2), (9, 9), initial=(2, 2))
    positions = TablePositions(following, table)
    assert not positions.holds(batch)
    table.take(positions.transaction(batch))
    assert table.recorded["headrace.p"] == 4
    with pytest.raises(CheckpointBehindTableError, match="rows of checkpoint 4"):
        TablePositions(IDS, table).holds(planned(5, (10, 5), (11, 5)))


def test_a_position_is_found_by_partition(table):
    recorded = IDS.recorded(table, offset(0, 0, 0))
    assert recorded.positions == {TopicPartition("t", 0): 10, TopicPartition("t", 1): 5}
