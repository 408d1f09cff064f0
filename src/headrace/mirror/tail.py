"""The end of a copy: the origins of its last records tell where a mirror goes on.

It is read only where no position is committed. Records of other writers and of other mirrors may
be among those of the link, and markers of transactions behind them, so that more and more of the
end is read until a record of the link is there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError
from headrace.kafka.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client import consumer, earliest_offsets, latest_offsets
from headrace.kafka.headers import headers_of
from headrace.mirror.link import Link
from headrace.mirror.origin import Origin, origins
from headrace.model import TopicPartition
from headrace.transfer.target import naming_site

_POLL_SECONDS = 0.2
_SILENCE_SECONDS = 30.0
_FIRST_LOOK_OFFSETS = 16  # a record, and markers of transactions behind it
_LOOK_FACTOR = 16


def last_origins(link: Link, copies: Collection[TopicPartition]) -> dict[TopicPartition, Origin]:
    """Returns the origins of the last records that this link brought to partitions of the target.

    Partitions without such a record are left out.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        BrokerUnreachableError: if the target's brokers do not answer for 30 s.
    """
    with naming_site(link.target_site):
        ends = {copy: end for copy, (end, _) in latest_offsets(link.target, copies).items()}
        firsts = earliest_offsets(link.target, ends)
        last: dict[TopicPartition, Origin] = {}
        begins = ends
        look = _FIRST_LOOK_OFFSETS
        while begins := {
            copy: max(firsts[copy], ends[copy] - look)
            for copy, begin in begins.items()
            if copy not in last and begin > firsts[copy]
        }:
            last |= _last_between(link, begins, ends)
            look *= _LOOK_FACTOR
        return last


def _last_between(
    link: Link, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Origin]:
    last: dict[TopicPartition, Origin] = {}
    reader = consumer(link.target, link.group)
    reader.assign(_at(begins))
    open_ = set(begins)
    deadline = time.monotonic() + _SILENCE_SECONDS
    try:
        while open_:
            message = reader.poll(_POLL_SECONDS)
            if message is None or message.topic() is None:
                if time.monotonic() > deadline:
                    servers = link.target["bootstrap.servers"]
                    raise BrokerUnreachableError(servers, "the ends of its topics can't be read")
                continue
            deadline = time.monotonic() + _SILENCE_SECONDS
            copy = TopicPartition(message.topic(), message.partition())
            if _is_gone(link, message):
                if not _begin_again(link, reader, copy, ends[copy]):
                    open_.discard(copy)
            elif _is_end(message, ends[copy]):
                open_.discard(copy)
            elif message.error() is None and (origin := _origin(link, copy, message)):
                last[copy] = origin
    finally:
        reader.close()
    return last


def _begin_again(
    link: Link, reader: confluent_kafka.Consumer, copy: TopicPartition, end: int
) -> bool:
    """Reads a partition from its first record; whether there is one before ``end``."""
    first = earliest_offsets(link.target, [copy])[copy]
    reader.incremental_unassign([confluent_kafka.TopicPartition(copy.topic, copy.partition)])
    if first < end:
        reader.incremental_assign(_at({copy: first}))
    return first < end


def _at(begins: Mapping[TopicPartition, int]) -> list[confluent_kafka.TopicPartition]:
    return [
        confluent_kafka.TopicPartition(copy.topic, copy.partition, at)
        for copy, at in begins.items()
    ]


def _origin(link: Link, copy: TopicPartition, message: Any) -> Origin | None:
    """The origin of a record, if this link brought it: the last one it has."""
    known = origins(headers_of(message) or ())
    source = link.source_of(copy)
    is_ours = known and (known[-1].site, known[-1].topic, known[-1].partition) == (
        link.source_site,
        source.topic,
        source.partition,
    )
    return known[-1] if is_ours else None


def _is_gone(link: Link, message: Any) -> bool:
    """Whether retention was faster: the record to begin with is there no more.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        KafkaException: if an error is permanent.
    """
    error = message.error()
    if error is None:
        return False
    means = meaning(error)
    if means is Meaning.FORBIDDEN:
        raise forbidden(link.target, "READ", f"topic {message.topic()}")
    if means not in {Meaning.END, Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.NO_RECORD}:
        raise KafkaException(error)
    return means is Meaning.NO_RECORD


def _is_end(message: Any, end: int) -> bool:
    error = message.error()
    if error is None:
        return bool(message.offset() >= end)
    return meaning(error) is Meaning.END
