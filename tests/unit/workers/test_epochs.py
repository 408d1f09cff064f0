"""A worker's commit tells a log that was cut before it from the one that was read."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import WorkerTruncatedError
from headrace.kafka.group.commits import OffsetCommit
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.read.log_cuts import Seen
from headrace.model import TopicPartition
from headrace.workers import OneToOne, WorkerRecord
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.tasks.record import ConsumedRecord

HERE = TopicPartition("clicks", 0)
# What stands in a log, by offset: whether it is a record or a marker, and whether it is the first
# that another leader has written.
ENTRIES = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


def written(entries, epoch=0, first=0):
    """Offset, epoch and whether it is a record of each entry."""
    epochs = itertools.accumulate((is_new for _, is_new in entries), initial=epoch)
    next(epochs)
    return [
        (offset, of, is_record)
        for (offset, (is_record, _)), of in zip(enumerate(entries, first), epochs, strict=True)
    ]


def end_of(log, epoch):
    """Where a leader says that an epoch ends in its log."""
    return next((offset for offset, of, _ in log if of > epoch), len(log))


def assigned_at(commit):
    start = StartPosition(HERE, commit.offset, commit.metadata, "id", commit.epoch)
    return AssignedPartition(start, OneToOne())


def consumed(offset, epoch):
    record = WorkerRecord(HERE.topic, HERE.partition, offset)
    return ConsumedRecord(record, HERE, offset, epoch=epoch)


def read(assigned, log):
    """Reads a log from its commit to its end; returns the offsets that are new."""
    begin = assigned.committed
    return {
        offset
        for offset, epoch, is_record in log[begin:]
        if is_record and assigned.note_read(consumed(offset, epoch))
    }


@st.composite
def commits(draw):
    """A log, and what an instance commits that has read it and done some of its records."""
    log = written(draw(ENTRIES))
    assigned = AssignedPartition(StartPosition(HERE, 0, "", "id"), OneToOne())
    for offset in sorted(read(assigned, log)):
        if draw(st.booleans()):
            assigned.finish(offset)
    assigned.reach(len(log))
    commit = assigned.commit()
    if commit is not None and commit.epoch < 0:
        assigned.see_end(Seen(len(log), log[-1][1]))
        commit = assigned.commit()
    return log, commit


def assert_none_is_skipped(log, commit, cut, more):
    """Cuts a log, lets it grow, and looks whether a reader behind a commit gets what is new."""
    cut = min(cut, len(log) - 1)
    others = written([(True, True)] * (len(log) - cut + more), log[-1][1], cut)
    regrown = log[:cut] + others
    is_met = commit.epoch >= 0 and end_of(regrown, commit.epoch) < commit.offset
    if not is_met:
        try:
            new = read(assigned_at(commit), regrown)
        except WorkerTruncatedError:
            is_met = True
    assert is_met or new >= {offset for offset, _, _ in others}


@given(commits(), ENTRIES)
def test_a_log_that_has_only_grown_is_no_cut(made, more):
    log, commit = made
    grown = log + written(more, log[-1][1], len(log))
    assert end_of(grown, commit.epoch) >= commit.offset, "the client would meet a cut"
    read(assigned_at(commit), grown)


@given(commits(), st.integers(0, 11), st.integers(0, 12))
def test_of_a_log_that_was_cut_and_has_grown_no_record_is_skipped(made, cut, more):
    log, commit = made
    assert_none_is_skipped(log, commit, cut, more)


MOVES = st.lists(st.tuples(st.integers(1, 12), st.sets(st.integers(0, 11))), max_size=4)


def moved(log, moves):
    """The last commit of owners that follow one another: how many each reads, and which it does."""
    commit = OffsetCommit(HERE, 0, "", -1)
    for records, done in moves:
        assigned = assigned_at(commit)
        new = read(assigned, log[: assigned.committed + records])
        for offset in sorted(new & done):
            assigned.finish(offset)
        commit = assigned.commit() or commit
    return commit


@given(ENTRIES, MOVES)
@example([(True, False), *[(True, True)] * 2], [(3, {1, 2}), (1, set())])
def test_moves_of_a_log_that_was_not_cut_meet_no_cut(entries, moves):
    log = written(entries)
    read(assigned_at(moved(log, moves)), log)


@given(ENTRIES, MOVES, st.integers(0, 11), st.integers(0, 12))
@example([(True, False)] * 3, [(3, {1, 2}), (1, set())], 1, 1)
@example([(True, False)] * 2, [(2, {1}), (1, {0})], 0, 0)
def test_after_moves_no_record_of_a_log_that_was_cut_is_skipped(entries, moves, cut, more):
    log = written([(True, is_new) for _, is_new in entries])
    assert_none_is_skipped(log, moved(log, moves), cut, more)


@pytest.mark.parametrize("end", [Seen(4, 1), Seen(9, -1)])
def test_an_end_before_the_position_and_a_leader_without_an_epoch_tell_nothing(end):
    """A leader that was just elected may know less than the one before."""
    assigned = AssignedPartition(StartPosition(HERE, 0, "", "id"), OneToOne())
    assigned.reach(9)
    assert assigned.commit().epoch == -1
    assigned.see_end(end)
    assert not assigned.is_changed
