"""Where a route goes on, and whether the source still has what comes next.

The position is an offset that is committed at the target, for the partition of its topic: all
records of the source before it are there. It goes with that topic: a source that is deleted takes
no offset with it, and a target's topic that is recreated is filled again. Where no offset is
committed, as after a week without an instance, all that the source has is to be sent, but for what
the target has.

The metadata of a commit names the topic id that the offset is one of; the offset at the target from
which on copies of later records are to be looked for; and the instance that committed. The leader
epoch of a commit is that of the source (KIP-320): it says whether the log was cut since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import confluent_kafka

from headrace.dispatcher.route import Route
from headrace.errors import (
    DispatcherLossError,
    DispatcherNoLeaderError,
    DispatcherNoPartitionError,
    RefusedError,
)
from headrace.kafka.client import (
    LiveTopic,
    commit,
    committed,
    describe,
    earliest_offsets,
    latest_offsets,
)
from headrace.kafka.log_cuts import Seen, find_cuts_by_new_leaders
from headrace.model import TopicPartition
from headrace.transfer.committed_position import CommittedPosition
from headrace.transfer.starts import Starts
from headrace.transfer.tail import offsets_since
from headrace.transfer.target import naming_site


def committed_positions(
    route: Route, sources: Collection[TopicPartition]
) -> dict[TopicPartition, CommittedPosition]:
    """Returns what is committed for partitions of the source; those without are left out.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        BrokerUnreachableError: if its brokers do not answer.
    """
    with naming_site(route.target_site):
        offsets = committed(route.target, route.group, map(route.copy_of, sources))
    return {TopicPartition(route.topic, o.partition): CommittedPosition.of(o) for o in offsets}


def commit_positions(route: Route, positions: Mapping[TopicPartition, CommittedPosition]) -> None:
    """Commits positions of the route.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        BrokerUnreachableError: if its brokers do not answer.
        KafkaException: if others subscribe with its group.
    """
    topic = route.target_topic
    offsets = [
        confluent_kafka.TopicPartition(topic, source.partition, at.offset, at.metadata, at.epoch)
        for source, at in positions.items()
    ]
    with naming_site(route.target_site):
        commit(route.target, route.group, offsets)


def find_starts(route: Route) -> Starts[CommittedPosition]:
    """Returns where the partitions of the source go on.

    Raises:
        DispatcherNoPartitionError: if the topic of a site does not exist.
        AuthorizationError: if an ACL is missing at a site.
        BrokerUnreachableError: if the brokers of a site do not answer.
    """
    topic = live_topic(route, route.source_site)
    target = live_topic(route, route.target_site)
    refused: dict[TopicPartition, RefusedError] = {
        source: refusal
        for source in topic.all_partitions
        if (refusal := _unready(route, source, topic, target)) is not None
    }
    ready = [source for source in topic.all_partitions if source not in refused]
    known = committed_positions(route, ready)
    with naming_site(route.source_site):
        firsts = earliest_offsets(route.source, ready)
        ends = latest_offsets(route.source, ready)
    known |= {s: CommittedPosition(firsts[s]) for s in ready if s not in known}
    known |= _behind_what_was_sent(
        route,
        {
            source: at
            for source, at in known.items()
            if at.offset < firsts[source] and at.topic_id == topic.topic_id
        },
        firsts,
    )
    seen = {
        source: Seen(at.offset, at.epoch)
        for source, at in known.items()
        if at.topic_id == topic.topic_id
    }
    with naming_site(route.source_site):
        cuts = find_cuts_by_new_leaders(route.source, seen, ends)
    positions: dict[TopicPartition, CommittedPosition] = {}
    for source in ready:
        at, (end, epoch) = known[source], ends[source]
        loss = _loss(route, source, at, topic.topic_id, (firsts[source], end, cuts.get(source)))
        if loss is not None:
            refused[source] = loss
        else:
            # What was sent since the commit is judged by its epoch, also by the next start.
            kept = epoch if at.epoch < 0 else at.epoch
            positions[source] = replace(at, topic_id=topic.topic_id, epoch=kept)
    return Starts(positions, refused, frozenset())


def _behind_what_was_sent(
    route: Route,
    behind: Mapping[TopicPartition, CommittedPosition],
    firsts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, CommittedPosition]:
    """Moves positions to the first records, where all before those was sent since the commit."""
    floors = {route.copy_of(source): at.scan_from for source, at in behind.items()}
    at_target = offsets_since(route.copies(behind), floors)
    return {
        source: replace(at, offset=firsts[source])
        for source, at in behind.items()
        if max(at_target.get(route.copy_of(source), ()), default=-1) + 1 >= firsts[source]
    }


def live_topic(route: Route, site: str) -> LiveTopic:
    """Returns the topic of one of the two sites.

    Raises:
        DispatcherNoPartitionError: if it does not exist.
        AuthorizationError: if an ACL is missing at the site.
        BrokerUnreachableError: if its brokers do not answer.
    """
    config, name = (
        (route.source, route.topic)
        if site == route.source_site
        else (route.target, route.target_topic)
    )
    with naming_site(site):
        topic = describe(config, [name]).get(name)
    if topic is None:
        raise DispatcherNoPartitionError(route.dispatcher, site, f"{name}/0")
    return topic


def _unready(
    route: Route, source: TopicPartition, topic: LiveTopic, target: LiveTopic
) -> RefusedError | None:
    """Returns why a partition can't be read or written at all."""
    copy = route.copy_of(source)
    if copy.partition >= target.partitions:
        name = copy.path
        return DispatcherNoPartitionError(route.dispatcher, route.target_site, name)
    for site, live, place in (
        (route.source_site, topic, source),
        (route.target_site, target, copy),
    ):
        if place.partition in live.leaderless:
            name = place.path
            return DispatcherNoLeaderError(route.dispatcher, site, name)
    return None


def _loss(
    route: Route,
    source: TopicPartition,
    at: CommittedPosition,
    topic_id: str,
    log: tuple[int, int, int | None],
) -> DispatcherLossError | None:
    first, end, cut = log
    name = source.path
    where = (route.dispatcher, route.target_site, name, at.offset)
    if at.topic_id not in {"", topic_id}:
        return DispatcherLossError(*where, first, "the topic was deleted and recreated")
    if at.offset < first:
        gone = f"{first - at.offset} offsets are gone, {at.offset} to {first - 1}"
        return DispatcherLossError(*where, first, f"{gone}: retention or an operator deleted them")
    if cut is not None:
        reason = f"its log was truncated at offset {cut}, and dispatched records are gone"
        return DispatcherLossError(*where, cut, reason)
    if at.offset > end:
        reason = f"its log ends at offset {end}: it was truncated, and dispatched records are gone"
        return DispatcherLossError(*where, end, reason)
    return None
