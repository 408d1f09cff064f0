"""Dispatchers of a project: what they run with, how far they are, how to continue after a loss."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.errors import (
    BrokerUnreachableError,
    LinkLossError,
    LinkNotRefusedError,
    PartitionMissingError,
    RefusedError,
)
from headrace.kafka.client.offsets import latest_offsets
from headrace.links.accepted import AcceptedLoss, AcceptedRange, accept, accepted_folder
from headrace.links.dispatcher.declaration import Dispatcher, DispatchMode
from headrace.links.dispatcher.positions import (
    commit_positions,
    committed_positions,
    find_starts,
    live_topic,
)
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.status import DispatcherStatus
from headrace.links.standing import LinkedPartition, Standing
from headrace.links.status import refused_now
from headrace.links.target import naming_site
from headrace.model import TopicPartition
from headrace.project.loaded import LoadedProject
from headrace.project.site_clusters import cluster_of, own_cluster, site_clusters
from headrace.service.status import StatusFolder
from headrace.settings import Settings
from headrace.spark.kafka_session import kafka_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[.*\])?")


def routes_of(
    project: LoadedProject, dispatcher: Dispatcher, sites: Collection[str] = ()
) -> list[DispatcherRoute]:
    """Returns the targets of a dispatcher, with the clusters of their sites.

    Args:
        project: that declares it.
        dispatcher: which one.
        sites: which of its targets; empty: all.

    Raises:
        NotDeclaredError: if headrace.toml has no such site.
        BrokerUnreachableError: if an embedded broker was never started.
    """
    settings = project.settings.of("dispatchers", dispatcher.name)
    own = own_cluster(settings)
    names = frozenset(cluster.site for cluster in site_clusters(settings))
    return [
        DispatcherRoute(
            dispatcher.name,
            f"{dispatcher.consumer_group}.{site}",
            own.site,
            site,
            own.client_config(may_be_down=True),
            cluster_of(settings, site).client_config(may_be_down=True),
            dispatcher.source.name,
            topic,
            dispatcher.home,
            (
                frozenset(at for at, targets in dispatcher.related.items() if site in targets)
                if dispatcher.related
                else None
            ),
            names,
            dispatcher.mode,
            dispatcher.commit_every.total_seconds(),
        )
        for site, topic in dispatcher.targets.items()
        if site in sites or not sites
    ]


def dispatcher_session(
    settings: Settings, dispatcher: Dispatcher, targets: int, environ: Mapping[str, str]
) -> AbstractContextManager[SparkSession]:
    """Returns a Spark session for the targets of a dispatcher. Raises as :func:`kafka_session`.

    On one machine it has the cores that real-time mode takes, one per partition and target, and as
    many for partitions that are added. They are threads, which mostly wait.
    """
    master = settings.spark.master
    if _LOCAL.fullmatch(master) and dispatcher.mode is DispatchMode.REAL_TIME:
        master = f"local[{max(os.cpu_count() or 1, 2 * dispatcher.source.partitions * targets)}]"
    return kafka_session(settings, f"dispatcher {dispatcher.name}", environ, master)


def route_standings(project: LoadedProject, dispatcher: Dispatcher) -> list[Standing]:
    """Returns how far a dispatcher has come with each target.

    A site that does not respond is reported as such; the others are not held up by it.

    Raises:
        AuthorizationError: if an ACL is missing at a site.
    """
    records = refused_now(StatusFolder(project.settings.state, DispatcherStatus), dispatcher.name)
    return [_standing(route, records) for route in routes_of(project, dispatcher)]


def _standing(route: DispatcherRoute, records: Mapping[str, str]) -> Standing:
    instances, partitions, why = "", tuple[LinkedPartition, ...](), ""
    try:
        instances, partitions = _instances_and_partitions(route, records)
    except (BrokerUnreachableError, RefusedError) as error:
        why = str(error)
    details = {"site": route.target_site, "instance": instances}
    return Standing("dispatcher", route.dispatcher, details, partitions, None, {"refused": why})


def _instances_and_partitions(
    route: DispatcherRoute, records: Mapping[str, str]
) -> tuple[str, tuple[LinkedPartition, ...]]:
    starts = find_starts(route)
    sources = [*starts.positions, *starts.refused]
    known = committed_positions(route, sources)
    with naming_site(route.source_site):
        live = live_topic(route, route.source_site)
        led = [source for source in sources if source.partition not in live.leaderless]
        ends = {source: end for source, (end, _) in latest_offsets(route.source, led).items()}
    partitions: list[LinkedPartition] = []
    for source in sorted(sources):
        at, why = starts.positions.get(source, known.get(source)), starts.refused.get(source)
        position = None if at is None else at.offset
        start = why.accepted_offset if isinstance(why, LinkLossError) else position or 0
        # Only instances know of records that the target does not take.
        reason = why or records.get(f"{route.target_site}/{source.path}", "")
        partitions.append(LinkedPartition.of(source, position, start, ends.get(source), reason))
    instances = sorted({at.instance for at in known.values() if at.instance})
    return ", ".join(instances), tuple(partitions)


def accept_loss(
    project: LoadedProject, dispatcher: Dispatcher, site: str, partition: TopicPartition
) -> AcceptedLoss:
    """Continues a partition after records that are not dispatched to a target.

    The ledger keeps which. A running instance continues with it within half a minute.

    Raises:
        LinkNotRefusedError: if no loss must be accepted.
        LinkNoPartitionError, LinkNoLeaderError: if the partition can't be read or written.
        PartitionMissingError: if the source has no such partition.
        AuthorizationError: if an ACL is missing at a site.
        BrokerUnreachableError: if the brokers of a site do not answer.
        SinkError: if the ledger can't be written; nothing is accepted then.
    """
    [route] = routes_of(project, dispatcher, [site])
    loss = _loss(route, site, partition)
    topic_id = live_topic(route, route.source_site).topic_id
    # An instance need not be stopped: it starts a query from this position within half a minute.
    before = committed_positions(route, [partition])[partition]
    copy = route.copy_of(partition)
    with naming_site(site):
        end, _ = latest_offsets(route.target, [copy])[copy]
    after = loss.accepted_offset
    is_gap = before.topic_id == topic_id and after > loss.next_offset
    # Otherwise offsets mean other records than those whose copies are there.
    scan_from = before.scan_from if is_gap else end
    epoch = before.epoch if is_gap else -1
    at = replace(before, offset=after, topic_id=topic_id, scan_from=scan_from, epoch=epoch)
    range_ = AcceptedRange(
        partition.topic,
        topic_id,
        live_topic(route, site).topic_id,
        partition.partition,
        loss.next_offset,
        after,
        datetime.now(UTC),
        loss.reason,
        None if is_gap else end,
    )
    folder = accepted_folder(project.settings, route.group)
    return accept(
        "dispatcher", folder, range_, lambda: commit_positions(route, {partition: at}), site
    )


def _loss(route: DispatcherRoute, site: str, partition: TopicPartition) -> LinkLossError:
    """Returns what a partition has lost; raises where there is nothing that can be accepted."""
    starts = find_starts(route)
    refusal = starts.refused.get(partition)
    if refusal is None and partition not in starts.positions:
        partitions = len(starts.positions) + len(starts.refused)
        raise PartitionMissingError(partition.topic, partition.partition, partitions)
    if refusal is None:
        raise LinkNotRefusedError(*route.named(site), partition.path)
    if not isinstance(refusal, LinkLossError):
        raise refusal
    return refusal
