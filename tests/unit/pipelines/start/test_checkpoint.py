import json

import pytest

from headrace.errors import SinkError
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.start.checkpoint import Checkpoint, CheckpointFolder, CurrentCheckpoint


def line(topic, **partitions):
    positions = {int(p[1:]): at for p, at in partitions.items()}
    return json.dumps(SourceOffset(topic, "id", positions, planned_ms=1).to_json())


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "headrace").mkdir()
    (tmp_path / "headrace" / "initial-a.json").write_text(line("a", p0=3))
    (tmp_path / "headrace" / "initial-b.json").write_text(line("b", p0=0))
    marks = [json.dumps({"batchWatermarkMs": at}) for at in (5, 7)]
    (tmp_path / "offsets" / "0").write_text(f"v1\n{marks[0]}\n{line('a', p0=10)}\n-")
    (tmp_path / "offsets" / "1").write_text(
        f"v1\n{marks[1]}\n{line('a', p0=12, p1=4)}\n{line('b', p0=2)}"
    )
    return Checkpoint(str(tmp_path), 1)


def test_the_first_batch_begins_at_the_first_position(checkpoint):
    assert checkpoint.batch(0).ranges == [OffsetRange(TopicPartition("a", 0), 3, 10)]


def test_a_later_batch_begins_where_the_one_before_ended(checkpoint):
    assert checkpoint.batch(1).ranges == [
        OffsetRange(TopicPartition("a", 0), 10, 12),
        OffsetRange(TopicPartition("b", 0), 0, 2),
    ]


def test_rows_are_held_against_the_watermark_of_the_batch_before(checkpoint):
    assert [checkpoint.batch(n).watermark_ms for n in range(2)] == [0, 5]


def test_rows_of_the_only_operator_are_held_against_the_watermark_of_their_batch(
    checkpoint, tmp_path
):
    conf = {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}
    log = json.dumps({"batchWatermarkMs": 9, "conf": conf})
    (tmp_path / "offsets" / "2").write_text(f"v1\n{log}\n{line('a', p0=12)}\n-")
    assert checkpoint.batch(2).watermark_ms == 9


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


def test_a_file_that_is_gone_is_named(checkpoint):
    with pytest.raises(SinkError, match=r"offsets/7.*is missing"):
        checkpoint.batch(7)


def test_only_a_batch_that_spark_has_ended_is_done(checkpoint, tmp_path):
    assert checkpoint.last_planned() == (checkpoint.batch(1), False)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    assert checkpoint.last_planned() == (checkpoint.batch(1), False)
    (tmp_path / "commits" / "1").touch()
    assert checkpoint.last_planned() == (checkpoint.batch(1), True)


def test_a_number_is_never_used_twice(tmp_path):
    folder = CheckpointFolder(str(tmp_path), "p")
    assert folder.following(0) == 1
    folder.write(CurrentCheckpoint(3, "", begun=True))
    assert folder.following(0) == 4
    assert folder.following(8) == 9
    (tmp_path / "_headrace" / "checkpoints" / "p" / "4").mkdir()
    assert folder.following(0) == 5
