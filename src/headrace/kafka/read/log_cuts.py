"""Whether a log is still the one that was read: by the epochs of its leaders (KIP-320).

A reader keeps the epoch of the leader with its offset. A later leader reports where records of that
epoch end in its log. If that is before the offset, the log was cut there, after an unclean election
or the loss of a disk, and holds other records after the cut now.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.admin_requests import REQUEST_TIMEOUT_SECONDS
from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.offsets import latest_offsets
from headrace.kafka.client.partitions import client_partition
from headrace.model import TopicPartition

_POLL_SECONDS = 0.2
# A leader answers with the first record after the position. One response should hold those of many
# partitions, and the next is requested before all of them were taken.
_FIRST_RECORDS = {
    "fetch.wait.max.ms": "50",
    "fetch.message.max.bytes": "65536",
    "fetch.queue.backoff.ms": "10",
    "queued.min.messages": "1000",
}
# librdkafka reports the offset in the text of its error alone.
_CUT = re.compile(r"broker end offset is (\d+)")


class Seen(NamedTuple):
    """A position, and the epoch of a leader that had what is before it; -1: not known."""

    offset: int
    epoch: int = -1


def epoch_of(record: confluent_kafka.Message) -> int:
    """Returns the epoch of the leader that wrote a record; -1: not known."""
    epoch = record.leader_epoch()
    return -1 if epoch is None else int(epoch)


def cut_offset(error: confluent_kafka.KafkaError) -> int | None:
    """Returns where the log was cut, as a client's error says that meets it; ``None``: it does not.

    See :func:`seek_and_compare` for when it does.
    """
    cut = _CUT.search(error.str())
    return None if cut is None else int(cut[1])


def seek_and_compare(
    reader: confluent_kafka.Consumer, position: confluent_kafka.TopicPartition
) -> None:
    """Moves a client to a position with an epoch, and makes it compare the log.

    librdkafka compares for sure at a seek alone. After an assignment it compares when metadata
    arrives that has a newer epoch: metadata that it had before is not compared again, so that it
    may take a later record for the one at the position. Whoever relies on the client therefore
    seeks once the partition was started, which its first message shows: a record or its end.
    """
    try:
        reader.seek(position)
    except KafkaException as error:
        # Stopped meanwhile: it has compared, and the error that it found comes with a later poll.
        if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001
            raise


def find_cuts(config: ClientConfig, topic: str, seen: Mapping[int, Seen]) -> dict[int, int]:
    """Partitions whose log was cut before a position, with the offset where it was cut.

    Raises:
        BrokerUnreachableError: if the brokers do not answer about a partition within 15 s.
        AuthorizationError: if reading the topic is not allowed.
    """
    # Without an epoch there is nothing to compare.
    known = {p: at for p, at in seen.items() if at.epoch >= 0}
    if not known:
        return {}
    positions = {
        p: client_partition(TopicPartition(topic, p), at.offset, epoch=at.epoch)
        for p, at in known.items()
    }
    reader = consumer(config, "headrace.tasks", _FIRST_RECORDS)
    try:
        reader.assign(list(positions.values()))
        return _answers(config, reader, topic, positions)
    finally:
        reader.close()


def whole_ends(
    config: ClientConfig, seen: Mapping[TopicPartition, Seen]
) -> dict[TopicPartition, Seen]:
    """Returns the ends of logs, with the epochs of their leaders; those that were cut are left out.

    Args:
        config: of the cluster.
        seen: what was read of each log. Where another one leads now, it is asked for a cut.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic, or that partition of it, does not exist.
        AuthorizationError: if reading a topic is not allowed.
    """
    ends = {partition: Seen(*end) for partition, end in latest_offsets(config, seen).items()}
    cuts = find_cuts_by_new_leaders(config, seen, ends)
    return {partition: end for partition, end in ends.items() if partition not in cuts}


def find_cuts_by_new_leaders(
    config: ClientConfig,
    seen: Mapping[TopicPartition, Seen],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    """Returns where logs were cut before a position, of those that another leader has now.

    Args:
        config: of the cluster.
        seen: what was read of each log.
        ends: of these logs, as :func:`latest_offsets` returns them.

    Raises:
        BrokerUnreachableError: if the brokers do not answer about a partition within 15 s.
        AuthorizationError: if reading a topic is not allowed.
    """
    newly_led: dict[str, dict[int, Seen]] = {}
    for partition, at in seen.items():
        if at.epoch != ends[partition][1]:
            newly_led.setdefault(partition.topic, {})[partition.partition] = at
    return {
        TopicPartition(topic, number): cut
        for topic, positions in newly_led.items()
        for number, cut in find_cuts(config, topic, positions).items()
    }


def _answers(
    config: ClientConfig,
    reader: confluent_kafka.Consumer,
    topic: str,
    positions: Mapping[int, confluent_kafka.TopicPartition],
) -> dict[int, int]:
    cuts: dict[int, int] = {}
    open_, sought = set(positions), set[int]()
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    reason = f"no leader says where the epochs of {topic} end"
    while open_:
        if time.monotonic() > deadline:
            raise BrokerUnreachableError(config.get("bootstrap.servers", ""), reason)
        message = reader.poll(_POLL_SECONDS)
        if message is None:
            continue
        error = message.error()
        means = Meaning.END if error is None else meaning(error)
        if means is Meaning.FORBIDDEN:
            raise forbidden(config, "READ", f"topic {topic}")
        if means in {Meaning.UNREACHABLE, Meaning.TRANSIENT} or message.topic() is None:
            reason = error.str()
            continue
        partition = message.partition()
        if means is Meaning.END and partition in open_ - sought:
            sought.add(partition)
            seek_and_compare(reader, positions[partition])
            continue
        cut = cut_offset(error) if means is Meaning.TRUNCATED else None
        if cut is not None:
            cuts[partition] = cut
        if partition in open_:
            open_.discard(partition)
            deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    return cuts
