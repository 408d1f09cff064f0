"""Replay of dead letters: each record is sent to its topic again, once, for those that rejected it.

A record that several pipelines and workers refused has a dead letter of each; it is sent once,
with a header that names them, and all other readers of the topic leave it out.

What was replayed is recorded by consumer group ``headrace.replay.<topic>`` on the dead-letter
topic: its committed offset means "all before", the metadata beside it says which ones after. The
leader epoch of the commit says whether the log was cut since: letters after a cut are new. A
crash between sending and remembering sends those records again, to the same readers: at least
once, as with every producer. Replays of a topic run one at a time: see :mod:`sole_replay`.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import confluent_kafka

from headrace.errors import (
    ReplayedRecordError,
    ReplayRefusedError,
    SinkError,
    TopicMissingError,
)
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.headers import foreign_headers
from headrace.kafka.client.offsets import committed, latest_offsets, leader_epoch
from headrace.kafka.client.partitions import client_partition, partition_of
from headrace.kafka.dead_letters.letters import (
    Position,
    StoredDeadLetter,
    dead_letters_topic,
    scan,
)
from headrace.kafka.dead_letters.replayed import (
    REPLAYS,
    PartitionId,
    addressees,
    closed_windows,
    opened_windows,
    replay_group,
)
from headrace.kafka.dead_letters.sole_replay import SoleReplay, sole_replay
from headrace.kafka.group.groups import offset_metadata_bytes
from headrace.kafka.read.log_cuts import Seen, find_cuts
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.sending import send_each
from headrace.model import DeadLetter, TopicPartition
from headrace.model.partitioning import partition_of_key

Wrap: TypeAlias = Callable[[bytes], bytes]
"""Returns the value of a record with a single event."""

MAX_REPLAYS = 3  # a record that is rejected each time would be replayed without end
MAX_METADATA_BYTES = 4096  # where brokers do not say their offset.metadata.max.bytes


@dataclass(frozen=True)
class DeadLetterFilter:
    """Holds the dead letters that match each of its members; an empty member matches all.

    Attributes:
        reasons: codes.
        pipelines: names of the pipelines that wrote them.
        origins: ``topic/partition:offset`` of the original records; of single events of envelopes,
            with ``#index``.
        since_ms: those that were written since, in milliseconds since 1970.
    """

    reasons: frozenset[str] = frozenset()
    pipelines: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    since_ms: int = -1

    def __contains__(self, stored: StoredDeadLetter) -> bool:
        members = (
            (self.reasons, {stored.letter.reason}),
            (self.pipelines, {stored.pipeline}),
            (self.origins, stored.names),
        )
        return stored.written_ms >= self.since_ms and all(
            not allowed or not allowed.isdisjoint(values) for allowed, values in members
        )


@dataclass(frozen=True)
class Replay:
    """The result of a replay, or with ``dry_run`` what it would be.

    Attributes:
        sent: records sent to their topic.
        already: dead letters that were replayed before, not replayed again.
        given_up: dead letters that came back after :data:`MAX_REPLAYS` replays, not replayed.
        without_record: dead letters of rows and of lines of offline files, not replayed.
        readers: how many of the records are for each pipeline or worker.
    """

    sent: int
    already: int
    given_up: int
    without_record: int = 0
    readers: Mapping[str, int] = field(default_factory=dict)


def replay(
    config: ClientConfig,
    topic: str,
    selection: DeadLetterFilter,
    *,
    again: bool = False,
    dry_run: bool = False,
    wrap: Wrap | None = None,
) -> Replay:
    """Sends the selected dead letters of ``topic`` (the origin's name) back to it.

    Each is sent to its own partition with its key, value, headers, a count of its replays and the
    names of the consumers that rejected it. An event of an envelope is sent in an envelope of its
    own.
    Those of rows that a sink rejected and of lines of offline files stay: they never were records
    of the topic.

    Args:
        config: librdkafka's configuration.
        topic: the origin topic.
        selection: which.
        again: also those replayed before.
        dry_run: only count.
        wrap: makes an envelope of an event that came in one; ``None``: the topic has none, so an
            event is sent as it is.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if the origin topic does not exist.
        ReplayRefusedError: if what was replayed could not be remembered; nothing was sent.
        ReplayRunningError: if another replay of the topic is running; nothing was sent.
        ReplayedRecordError: if Kafka refuses a record; those that it took are remembered.
    """
    # Nothing is sent, so other replays need not be excluded.
    if dry_run or not describe(config, [dead_letters_topic(topic)]):
        return _replay(config, topic, selection, None, again=again, wrap=wrap)
    with sole_replay(config, topic) as member:
        return _replay(config, topic, selection, member, again=again, wrap=wrap)


def _replay(
    config: ClientConfig,
    topic: str,
    selection: DeadLetterFilter,
    member: SoleReplay | None,
    *,
    again: bool,
    wrap: Wrap | None,
) -> Replay:
    scanned = list(scan(config, topic))
    letters = [letter for letter in scanned if letter.is_of_record]
    done = replayed(config, topic, letters)
    without_record = sum(not letter.is_of_record and letter in selection for letter in scanned)
    selected = [letter for letter in letters if letter in selection]
    alive = [letter for letter in selected if letter.replays < MAX_REPLAYS]
    due = [letter for letter in alive if again or letter.position not in done]
    # A record that several pipelines rejected is sent once, for all of them. The id of the topic
    # keeps records of a recreated topic apart, which have the same offsets.
    by_record: dict[tuple[object, ...], list[StoredDeadLetter]] = {}
    for letter in due:
        by_record.setdefault((letter.topic_id, letter.letter.place), []).append(letter)
    records = list(by_record.values())
    if due and member is not None:
        _Sending(config, topic, member, letters, done, wrap).send(records)
    readers = Counter(name for record in records for name in {letter.pipeline for letter in record})
    return Replay(
        len(records),
        len(alive) - len(due),
        len(selected) - len(alive),
        without_record,
        dict(readers),
    )


def replayed(
    config: ClientConfig, topic: str, letters: Iterable[StoredDeadLetter]
) -> set[Position]:
    """Returns which of ``letters`` were replayed into ``topic`` before.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    name = dead_letters_topic(topic)
    live = describe(config, [name]).get(name)
    partitions = live.all_partitions if live is not None else []
    before: dict[TopicPartition, int] = {}
    after: set[Position] = set()
    seen: dict[int, Seen] = {}
    for stored in committed(config, replay_group(topic), partitions):
        partition = partition_of(stored)
        before[partition] = stored.offset
        offsets = decode(stored.offset, stored.metadata or "")
        after |= {(partition, offset) for offset in offsets}
        end = max(offsets, default=stored.offset - 1) + 1
        seen[stored.partition] = Seen(end, leader_epoch(stored))
    # After a cut, offsets that are remembered as replayed belong to new letters.
    cuts = find_cuts(config, name, seen)
    return {
        (partition, offset)
        for partition, offset in {letter.position for letter in letters}
        if (offset < before.get(partition, 0) or (partition, offset) in after)
        and offset < cuts.get(partition.partition, offset + 1)
    }


def replayed_records(
    config: ClientConfig, topic: str, topic_id: str, pipeline: str
) -> frozenset[tuple[TopicPartition, int, int]]:
    """Returns the places of records of ``topic`` that were replayed for ``pipeline``.

    What Kafka has forgotten is not among them: letters that retention has deleted, and everything
    once the group's offsets have expired.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    letters = [
        letter
        for letter in scan(config, topic)
        if letter.is_of_record and (letter.pipeline, letter.topic_id) == (pipeline, topic_id)
    ]
    done = replayed(config, topic, letters)
    return frozenset(letter.letter.place for letter in letters if letter.position in done)


def encode(first: int, offsets: Collection[int]) -> str:
    """Offsets from ``first`` on, as short text: a compressed bitmap."""
    bits = bytearray((max(offsets, default=first) - first) // 8 + 1)
    for offset in offsets:
        bits[(offset - first) // 8] |= 1 << (offset - first) % 8
    # Metadata is text of limited size: base85 takes 5 characters for 4 bytes, base64 takes 5.3.
    return base64.b85encode(zlib.compress(bytes(bits), 9)).decode() if offsets else ""


def decode(first: int, text: str) -> set[int]:
    """Returns the offsets that :func:`encode` was given."""
    if not text:
        return set()
    bits = zlib.decompress(base64.b85decode(text))
    return {
        first + 8 * number + bit
        for number, byte in enumerate(bits)
        for bit in range(8)
        if byte >> bit & 1
    }


def _memory(
    letters: Sequence[StoredDeadLetter],
    done: set[Position],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> list[confluent_kafka.TopicPartition]:
    """Returns the offsets to commit, so that exactly ``done`` is remembered as replayed.

    ``ends`` has the epochs of leaders.
    """
    memory = []
    for partition in {letter.position[0] for letter in letters}:
        offsets = [letter.position[1] for letter in letters if letter.position[0] == partition]
        waiting = [offset for offset in offsets if (partition, offset) not in done]
        first = min(waiting, default=max(offsets) + 1)
        after = encode(
            first, [offset for offset in offsets if offset > first and (partition, offset) in done]
        )
        _, epoch = ends[partition]
        memory.append(client_partition(partition, first, after, epoch))
    return memory


@dataclass(frozen=True, slots=True)
class _Sending:
    """Sends records to ``topic``, and remembers which of its ``letters`` are ``done`` then."""

    config: ClientConfig
    topic: str
    member: SoleReplay
    letters: Sequence[StoredDeadLetter]
    done: set[Position]
    wrap: Wrap | None

    def send(self, records: Sequence[Sequence[StoredDeadLetter]]) -> None:
        """Sends between two commits: where records can be, then that they were replayed.

        Raises:
            ReplayRefusedError: if brokers do not take what must be remembered; nothing was sent.
            ReplayedRecordError: if Kafka refuses a record; those that it took are remembered.
        """
        live = describe(self.config, [self.topic]).get(self.topic)
        if live is None:
            raise TopicMissingError(self.topic)
        max_bytes = offset_metadata_bytes(self.config) or MAX_METADATA_BYTES
        ends = latest_offsets(self.config, {letter.position[0] for letter in self.letters})
        # Before anything is sent: what can't be remembered would be sent again by the next replay.
        longest = max(len(partition.metadata) for partition in self._memory(records, ends))
        if longest > max_bytes:
            raise ReplayRefusedError(self.topic, longest)
        # First the commit, then the records: after a crash between the two, readers look for
        # replayed records where there are none. In the other order they would process records
        # that are meant for others.
        self.member.commit(opened_windows(self.config, self.topic, live.all_partitions))
        failures = self._send([_original(record, live, self.wrap) for record in records])
        sent = [record for index, record in enumerate(records) if index not in failures]
        # Failures leave gaps, so a note may be longer than the one that was checked. Without it,
        # the next replay sends the records of that partition again.
        memory = [note for note in self._memory(sent, ends) if len(note.metadata) <= max_bytes]
        if not failures:
            # Only after a complete replay: an open window makes readers check headers, and loses
            # nothing.
            memory += closed_windows(self.config, self.topic, live.all_partitions)
        self.member.commit(memory)
        if failures:
            raise _failure(records, failures)

    def _send(self, outgoing: Sequence[ProducerRecord]) -> dict[int, Exception]:
        """Returns why a record was not written, by its index.

        Brokers refuse whole batches of records: each record of one is sent again alone.
        """
        failures = send_each(self.config, outgoing)
        for index in [index for index, error in failures.items() if isinstance(error, SinkError)]:
            error = send_each(self.config, [outgoing[index]]).get(0)
            if error is None:
                del failures[index]
            else:
                failures[index] = error
        return failures

    def _memory(
        self,
        records: Iterable[Sequence[StoredDeadLetter]],
        ends: Mapping[TopicPartition, tuple[int, int]],
    ) -> list[confluent_kafka.TopicPartition]:
        sent = {letter.position for record in records for letter in record}
        return _memory(self.letters, self.done | sent, ends)


def _failure(
    records: Sequence[Sequence[StoredDeadLetter]], failures: Mapping[int, Exception]
) -> Exception:
    """The failure that nothing else can be sent for, or else the first record that is refused."""
    for error in failures.values():
        if not isinstance(error, SinkError):
            return error
    index, error = min(failures.items())
    letter = records[index][0]
    partition, offset = letter.position
    return ReplayedRecordError(
        letter.letter.partition.topic,
        getattr(error, "reason", str(error)),
        letter.origin,
        f"{partition.topic}/{partition.partition}:{offset}",
        len(records) - len(failures),
        len(failures),
    )


def _original(
    letters: Sequence[StoredDeadLetter], live: LiveTopic, wrap: Wrap | None = None
) -> ProducerRecord:
    letter = letters[0].letter
    value = letter.value
    if wrap is not None and value is not None and letter.event_index >= 0:
        value = wrap(value)
    partition = _partition(letter, live.partitions)
    place = PartitionId(TopicPartition(live.name, partition), live.topic_id)
    replays = max(letter.replays for letter in letters) + 1
    own_headers = (
        (REPLAYS, str(replays).encode()),
        addressees((letter.pipeline for letter in letters), place),
    )
    headers = (*foreign_headers(letter.headers), *own_headers)
    return ProducerRecord(live.name, letter.key, value, headers, partition)


def _partition(letter: DeadLetter, partitions: int) -> int:
    """Returns its own partition; if the topic lacks that now, the one that its key has now."""
    # Without a key there is no order to keep, so any partition serves.
    own = letter.partition.partition
    if 0 <= own < partitions or letter.key is None:
        return own % partitions
    return partition_of_key(letter.key, partitions)
