"""The commits of the side table of late events, and crashes between the two commits."""

from collections import Counter

import pyarrow as pa
import pytest

from headrace import Lake
from headrace.errors import CheckpointBehindTableError
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.late_data.side_table import SideTable
from headrace.pipelines.start.checkpoint import PlannedBatch
from headrace.sinks.api import SinkContext
from headrace.sinks.lake.delta.table import read_table

ROWS = pa.schema([("n", pa.int64())])


def planned(batch_id):
    return PlannedBatch(batch_id, {}, {}, {})


def reject_none(rows):
    """The lake's commit rejects no row."""
    raise AssertionError(rows)


class Late:
    """A side table in a lake, opened as at a start of the driver."""

    def __init__(self, folder, number=1):
        self.uri = f"{folder}/late"
        self.driver = Lake("late").open(SinkContext("clicks", str(folder), {}), ROWS)
        self.table = SideTable(CheckpointIds("clicks", number), self.driver)

    def pieces(self, *numbers):
        writer = self.driver.writers("task")
        writer.write(pa.table([list(numbers)], schema=ROWS))
        return list(writer.close())

    def commit(self, batch_id, *numbers):
        return self.table.commit(self.pieces(*numbers), planned(batch_id), 0, reject_none)

    def rows(self):
        return Counter(read_table(self.uri)["n"].to_pylist())


def test_a_batch_that_is_repeated_after_a_crash_between_the_commits_adds_nothing(tmp_path):
    assert Late(tmp_path).commit(4, 1, 2).rows == 2
    after = Late(tmp_path)
    assert not after.commit(4, 1, 2).is_new
    assert after.commit(6, 3).rows == 1
    assert after.rows() == {1: 1, 2: 1, 3: 1}


def test_a_batch_without_late_events_makes_no_transaction(tmp_path):
    late = Late(tmp_path)
    late.table.commit([], planned(0), 0, reject_none)
    late.commit(1, 7)
    late.table.commit([], planned(2), 0, reject_none)
    assert late.driver.positions.versions(["headrace.clicks/1"]) == {"headrace.clicks/1": 1}


def test_a_new_checkpoint_goes_on_with_the_table(tmp_path):
    Late(tmp_path).commit(4, 1)
    late = Late(tmp_path, number=2)
    late.commit(0, 2)
    assert late.rows() == {1: 1, 2: 1}


@pytest.mark.parametrize(("number", "batch_id"), [(1, 3), (0, 9)])
def test_a_checkpoint_from_a_backup_is_refused(tmp_path, number, batch_id):
    Late(tmp_path).commit(4, 1)
    late = Late(tmp_path, number=number)
    with pytest.raises(CheckpointBehindTableError):
        late.commit(batch_id, 2)


def test_what_is_discarded_is_removed(tmp_path):
    late = Late(tmp_path)
    late.commit(0, 1)
    late.table.discard(late.pieces(2))
    assert late.rows() == {1: 1}
