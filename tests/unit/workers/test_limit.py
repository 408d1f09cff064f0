"""A worker's limit of dead letters counts records where they were read, whenever they end."""

import asyncio
import itertools
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.workers.lanes import LaneBench, settled

from headrace.errors import DeadLetterLimitError
from headrace.kafka.group.start_positions import StartPosition
from headrace.model import DeadLetterLimit, Topic, TopicPartition
from headrace.workers import DeadLetters, Retry, RetryTopics, Worker, WorkerRecord, WorkerTask
from headrace.workers.failures.failures import Failures
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.attempt import RecordAttempt
from headrace.workers.lanes.offsets import PartitionOffsets
from headrace.workers.tasks.partitioner import OneToOne
from headrace.workers.tasks.record import ConsumedRecord

BAD = ValueError("bad")
PLACES = [TopicPartition("t", number) for number in range(3)]


class Letters:
    """Keeps what is written."""

    def __init__(self):
        self.written = []

    def on_rebalance(self, here):
        """Needs nothing of it."""

    async def write(self, letter):
        self.written.append(letter.offset)


class Group:
    """An instance of a worker whose records are read, and end, one by one."""

    def __init__(self, limit, policy=DeadLetters):
        self.letters = Letters()
        worker = Worker("w", Topic("t"), WorkerTask, on_failure=policy(limit))
        self.failures = Failures(worker, self.letters, None)
        self.here = {}

    def assign(self, place, position=0, metadata=""):
        self.failures.on_rebalance(self.here)
        start = StartPosition(place, position, metadata, "id")
        self.here[place] = AssignedPartition(start, OneToOne())

    def revoke(self, place):
        committed = self.here.pop(place)
        self.failures.on_rebalance(self.here)
        return committed.committable, committed._offsets.metadata(committed.topic_id)

    def read(self, place, offset):
        """Returns whether it is new."""
        assigned, record = self.here[place], WorkerRecord("t", place.partition, offset, None, b"")
        is_new = assigned.note_read(ConsumedRecord(record, place, offset))
        self.failures.read(assigned, offset, is_new=is_new)
        return is_new

    def end(self, place, offset, *, bad):
        if bad:
            asyncio.run(self.failures.end(attempt_at(place, offset), BAD))
        else:
            self.failures.succeeded(attempt_at(place, offset))
        self.here[place].finish(offset)

    def stops(self, ends):
        try:
            for place, offset, bad in ends:
                self.end(place, offset, bad=bad)
        except DeadLetterLimitError:
            return True
        return False


def attempt_at(place, offset, attempt=1):
    record = WorkerRecord(place.topic, place.partition, offset, None, b"", attempt=attempt)
    return RecordAttempt(ConsumedRecord(record, place, offset), 1, lambda *_: None)


LIMITS = st.builds(
    DeadLetterLimit,
    max_ratio=st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    max_consecutive=st.integers(1, 4),
    min_records=st.integers(1, 12),
)
# Which partition a record is of, how many offsets before it have no record, and whether it is bad.
READS = st.lists(st.tuples(st.sampled_from(PLACES), st.integers(0, 2), st.booleans()), max_size=40)


def placed(reads):
    """Gives each record its offset."""
    positions = dict.fromkeys(PLACES, 0)
    for place, gap, bad in reads:
        positions[place] += gap + 1
        yield place, positions[place], bad


def stops_in_order(limit, records):
    """What the rules say, in the plainest words: of windows as they were read, and of runs."""
    for first in range(0, len(records), limit.min_records):
        window = records[first : first + limit.min_records]
        if sum(bad for _, _, bad in window) > limit.max_ratio * limit.min_records:
            return True
    for place in PLACES:
        flags = [bad for where, _, bad in records if where == place]
        runs = (len(list(run)) for bad, run in itertools.groupby(flags) if bad)
        if max(runs, default=0) > limit.max_consecutive:
            return True
    return False


@given(LIMITS, READS, st.data())
def test_the_decision_is_that_of_the_order_of_reading_in_whatever_order_records_end(
    limit, reads, data
):
    records = list(placed(reads))
    group = Group(limit)
    for place in PLACES:
        group.assign(place)
    unread, is_open, has_stopped = list(records), [], False
    # Reads come in their order, and ends in any order in between.
    while (unread or is_open) and not has_stopped:
        if unread and (not is_open or data.draw(st.booleans())):
            place, offset, bad = unread.pop(0)
            assert group.read(place, offset)
            is_open.append((place, offset, bad))
        else:
            ended = is_open.pop(data.draw(st.integers(0, len(is_open) - 1)))
            has_stopped = group.stops([ended])
    assert has_stopped == stops_in_order(limit, records)


