"""Warns of settings of topics that are each valid, and in combination lose or delay records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.model import Topic
from headrace.model.fault import Fault

if TYPE_CHECKING:
    from headrace.kafka.client.admin_requests import LiveTopic
    from headrace.kafka.client.brokers import Brokers

DEFAULT_SEGMENT = timedelta(days=7)
_FAR_ABOVE = 4
# With two copies, one in sync is what keeps writes possible while a broker is down.
_SAFE_COPIES = 3
_MAX_LISTED = 10
_MIN_ISR = "min.insync.replicas"
_MS_OF_RETENTION = {
    "log.retention.ms": 1,
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
}
_SAFE_REMEDY = f'replication={_SAFE_COPIES}, config={{"{_MIN_ISR}": "{_SAFE_COPIES - 1}"}}'


def topic_contradictions(topic: Topic) -> Iterator[Fault]:
    """Gives contradictions within the declaration of a topic, which are errors."""
    in_sync = _number(topic, _MIN_ISR)
    if in_sync is not None and in_sync > topic.replication:
        yield Fault(
            # Measured on Kafka 4.3.1: it confirms the write, as if the number were the copies'.
            f"topic {topic.name!r}: {_MIN_ISR} {in_sync} with replication {topic.replication}: "
            "more copies in sync than there are; older brokers confirm no write, newer ones "
            f"take it for {topic.replication}",
            f"{_MIN_ISR} of {max(1, topic.replication - 1)}, or more copies",
        )
    largest = _number(topic, "max.message.bytes")
    if largest is not None and largest > MAX_MESSAGE_BYTES:
        yield Fault(
            f"topic {topic.name!r}: max.message.bytes {largest} is above the "
            f"{MAX_MESSAGE_BYTES} that headrace's clients send",
            "store large values elsewhere, and send their location",
        )


def topic_warnings(topic: Topic) -> Iterator[Fault]:
    """Warns of settings that work until something breaks."""
    yield from _copies(topic)
    yield from _segments(topic)


def declared_retention(topic: Topic) -> timedelta | None:
    """Returns how long a topic keeps records; None: for ever, or as long as the brokers say."""
    return (topic.retention or _duration(topic, "retention.ms")) if topic.has_retention else None


def default_retention_ms(brokers: Mapping[str, str]) -> int | None:
    """Returns the retention of a topic that declares none; None: for ever, or not known.

    Args:
        brokers: settings of the brokers, by Kafka's names.
    """
    # As in Kafka, the finest unit that is set wins.
    for name, unit in _MS_OF_RETENTION.items():
        value = brokers.get(name, "")
        if value:
            return int(value) * unit if value.isdecimal() else None
    return None


def live_warnings(topic: Topic, brokers: Brokers) -> Iterator[Fault]:
    """Warns with the brokers' defaults where the topic declares none, and of their own settings.

    ``replica.fetch.max.bytes`` is no bound: a larger batch is still replicated (KIP-74).
    """
    in_force = _in_force(topic, brokers.config)
    yield from topic_warnings(in_force)
    if brokers.count >= _SAFE_COPIES:
        yield from _fewer_copies(in_force, brokers.count)
    if topic.replication > brokers.count:
        yield Fault(
            f"topic {topic.name!r}: replication {topic.replication}, but {brokers.count} "
            "broker(s) answer",
            f"replication={brokers.count}, or more brokers: Kafka would not create the topic",
        )
    name = "unclean.leader.election.enable"
    if topic.replication > 1 and topic.config.get(name, brokers.config.get(name)) == "true":
        yield Fault(
            f"topic {topic.name!r}: {name} is true: a copy that is behind may lead, and what it "
            "does not have is lost, confirmed or not",
            f'config={{"{name}": "false"}}',
        )
    request = brokers.config.get("socket.request.max.bytes", "")
    largest = _number(topic, "max.message.bytes")
    if request.isdecimal() and largest is not None and largest > int(request):
        yield Fault(
            f"topic {topic.name!r}: max.message.bytes {largest} is above the brokers' "
            f"socket.request.max.bytes {request}: they close the connection on it",
            f"max.message.bytes below {request}, or a larger socket.request.max.bytes",
        )


def cluster_warnings(brokers: Brokers) -> Iterator[Fault]:
    """Warns of settings of the brokers that concern every topic."""
    if brokers.config.get("auto.create.topics.enable") == "true":
        yield Fault(
            "brokers: auto.create.topics.enable is true: a misspelled topic is created, with "
            f"{brokers.config.get('num.partitions', '1')} partition(s)",
            "auto.create.topics.enable=false on the brokers",
        )


def identity_warnings(topics: Iterable[LiveTopic]) -> Iterator[Fault]:
    """Warns if topics have no ids, by which headrace notices that one was recreated."""
    nameless = sorted(topic.name for topic in topics if not topic.has_id)
    if nameless:
        yield Fault(
            f"brokers: topics get no ids ({', '.join(nameless)}): a recreated topic is not "
            "noticed, and its offsets are taken for the old ones",
            "brokers of 2.8 or newer with KRaft; or reset what reads a recreated topic",
        )


def rack_warnings(topics: Iterable[LiveTopic], brokers: Brokers) -> Iterator[Fault]:
    """Warns of partitions whose copies are all in one rack, where there are several racks.

    A single copy is none of them: :func:`live_warnings` warns of it.
    """
    if len(set(brokers.racks.values())) <= 1:
        return
    for topic in topics:
        if topic.replication > 1:
            for rack, partitions in sorted(_alone_in_racks(topic, brokers.racks).items()):
                yield _one_rack(topic, rack, partitions)


def _alone_in_racks(topic: LiveTopic, racks: Mapping[int, str]) -> dict[str, list[int]]:
    """Returns the partitions whose copies are all in one rack, by that rack."""
    alone: dict[str, list[int]] = defaultdict(list)
    for partition, brokers in topic.replicas.items():
        # A broker without a rack may be in any.
        if brokers <= racks.keys() and len(names := {racks[broker] for broker in brokers}) == 1:
            alone[names.pop()].append(partition)
    return alone


def _one_rack(topic: LiveTopic, rack: str, partitions: Sequence[int]) -> Fault:
    numbers = ", ".join(map(str, partitions[:_MAX_LISTED]))
    more = ", ..." if len(partitions) > _MAX_LISTED else ""
    return Fault(
        f"topic {topic.name!r}: all copies of {len(partitions)} of {topic.partitions} partition(s) "
        f"({numbers}{more}) are in rack {rack!r}: when it fails, they can't be read or written",
        "move a copy of each to another rack with kafka-reassign-partitions: no field of Topic "
        "chooses brokers, and Kafka spreads the copies of new partitions over racks by itself",
    )


def _in_force(topic: Topic, brokers: Mapping[str, str]) -> Topic:
    config = {_MIN_ISR: brokers[_MIN_ISR]} if _MIN_ISR in brokers else {}
    # As in Kafka, milliseconds win over hours where both are set.
    hours = brokers.get("log.roll.hours", "")
    in_ms = str(int(hours) * 3_600_000) if hours.isdecimal() else ""
    segment = brokers.get("log.roll.ms") or in_ms
    # Kafka's default is not filled in: compacted topics that declare no segment.ms are warned of
    # it.
    if segment and timedelta(milliseconds=int(segment)) != DEFAULT_SEGMENT:
        config["segment.ms"] = segment
    # What the topic declares overrides the brokers.
    return replace(topic, config=config | dict(topic.config))


def _copies(topic: Topic) -> Iterator[Fault]:
    declared = _number(topic, _MIN_ISR)
    in_sync = min(declared or 1, topic.replication)
    if topic.replication >= _SAFE_COPIES and in_sync == 1:
        yield Fault(
            f"topic {topic.name!r}: replication {topic.replication}, but {_said_in_sync(topic)}: a "
            "write is confirmed by one broker alone when the others are behind",
            f'config={{"{_MIN_ISR}": "{topic.replication - 1}"}}',
        )
    elif topic.replication > 1 and in_sync == topic.replication:
        yield Fault(
            f"topic {topic.name!r}: {_MIN_ISR} equals replication {topic.replication}: "
            "nothing can be written while any broker is down",
            f'config={{"{_MIN_ISR}": "{topic.replication - 1}"}}'
            if topic.replication >= _SAFE_COPIES
            else f"{_SAFE_REMEDY}; on two brokers, {_MIN_ISR} of 1",
        )


def _fewer_copies(topic: Topic, brokers: int) -> Iterator[Fault]:
    """Warns of fewer copies than the brokers could have; of three, :func:`_copies` warns."""
    if topic.replication == 1:
        yield Fault(
            f"topic {topic.name!r}: replication is 1 (the default) on {brokers} brokers: while a "
            "broker is down, its partitions can't be read or written, and with its disk their "
            "records are lost",
            _SAFE_REMEDY,
        )
    elif topic.replication < _SAFE_COPIES and (_number(topic, _MIN_ISR) or 1) == 1:
        yield Fault(
            f"topic {topic.name!r}: replication {topic.replication} on {brokers} brokers, and "
            f"{_said_in_sync(topic)}: a write is confirmed by one broker alone when the other is "
            "behind",
            _SAFE_REMEDY,
        )


def _said_in_sync(topic: Topic) -> str:
    is_declared = _number(topic, _MIN_ISR) is not None
    return f"{_MIN_ISR} {'is 1' if is_declared else 'is not declared, and 1 by default'}"


def _segments(topic: Topic) -> Iterator[Fault]:
    segment = _duration(topic, "segment.ms") or DEFAULT_SEGMENT
    retention = declared_retention(topic)
    if topic.is_compacted and _number(topic, "segment.ms") is None:
        yield Fault(
            f"topic {topic.name!r} is compacted, but its open segment is not, for "
            f"{DEFAULT_SEGMENT.days} days: a reader from the beginning reads every change",
            'config={"segment.ms": "3600000"}',
        )
    elif retention is not None and segment > _FAR_ABOVE * retention:
        millis = retention // timedelta(milliseconds=1)
        yield Fault(
            f"topic {topic.name!r}: segment.ms is {segment}, retention {retention}: records stay "
            "until their segment is closed, and a reader from the beginning reads them",
            f'config={{"segment.ms": "{millis}"}}',
        )


def _number(topic: Topic, name: str) -> int | None:
    value = topic.config.get(name, "")
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _duration(topic: Topic, name: str) -> timedelta | None:
    millis = _number(topic, name)
    return None if millis is None else timedelta(milliseconds=millis)
