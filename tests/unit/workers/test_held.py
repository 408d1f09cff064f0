"""What waits for a transaction may be written in parts: each part, with its offset, is whole."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.write.record import ProducerRecord
from headrace.model import TopicPartition
from headrace.workers import KeyHash, WorkerRecord
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.held import CallSends, HeldSends
from headrace.workers.lanes.offsets import read_metadata
from headrace.workers.tasks.record import ConsumedRecord

PLACE = TopicPartition("t", 0)
LANES, RECORDS = 3, 30


class Partition:
    """A partition whose records end in any order, some of them without a send."""

    def __init__(self, rng, start=0, metadata=""):
        self.rng = rng
        self.assigned = AssignedPartition(StartPosition(PLACE, start, metadata, "id"), KeyHash(1))
        before = read_metadata(start, metadata).done
        self.done_before = {n for first, end in before for n in range(first, end)} | {*range(start)}
        self.ended = {lane: [] for lane in range(LANES)}  # what each has sent, in its order
        self.written, self.silent, self.open = [], set(), []
        for offset in range(start, RECORDS):
            record = ConsumedRecord(WorkerRecord("t", 0, offset, None, b""), PLACE, offset)
            if self.assigned.note_read(record):
                self.open.append(offset)

    def end_some(self):
        for _ in range(self.rng.randrange(8)):
            kind = self.rng.random()
            if kind < 0.15:
                self.send(self.rng.randrange(LANES), -1)
            elif self.open:
                # Mostly in order, and some long after the others.
                place = 0 if kind < 0.6 else self.rng.randrange(len(self.open))
                offset = self.open.pop(place)
                self.assigned.finish(offset)
                if kind > 0.9:
                    self.silent.add(offset)
                else:
                    self.send(offset % LANES, offset)

    def send(self, lane, offset):
        record = ProducerRecord("out", b"%d" % lane, b"%d" % offset, ())
        self.ended[lane].append(record)
        weight = self.rng.randrange(1, 30)
        self.assigned.hold(lane, offset, CallSends([record], weight))

    def write(self, max_bytes, metadata_bytes):
        """Returns whether a transaction was written, and checks it."""
        held = self.assigned.commit_held(max_bytes, metadata_bytes)
        if held is None:
            return False
        commit, cut = held
        if self.rng.random() < 0.2:  # it was refused
            self.assigned.not_committed()
            return True
        self.written += cut.records
        self.assigned.release(commit, cut)
        done = {*range(commit.offset)} | {
            offset
            for first, end in read_metadata(commit.offset, commit.metadata).done
            for offset in range(first, end)
        }
        of_records = {int(record.value) for record in self.written} - {-1}
        must = of_records | self.done_before
        assert must <= done <= must | self.silent, "a restart repeats or loses what was sent"
        for lane, ended in self.ended.items():
            of_lane = [record for record in self.written if record.key == b"%d" % lane]
            assert of_lane == ended[: len(of_lane)], "each lane keeps its order"
        return True


@settings(deadline=None)
@given(st.integers(), st.integers(1, 60), st.sampled_from([0, 20, 4096]))
def test_each_part_is_whole_with_its_offset_and_all_is_written_once(
    seed, max_bytes, metadata_bytes
):
    rng = random.Random(seed)
    partition = Partition(rng)
    while partition.open:
        partition.end_some()
        partition.write(max_bytes, metadata_bytes)
        if rng.random() < 0.1 and partition.assigned.committed:  # another instance continues
            commit, _ = partition.assigned.commit_held(2**30, 4096) or (None, None)
            if commit is not None:
                partition = Partition(rng, commit.offset, commit.metadata)
    while partition.assigned.is_changed:
        assert partition.write(max_bytes, metadata_bytes), "all that was read is done"
    assert sum(map(len, partition.ended.values())) == len(partition.written)
    assert partition.assigned.committed == RECORDS
    assert partition.assigned.held.bytes == 0


@settings(deadline=None, max_examples=30)
@given(st.integers(), st.integers(1, 60))
def test_a_part_has_no_more_than_it_may_but_for_one_record(seed, max_bytes):
    partition = Partition(random.Random(seed))
    while partition.open:
        partition.end_some()
    while partition.assigned.held.bytes:
        before = partition.assigned.held.bytes
        cut = partition.assigned.held.cut(max_bytes)
        assert cut.bytes <= max_bytes or len(cut.records) == 1
        partition.assigned.held.release(cut)
        assert partition.assigned.held.bytes == before - cut.bytes < before


def test_what_follows_a_record_that_sent_nothing_is_in_no_part_without_it():
    held, sent = HeldSends(), CallSends([ProducerRecord("out", None, b"v", ())], 100)
    held.add("a", 5, sent)
    held.add("a", 9, sent)
    held.note("b", 10)
    held.add("b", -1, sent)  # as of a timer
    cut = held.cut(100)
    assert (len(cut.records), cut.end, cut.undone, cut.leaves_calls) == (1, 10, (9,), True)
    held.release(cut)
    cut = held.cut(100)
    assert (len(cut.records), cut.end, cut.undone, cut.leaves_calls) == (1, 11, (), True)
