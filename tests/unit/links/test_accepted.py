"""Which ranges that were left out still mean what they meant."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import SinkError
from headrace.links.accepted import AcceptedFolder, AcceptedRange, in_force
from headrace.model import TopicPartition

CLICKS = TopicPartition("clicks", 0)
NOW = datetime(2026, 11, 24, tzinfo=UTC)
GAP = AcceptedRange("clicks", "s1", "t1", 0, 5, 9, NOW, "they were deleted")
RESTART = replace(GAP, start=20, end=7, accepted=NOW + timedelta(1), target_end=30)
LATER = replace(GAP, start=11, end=12, accepted=NOW + timedelta(2))


def kept(ranges, topic_id="s1", target_id="t1"):
    return in_force(ranges, {CLICKS: topic_id}, {0: target_id})


def test_ranges_of_a_topic_that_was_made_again_mean_nothing():
    assert kept([GAP]) == [GAP]
    assert kept([GAP], topic_id="s2") == kept([GAP], target_id="t2") == []
    assert in_force([GAP], {}, {}) == []


def test_where_offsets_are_used_again_earlier_ranges_mean_nothing():
    assert kept([GAP, RESTART]) == [RESTART]
    assert kept([GAP, RESTART, LATER]) == [RESTART, LATER]
    assert (GAP.offsets, RESTART.offsets, LATER.offsets) == (4, None, 1)


def test_ranges_of_all_partitions_are_told_the_oldest_first():
    other = replace(GAP, partition=1, accepted=NOW - timedelta(1))
    ids = {CLICKS: "s1", TopicPartition("clicks", 1): "s1"}
    assert in_force([other, GAP], ids, {0: "t1", 1: "t1"}) == [other, GAP]
    assert in_force([GAP, replace(other, accepted=NOW)], ids, {0: "t1", 1: "t1"})[0] == GAP


def test_a_folder_gives_what_was_written_and_names_a_file_that_is_damaged(tmp_path):
    folder = AcceptedFolder(str(tmp_path), "headrace.mirror.waw")
    assert folder.read() == []
    folder.write(LATER)
    folder.write(GAP)
    folder.write(GAP)
    assert folder.read() == [GAP, LATER]
    [path, _] = sorted((tmp_path / "_headrace" / "links" / "headrace.mirror.waw").iterdir())
    path.write_text("{")
    with pytest.raises(SinkError) as raised:
        folder.read()
    assert path.name in str(raised.value)
