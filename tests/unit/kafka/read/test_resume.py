"""Positions as they are committed, and whether a reader may continue from one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.read import resume
from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.read.resume import (
    Continue,
    Gap,
    LogState,
    Loss,
    NoLeader,
    NoPartition,
    Position,
    Recreated,
    Truncated,
    log_states,
    verdict,
    with_cuts,
)
from headrace.model import TopicPartition

CLICKS = TopicPartition("clicks", 0)
OFFSETS, EPOCHS = st.integers(0, 1 << 62), st.integers(-1, (1 << 31) - 1)
TOPIC_IDS = st.from_regex(r"[A-Za-z0-9_-]{0,22}", fullmatch=True)


def committed(offset, metadata):
    return confluent_kafka.TopicPartition("clicks", 0, offset, metadata)


@given(OFFSETS, TOPIC_IDS, st.integers(-1, 1 << 62), EPOCHS)
def test_a_position_is_read_as_it_was_committed(offset, topic_id, read_to, epoch):
    position = Position(offset, topic_id, read_to, epoch)
    read = Position.of(committed(offset, position.metadata))
    assert read == replace(position, is_committed=True)


@given(OFFSETS, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_beside_an_offset_can_be_read(offset, metadata):
    position = Position.of(committed(offset, metadata))
    assert position.offset == offset
    assert position.topic_id == metadata.split(" ")[0]


@pytest.mark.parametrize("metadata", ["id", "id 6", "id x 3", "id 6 3 a b", "id x 3 a", "id -1 -1"])
def test_a_topic_id_is_read_without_the_numbers_after_it(metadata):
    position = Position(8, "id", is_committed=True)
    assert Position.of(committed(8, metadata)) == position


@dataclass
class Log:
    """A log as brokers have it: epochs and values by offset, from the first offset on."""

    topic_id: int = 0
    epoch: int = 0
    first: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    written: int = 0

    def append(self, count):
        for _ in range(count):
            self.records.append((self.epoch, self.written))
            self.written += 1

    def elect(self, lost):
        """Another leader lacks so many of the last records."""
        self.epoch += 1
        kept = max(len(self.records) - lost, self.first)
        del self.records[kept:]

    def delete(self, count):
        self.first = min(self.first + count, len(self.records))

    def recreate(self, count):
        self.topic_id += 1
        self.first, self.records = 0, []
        self.append(count)

    def values(self):
        return [value for _, value in self.records]

    def state_for(self, position):
        """What brokers answer to a reader that asks for its position."""
        state = LogState(str(self.topic_id), self.first, len(self.records), self.epoch)
        (read_to, epoch) = position.seen
        is_asked = position.topic_id == state.topic_id and epoch not in {-1, self.epoch}
        if is_asked and read_to >= self.first:
            later = (o for o, (written_by, _) in enumerate(self.records) if written_by > epoch)
            cut = max(next(later, len(self.records)), self.first)
            return replace(state, cut=cut if cut < read_to else None)
        return state


CHANGES = st.tuples(st.sampled_from(["append", "elect", "delete", "recreate"]), st.integers(0, 5))


@given(st.lists(CHANGES), st.integers(0, 20), st.lists(CHANGES))
def test_a_reader_continues_only_where_it_loses_and_repeats_nothing(before, unread, after):
    log = Log()
    for name, count in before:
        getattr(log, name)(count)
    offset = max(len(log.records) - unread, log.first)
    epoch = log.records[offset - 1][0] if offset > log.first else -1
    position, read = Position(offset, str(log.topic_id), offset, epoch), log.values()[:offset]
    for name, count in after:
        getattr(log, name)(count)
    now = verdict(position, log.state_for(position))
    if isinstance(now, Continue):
        assert log.first <= offset <= len(log.records)
        if epoch >= 0:
            assert log.values()[log.first : offset] == read[log.first :]
        return
    assert isinstance(now, Loss)
    assert log.first <= now.offset <= len(log.records)
    unread_values = set(log.values()[now.offset :])
    assert unread_values.isdisjoint(read)
    if not isinstance(now, Recreated):
        assert log.values()[log.first : now.offset] == read[log.first : now.offset]


STATE = LogState("id", 3, 10)


@pytest.mark.parametrize(
    ("position", "log", "expected"),
    [
        (Position(8, "id"), STATE, Continue()),
        (Position(8), STATE, Continue()),
        (Position(10, "id"), STATE, Continue()),
        (Position(2, "id"), STATE, Gap(3)),
        (Position(8, "other"), STATE, Recreated(3)),
        (Position(2, "other"), replace(STATE, cut=5), Recreated(3)),
        (Position(11, "id"), STATE, Truncated(10)),
        (Position(8, "id", 11), STATE, Truncated(10)),
        (Position(8, "id"), replace(STATE, cut=5), Truncated(5)),
        (Position(11, "id", 9, 4), STATE, Continue()),  # markers after the last record are gone
        (Position(8, "other"), replace(STATE, has_leader=False), NoLeader()),
        (Position(8), None, NoPartition()),
    ],
)
def test_a_position_is_compared_with_the_log(position, log, expected):
    assert verdict(position, log) == expected


class Brokers:
    """A cluster with a topic of three partitions, of which the last one has no leader."""

    def __init__(self, monkeypatch):
        self.asked = {}
        self.topics = {"clicks": LiveTopic("clicks", "id", 3, 1, frozenset({2}))}
        monkeypatch.setattr(resume, "earliest_offsets", lambda _, led: dict.fromkeys(led, 3))
        monkeypatch.setattr(resume, "latest_offsets", lambda _, led: dict.fromkeys(led, (10, 7)))
        monkeypatch.setattr(resume, "find_cuts_by_new_leaders", self.find_cuts)

    def find_cuts(self, _, seen, ends):
        self.asked = dict(seen)
        assert ends == dict.fromkeys(seen, (10, 7))
        return dict.fromkeys(seen, 5)


def partitions(*numbers):
    return [TopicPartition("clicks", number) for number in numbers]


def test_states_are_those_of_partitions_that_exist(monkeypatch):
    brokers = Brokers(monkeypatch)
    requested = [*partitions(0, 2, 3), TopicPartition("views", 0)]
    zero, two = partitions(0, 2)
    assert log_states({}, brokers.topics, requested) == {
        zero: LogState("id", 3, 10, 7),
        two: LogState("id", has_leader=False),
    }


def test_leaders_are_asked_about_positions_in_their_logs(monkeypatch):
    brokers = Brokers(monkeypatch)
    zero, one, two = partitions(0, 1, 2)
    states = log_states({}, brokers.topics, [zero, one, two])
    known = {zero: Position(8, "id", 6, 4), one: Position(8, "other", 8, 4), two: Position(8, "id")}
    compared = with_cuts({}, states, known)
    assert brokers.asked == {zero: Seen(6, 4)}
    assert [state.cut for state in compared.values()] == [5, None, None]
    deleted = replace(states[zero], first=7)
    with_cuts({}, {zero: deleted}, known)
    assert brokers.asked == {}
