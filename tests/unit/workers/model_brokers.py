"""A model of brokers, on which instances of exactly-once workers run: faults, moves, evictions."""

import asyncio
import threading
from collections import Counter, defaultdict

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.group.group_member import NoMemberError
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.group.subscription import Membership, Taken
from headrace.kafka.write.record import weight_of
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.model import TopicPartition
from headrace.testing.bench_instance import Message, SentRecord
from headrace.workers.consumer_group import group_consumer
from headrace.workers.consumer_group.restoring import StateRestores
from headrace.workers.exactly_once import consumer, output_topics, transactions
from headrace.workers.exactly_once.consumer import ExactlyOnceConsumer
from headrace.workers.exactly_once.dead_letters import HeldDeadLetters
from headrace.workers.exactly_once.output_topics import OutputTopics
from headrace.workers.exactly_once.sender import HoldingSender
from headrace.workers.exactly_once.transactions import MAX_BYTES
from headrace.workers.failures.failures import Failures
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.state.changelog import StoredValues
from headrace.workers.state.expiry import set_at_of

PARTITIONS = [TopicPartition("clicks", number) for number in range(2)]
RECORDS = 40
KEYS = 6
OUTCOMES = ("committed",) * 8 + ("refused", "refused", "committed, no answer", "lost, no answer")


class Brokers:
    """A topic, a group and an output. Members are known by numbers; a generation is a member's."""

    def __init__(self, rng):
        self.rng, self.lock = rng, threading.RLock()
        self.committed, self.output, self.logs = {}, [], defaultdict(list)
        self.wanted = defaultdict(set)
        self.owner, self.generation = {}, Counter()
        self.faults, self.max_bytes = True, MAX_BYTES
        self.timestamps = defaultdict(int)  # of records, by their values

    def evict(self, member):
        """It is silent for too long: others may have its partitions at once."""
        with self.lock:
            self.generation[member] += 1
            self.owner = {p: owner for p, owner in self.owner.items() if owner != member}

    def commit(self, member, records, offsets):
        with self.lock:
            number, generation = member
            if sum(map(weight_of, records)) > self.max_bytes:
                raise TransactionUnsettledError("it takes too long")
            if generation != self.generation[number]:
                raise TransactionFencedError("another generation")
            outcome = self.rng.choice(OUTCOMES) if self.faults else "committed"
            if outcome == "refused":
                raise TransactionFencedError("rebalancing")
            if outcome.startswith("committed"):
                for record in records:
                    if record.topic == "out":
                        self.output.append(int(record.value))
                    else:
                        set_at = set_at_of(record.headers)
                        self.logs[record.partition].append((record.key, record.value, set_at))
                for offset in offsets:
                    place = TopicPartition(offset.topic, offset.partition)
                    self.committed[place] = (offset.offset, offset.metadata)
            if outcome.endswith("no answer"):
                raise TransactionUnsettledError("no answer")

    def stored(self, number):
        """What a state topic has of a partition."""
        with self.lock:
            stored = StoredValues()
            for record in self.logs[number]:
                stored.take(*record)
            return stored

    def read_state(self, worker, config, number):
        """As ``read_partition``."""
        with self.lock:
            if self.faults and self.rng.random() < 0.3:
                raise BrokerUnreachableError("", "no answer")
        return self.stored(number)


class ModelSubscription:
    """A member of the group, as ``Subscription`` is; all on the consumer's thread."""

    def __init__(self, brokers, number, pauses, on_assigned, on_revoked, on_lost):
        self.brokers, self.number, self.pauses = brokers, number, pauses
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        self.generation, self.positions = brokers.generation[number], {}
        self.is_closing = self.is_dead = False

    def member_metadata(self):
        if not self.positions:
            raise NoMemberError("no partitions")
        return self.number, self.generation

    def take(self, room, seconds):
        brokers = self.brokers
        if self.is_dead:
            return Taken([], [])
        if self.generation != brokers.generation[self.number]:
            gone, self.positions = list(self.positions), {}
            self.on_lost(gone)
            with brokers.lock:
                self.generation = brokers.generation[self.number]
                # It may have been given just when it was evicted.
                for place in () if self.is_dead else gone:
                    if brokers.owner.get(place) == self.number:
                        del brokers.owner[place]
        wanted = set() if self.is_closing else brokers.wanted[self.number]
        self.give_back([place for place in self.positions if place not in wanted])
        with brokers.lock:
            # One that it has is not assigned twice, also if it was evicted a moment ago.
            claimed = () if self.is_dead else wanted - self.positions.keys()
            free = [place for place in claimed if brokers.owner.get(place) is None]
            brokers.owner.update(dict.fromkeys(free, self.number))
        if free:
            starts = [self.start(place) for place in free]
            self.positions.update({start.partition: start.position for start in starts})
            self.on_assigned(starts)
        records = []
        for place, position in self.positions.items():
            if place not in self.pauses.partitions:
                end = min(RECORDS, position + brokers.rng.randrange(4))
                records += [self.message(place, offset) for offset in range(position, end)]
                self.positions[place] = end
        return Taken(records, [])

    def start(self, place):
        return StartPosition(place, *self.brokers.committed.get(place, (0, "")), "id")

    def message(self, place, offset):
        value = place.partition * 1000 + offset
        record = SentRecord("clicks", b"%d" % value, b"%d" % (value % KEYS))
        return Message(place, offset, record, self.brokers.timestamps[value])

    def give_back(self, places):
        if places:
            assert self.on_revoked(places) == []
            with self.brokers.lock:
                for place in places:
                    del self.positions[place]
                    # A killed one says nothing: its number may have it in another process.
                    if self.brokers.owner.get(place) == self.number and not self.is_dead:
                        del self.brokers.owner[place]

    def is_joining(self):
        return False

    def begin_close(self):
        self.is_closing = True

    def close(self):
        self.give_back(list(self.positions))


