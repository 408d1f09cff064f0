import json

import pytest

from headrace.errors import SinkError
from headrace.model import OffsetRange, Start, TopicPartition
from headrace.pipelines.checkpoint import Checkpoint, CheckpointFolder
from headrace.pipelines.source.offsets import SourceOffset


def line(topic, **partitions):
    positions = {int(p[1:]): at for p, at in partitions.items()}
    return json.dumps(SourceOffset(topic, "id", positions, planned_ms=1).to_json())


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "headrace").mkdir()
    (tmp_path / "headrace" / "initial-a.json").write_text(line("a", p0=3))
    (tmp_path / "headrace" / "initial-b.json").write_text(line("b", p0=0))
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{line('a', p0=10)}\n-")
    (tmp_path / "offsets" / "1").write_text(
        f"v1\n{{}}\n{line('a', p0=12, p1=4)}\n{line('b', p0=2)}"
    )
    return Checkpoint(str(tmp_path))


def test_the_first_batch_begins_at_the_first_position(checkpoint):
    assert checkpoint.batch(0).ranges == [OffsetRange(TopicPartition("a", 0), 3, 10)]


def test_a_later_batch_begins_where_the_one_before_ended(checkpoint):
    assert checkpoint.batch(1).ranges == [
        OffsetRange(TopicPartition("a", 0), 10, 12),
        OffsetRange(TopicPartition("b", 0), 0, 2),
    ]


def test_positions_are_the_next_records_to_read(checkpoint):
    assert checkpoint.batch(1).positions == {
        TopicPartition("a", 0): 12,
        TopicPartition("a", 1): 4,
        TopicPartition("b", 0): 2,
    }


def test_a_torn_offset_file_is_named(checkpoint, tmp_path):
    (tmp_path / "offsets" / "2").write_text("")
    with pytest.raises(SinkError, match="offsets/2"):
        checkpoint.batch(2)


def test_a_reset_begins_the_next_number_and_keeps_the_old_folder(tmp_path):
    folder = CheckpointFolder(str(tmp_path), "p")
    assert folder.current() is None
    assert folder.reset(Start.COMMITTED).number == 1
    second = folder.reset(Start.EARLIEST)
    assert (second.number, second.start, second.begun) == (2, "earliest", False)
    assert folder.current() == second
    assert folder.checkpoint(second).uri.endswith("/checkpoints/p/2")
