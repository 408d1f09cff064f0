"""Compares both ends of mirrors, mergers and dispatchers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from headrace.control.accepted_ranges import accepted_folder
from headrace.control.dispatchers import routes_of
from headrace.control.kafka_session import kafka_session
from headrace.control.mergers import plan_of
from headrace.control.mirrors import link_of
from headrace.control.project import LoadedProject
from headrace.control.site_clusters import own_cluster
from headrace.errors import HeadraceError
from headrace.ledger.windows import WindowBalance, WindowState
from headrace.link_ledger.accepted import AcceptedRange
from headrace.link_ledger.balance import link_windows
from headrace.link_ledger.copies import CopiedTopic, CopyPosition
from headrace.link_ledger.merges import MergedTopics
from headrace.link_ledger.records import NotCountedError
from headrace.links.dispatcher.declaration import Dispatcher
from headrace.links.dispatcher.positions import committed_positions as dispatched
from headrace.links.dispatcher.route import Route
from headrace.links.merger.declaration import Merger
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.positions import committed_positions as mirrored
from headrace.model import TopicPartition
from headrace.settings import Settings, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_COUNTED = "the records of both ends are counted with --recount"


@dataclass(frozen=True)
class DeclaredLink:
    """A link of the project.

    Attributes:
        kind: mirror, merger or dispatcher.
        name: of that.
        source: the topics that are read, with their site.
        target: the topic that is written, with its site.
        open: makes what is counted, with the clusters of both ends.
    """

    kind: str
    name: str
    source: str
    target: str
    open: Callable[[], CopiedTopic | MergedTopics]


@dataclass(frozen=True)
class LinkBalance:
    """The windows of one link.

    Attributes:
        kind: mirror, merger or dispatcher.
        name: of that.
        source: the topics that are read, with their site.
        target: the topic that is written, with its site.
        window_seconds: length of the windows.
        windows: those asked for, the oldest first. ``read`` are records of the source, ``rows``
            those of the target.
        left_out: ranges that a user has accepted to leave out, the oldest first.
        unknown: why nothing is known, as a sentence; empty: something is.
    """

    kind: str
    name: str
    source: str
    target: str
    window_seconds: int
    windows: tuple[WindowBalance, ...] = ()
    left_out: tuple[AcceptedRange, ...] = ()
    unknown: str = ""

    @property
    def is_unbalanced(self) -> bool:
        """Whether records are missing or too many at the target."""
        return any(window.state is WindowState.UNBALANCED for window in self.windows)


def declared_links(project: LoadedProject, names: Collection[str] = ()) -> list[DeclaredLink]:
    """Returns the links of mirrors, mergers and dispatchers; by default of all."""

    def chosen(name: str) -> bool:
        return name in names or not names

    return [
        *(
            link
            for mirror in project.mirrors.values()
            if chosen(mirror.name)
            for link in _of_mirror(project.settings, mirror)
        ),
        *(
            _of_merger(project, merger)
            for merger in project.mergers.values()
            if chosen(merger.name)
        ),
        *(
            link
            for dispatcher in project.dispatchers.values()
            if chosen(dispatcher.name)
            for link in _of_dispatcher(project, dispatcher)
        ),
    ]


def balance_links(
    project: LoadedProject,
    links: Sequence[DeclaredLink],
    is_requested: Callable[[datetime | None, int], bool],
    *,
    recount: bool,
) -> tuple[LinkBalance, ...]:
    """Counts both ends of links and compares them. Changes nothing.

    Args:
        project: that declares them.
        links: which ones.
        is_requested: says by its start and the length whether a window is to be shown.
        recount: whether to count; a link whose records are not counted is unknown.

    What can't be counted, for whatever reason, is unknown.

    Raises:
        JarError: if a jar of Spark's Kafka source can't be downloaded.
        JavaMissingError: if there is no Java.
    """
    seconds = project.settings.ledger.window_seconds
    if not recount:
        return tuple(_unknown(link, seconds, _NOT_COUNTED) for link in links)
    if not links:
        return ()
    with kafka_session(project.settings, "reconcile", environment()) as spark:
        return tuple(_balance(project.settings, link, spark, is_requested) for link in links)


def _balance(
    settings: Settings,
    link: DeclaredLink,
    spark: SparkSession,
    is_requested: Callable[[datetime | None, int], bool],
) -> LinkBalance:
    seconds = settings.ledger.window_seconds
    try:
        count = link.open().count(spark, seconds)
    except (HeadraceError, NotCountedError) as error:
        return _unknown(link, seconds, str(error))
    windows = link_windows(count, seconds, time.time())
    return LinkBalance(
        link.kind,
        link.name,
        link.source,
        link.target,
        seconds,
        tuple(window for window in windows if is_requested(window.start, seconds)),
        tuple(count.accepted),
        "" if windows else "; ".join(count.unknown),
    )


def _unknown(link: DeclaredLink, seconds: int, reason: str) -> LinkBalance:
    names = (link.kind, link.name, link.source, link.target)
    return LinkBalance(*names, seconds, unknown=reason)


def _of_mirror(settings: Settings, mirror: Mirror) -> Iterator[DeclaredLink]:
    site = own_cluster(settings).site
    for topic, copy in mirror.topics.items():
        yield DeclaredLink(
            "mirror",
            mirror.name,
            f"{topic} at {mirror.source}",
            f"{copy.name} at {site}",
            partial(_mirrored_topic, settings, mirror, topic),
        )


def _mirrored_topic(settings: Settings, mirror: Mirror, topic: str) -> CopiedTopic:
    link = link_of(settings, mirror)

    def positions(sources: Collection[TopicPartition]) -> dict[TopicPartition, CopyPosition]:
        known = mirrored(link, [link.copy_of(source) for source in sources])
        return {
            link.source_of(copy): CopyPosition(at.offset, at.topic_id)
            for copy, at in known.items()
            if at is not None
        }

    return CopiedTopic(
        link.group,
        link.source_site,
        link.target_site,
        link.source,
        link.target,
        topic,
        link.copies[topic],
        positions,
        link.is_sent,
        accepted_folder(settings, link.group).read,
    )


def _of_merger(project: LoadedProject, merger: Merger) -> DeclaredLink:
    site = own_cluster(project.settings).site

    def merged_topics() -> MergedTopics:
        plan = plan_of(project, merger)
        return MergedTopics(plan, site, accepted_folder(project.settings, plan.group).read)

    return DeclaredLink(
        "merger",
        merger.name,
        ", ".join(topic.name for topic in merger.sources),
        merger.target.name,
        merged_topics,
    )


def _of_dispatcher(project: LoadedProject, dispatcher: Dispatcher) -> Iterator[DeclaredLink]:
    site = own_cluster(project.settings).site
    for target, topic in dispatcher.targets.items():
        yield DeclaredLink(
            "dispatcher",
            dispatcher.name,
            f"{dispatcher.source.name} at {site}",
            f"{topic} at {target}",
            partial(_dispatched_topic, project, dispatcher, target),
        )


def _dispatched_topic(project: LoadedProject, dispatcher: Dispatcher, target: str) -> CopiedTopic:
    [route] = routes_of(project, dispatcher, [target])
    return CopiedTopic(
        route.group,
        route.source_site,
        route.target_site,
        route.source,
        route.target,
        route.topic,
        route.target_topic,
        partial(_route_positions, route),
        route.is_sent,
        accepted_folder(project.settings, route.group).read,
    )


def _route_positions(
    route: Route, sources: Collection[TopicPartition]
) -> dict[TopicPartition, CopyPosition]:
    known = dispatched(route, sources)
    return {source: CopyPosition(at.offset, at.topic_id) for source, at in known.items()}