class ModelTransactions:
    """Transactions at the model, as ``Transactions``."""

    def __init__(self, brokers):
        self.brokers = brokers

    def write(self, records, offsets, group):
        self.brokers.commit(group, records, offsets)

    def settle(self):
        if self.brokers.faults and self.brokers.rng.random() < 0.3:
            raise TransactionUnsettledError("no answer")

    def close(self):
        """No transaction is open outside of a call."""


class Instance:
    """The lanes of a worker with its consumer."""

    def __init__(self, brokers, number, worker, failures):
        sender = HoldingSender(OutputTopics({}))
        context = LaneContext(
            worker,
            worker.task,
            TaskThreads(1, "task"),
            sender.send,
            Failures(worker, HeldDeadLetters(worker, {}, sender.send), sender.send),
            Counter(),
            failures.append,
        )
        self.assignments = PartitionSet(context)
        self.restores = None
        if worker.state is not None:
            self.restores = StateRestores(
                worker, {}, self.assignments, failures.append, brokers.read_state, 0.001
            )
            self.assignments.restore = self.restores.begin
        membership = Membership(f"member {number}", ("clicks",))
        consumer_ = ExactlyOnceConsumer({}, membership, context, self.assignments, lambda: 1)
        consumer_._transactions = ModelTransactions(brokers)
        self.consumer, self.stopping = consumer_, asyncio.Event()
        self.reading = asyncio.create_task(consumer_.read(self.stopping))

    @property
    def awaits_answer(self):
        """Whether it does not know of a transaction that it is committed, or aborted."""
        return self.consumer._is_running() or self.consumer._is_unsettled

    async def stop(self):
        self.stopping.set()
        await self.assignments.drain(1.0)
        self.reading.cancel()
        await self.consumer.close(asyncio.get_running_loop().time() + 60)
        if self.restores is not None:
            self.restores.close()

    def kill(self, brokers, number):
        """Ends it as a process that is killed: it says nothing to anyone."""
        with brokers.lock:
            self.consumer._subscription.is_dead = True
            brokers.evict(number)
        self.reading.cancel()
        if self.restores is not None:
            self.restores.close()
        for lane in self.assignments.lanes:
            lane._runner.cancel()


def move(brokers, rng):
    """Each partition is wanted by one of two members."""
    for place in PARTITIONS:
        number = rng.randrange(2)
        brokers.wanted[number].add(place)
        brokers.wanted[1 - number].discard(place)


def ended(instances):
    for instance in instances:
        if instance.reading.done():
            instance.reading.result()
    return False


def is_all_committed(brokers, instances):
    """And all instances know it: the stop of one that starts over ends with an error, rightly."""
    offsets = [brokers.committed.get(place, (0, ""))[0] for place in PARTITIONS]
    is_known = not any(instance.awaits_answer for instance in instances)
    return is_known and offsets == [RECORDS] * len(PARTITIONS)


def model_brokers(monkeypatch, rng, metadata_bytes=4096, transaction_bytes=MAX_BYTES):
    """Returns brokers that instances use from now on, in transactions of about so many bytes."""
    brokers = Brokers(rng)

    def subscription(config, membership, *callbacks):
        return ModelSubscription(brokers, int(membership.group.split()[1]), *callbacks)

    monkeypatch.setattr(group_consumer, "Subscription", subscription)
    monkeypatch.setattr(group_consumer, "whole_ends", lambda *_: {})
    monkeypatch.setattr(consumer, "offset_metadata_bytes", lambda _: metadata_bytes)
    monkeypatch.setattr(output_topics, "describe", described)
    monkeypatch.setattr(consumer, "describe", described)
    monkeypatch.setattr(output_topics, "topic_settings", lambda *_: {})
    if transaction_bytes != MAX_BYTES:
        for name in ("_FIRST_BYTES", "_MIN_BYTES", "MAX_BYTES"):
            monkeypatch.setattr(transactions, name, transaction_bytes)
    return brokers


def described(config, topics):
    return {name: LiveTopic(name, "id", 3, 1) for name in topics}