@pytest.mark.parametrize("gap", [1, 2])
def test_what_is_remembered_follows_the_records_that_have_not_ended(gap):
    """One partition has a record that does not end, one has no traffic; the third one has."""
    group = Group(DeadLetterLimit(max_ratio=0.5, min_records=10))
    for place in PLACES:
        group.assign(place)
    group.read(PLACES[1], 0)
    group.end(PLACES[1], 0, bad=False)
    group.read(PLACES[2], 0)
    for offset in range(0, 5_000 * gap, gap):
        group.read(PLACES[2], gap + offset)
        group.end(PLACES[2], gap + offset, bad=offset % 3 == 0)
        group.read(PLACES[0], offset)
        assert not group.stops([(PLACES[0], offset, offset % 5 == 0)])
    limit = group.failures._limit
    sizes = [len(limit._bad), len(limit._open)]
    for partition in limit._partitions.values():
        sizes += [len(part) for part in vars(partition).values() if not isinstance(part, int)]
    assert max(sizes) < 10, "of 10,000 records"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 13), st.randoms(use_true_random=False), st.integers(1, 5))
def test_a_share_below_the_limit_never_stops_however_late_the_bad_ones_end_or_it_restarts(
    first, random, restarts
):
    """One record of 14 is bad, 7 %, and ends much later than the others, across restarts."""
    limit = DeadLetterLimit(max_ratio=0.1, min_records=100)
    positions = dict.fromkeys(PLACES, (0, ""))
    for _ in range(restarts):
        group = Group(limit)
        for place, (position, metadata) in positions.items():
            group.assign(place, position, metadata)
        late = []
        for offset in range(random.randrange(200, 2_000)):
            for place, (position, _) in positions.items():
                if group.read(place, position + offset):
                    bad = (position + offset) % 14 == first
                    if bad and random.random() < 0.95:
                        late.append((place, position + offset, bad))
                    else:
                        assert not group.stops([(place, position + offset, bad)])
        random.shuffle(late)
        assert not group.stops(late[: random.randrange(len(late) + 1)])
        positions = {place: group.revoke(place) for place in PLACES}


def test_many_partitions_that_continue_at_bad_records_do_not_stop_a_worker():
    """A committed offset is where a record was not done: often a bad one, which was retried."""
    group = Group(DeadLetterLimit(max_ratio=0.1, min_records=100))
    places = [TopicPartition("t", number) for number in range(50)]
    for place in places:
        committed = PartitionOffsets(0)
        committed.consume(0)
        group.assign(place, 0, committed.metadata("id"))
        group.read(place, 0)
    assert not group.stops((place, 0, True) for place in places)
    assert len(group.letters.written) == 50


def test_a_limit_without_bad_records_stops_at_the_one_that_is_continued_at():
    group = Group(DeadLetterLimit(max_ratio=0))
    group.assign(PLACES[0], 7, PartitionOffsets(7).metadata("id"))
    group.read(PLACES[0], 7)
    assert group.stops([(PLACES[0], 7, True)])
    assert group.letters.written == []


@given(LIMITS, st.lists(st.booleans(), max_size=40), st.randoms(use_true_random=False))
def test_with_retry_topics_the_decision_is_that_of_the_topic_in_whatever_order_records_end(
    limit, flags, random
):
    """A retry topic has the failed records alone."""
    records = [(PLACES[0], offset, bad) for offset, bad in enumerate(flags)]
    group = Group(limit, lambda end: RetryTopics((timedelta(0),), DeadLetters(end)))
    ends = [offset for offset, bad in enumerate(flags) if bad] * 2  # a send may be repeated
    random.shuffle(ends)

    async def run():
        for offset in ends:
            await group.failures.end(attempt_at(PLACES[0], offset, attempt=2), BAD)

    if stops_in_order(limit, records):
        with pytest.raises(DeadLetterLimitError):
            asyncio.run(run())
    else:
        asyncio.run(run())


def test_lanes_that_retry_bad_records_do_not_stop_at_seven_of_a_hundred():
    """The good ones of 3,000 have ended when the first bad one has no attempt left."""

    observed = []

    class Late(WorkerTask):
        def process(self, record, observer):
            if record.offset % 14:
                observer.on_success()
            elif record.attempt == 1:
                observer.on_failure(BAD)
            else:
                observed.append(observer)

    async def run():
        retry = Retry(2, timedelta(0), then=DeadLetters())
        worker = Worker("w", Topic("t"), Late, on_failure=retry)
        letters = Letters()
        failures = Failures(worker, letters, None)
        bench = LaneBench(Late, failures=failures, on_failure=retry)
        bench.put(*range(3_000))
        while len(observed) < 215:
            await settled()
        for observer in observed:
            observer.on_failure(BAD)
        while not bench.broken and bench.committable < 3_000:
            await settled()
        assert bench.broken == []
        assert len(letters.written) == 215
        await bench.revoke()

    asyncio.run(run())
