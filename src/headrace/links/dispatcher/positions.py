"""Where a route continues, and whether the source still has what comes next.

The position is an offset that is committed at the target, for the partition of its topic: all
records of the source before it are there. It goes with that topic: a source that is deleted takes
no offset with it, and a target's topic that is recreated is filled again. Where no offset is
committed, as after a week without an instance, all records of the source must be sent that the
target does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.errors import LinkLossError, LinkNoLeaderError, LinkNoPartitionError, RefusedError
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.offsets import commit, committed
from headrace.kafka.client.partitions import client_partition
from headrace.kafka.read.resume import (
    LogState,
    Loss,
    log_states,
    verdict,
    with_cuts,
)
from headrace.links.copy_ends import copied_since
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.starts import Starts
from headrace.links.target import naming_site
from headrace.model import TopicPartition
from headrace.spark.claimed_query import CommittedPosition


def committed_positions(
    route: DispatcherRoute, sources: Collection[TopicPartition]
) -> dict[TopicPartition, CommittedPosition]:
    """Returns what is committed for partitions of the source; those without are left out.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        BrokerUnreachableError: if its brokers do not answer.
    """
    with naming_site(route.target_site):
        offsets = committed(route.target, route.group, map(route.copy_of, sources))
    return {TopicPartition(route.topic, o.partition): CommittedPosition.of(o) for o in offsets}


def commit_positions(
    route: DispatcherRoute, positions: Mapping[TopicPartition, CommittedPosition]
) -> None:
    """Commits positions of the route.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        BrokerUnreachableError: if its brokers do not answer.
        KafkaException: if others subscribe with its group.
    """
    offsets = [
        client_partition(route.copy_of(source), at.offset, at.metadata, at.epoch)
        for source, at in positions.items()
    ]
    with naming_site(route.target_site):
        commit(route.target, route.group, offsets)


def find_starts(route: DispatcherRoute) -> Starts[CommittedPosition]:
    """Returns where the partitions of the source continue.

    Raises:
        LinkNoPartitionError: if the topic of a site does not exist.
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
    known = {
        source: at
        for source, at in committed_positions(route, ready).items()
        if at.reached.is_of(target.topic_id)  # else the target must be filled again
    }
    with naming_site(route.source_site):
        logs = log_states(route.source, {route.topic: topic}, ready)
    known |= {s: CommittedPosition(logs[s].first) for s in ready if s not in known}
    known |= _behind_what_was_sent(route, known, logs)
    with naming_site(route.source_site):
        reached = {source: at.reached for source, at in known.items()}
        logs = with_cuts(route.source, logs, reached)
    positions: dict[TopicPartition, CommittedPosition] = {}
    for source in ready:
        at, log = known[source], logs[source]
        loss = _loss(route, source, at, log)
        if loss is not None:
            refused[source] = loss
        else:
            # What was sent since the commit is judged by its epoch, also by the next start.
            kept = log.epoch if at.epoch < 0 else at.epoch
            positions[source] = replace(
                at, topic_id=log.topic_id, epoch=kept, target_id=target.topic_id
            )
    return Starts(positions, refused, frozenset())


def _behind_what_was_sent(
    route: DispatcherRoute,
    known: Mapping[TopicPartition, CommittedPosition],
    logs: Mapping[TopicPartition, LogState],
) -> dict[TopicPartition, CommittedPosition]:
    """Moves positions to the first records, where all before those was sent since the commit."""
    deleted = {
        source: at
        for source, at in known.items()
        if at.offset < logs[source].first and at.topic_id == logs[source].topic_id
    }
    floors = {route.copy_of(source): at.scan_from for source, at in deleted.items()}
    at_target = copied_since(route.copies(deleted), floors)
    return {
        source: replace(at, offset=logs[source].first)
        for source, at in deleted.items()
        if max(at_target.get(route.copy_of(source), ()), default=-1) + 1 >= logs[source].first
    }


def live_topic(route: DispatcherRoute, site: str) -> LiveTopic:
    """Returns the topic of one of the two sites.

    Raises:
        LinkNoPartitionError: if it does not exist.
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
        raise LinkNoPartitionError(*route.named(site), f"{name}/0")
    return topic


def _unready(
    route: DispatcherRoute, source: TopicPartition, topic: LiveTopic, target: LiveTopic
) -> RefusedError | None:
    """Returns why a partition can't be read or written at all."""
    copy = route.copy_of(source)
    if copy.partition >= target.partitions:
        return LinkNoPartitionError(*route.named(route.target_site), copy.path)
    for site, live, place in (
        (route.source_site, topic, source),
        (route.target_site, target, copy),
    ):
        if place.partition in live.leaderless:
            return LinkNoLeaderError(*route.named(site), place.path)
    return None


def _loss(
    route: DispatcherRoute, source: TopicPartition, at: CommittedPosition, log: LogState
) -> LinkLossError | None:
    now = verdict(at.reached, log)
    if not isinstance(now, Loss):
        return None
    names = route.named(route.target_site)
    return LinkLossError(*names, source.path, at.offset, now.offset, now.reason(at.offset))
