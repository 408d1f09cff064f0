"""Compares both ends of mirrors, mergers and dispatchers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.kafka.read.resume import Position
from headrace.ledger.balance import NotCountedError
from headrace.ledger.request import ReconcileRequest
from headrace.links.accepted import accepted_folder
from headrace.links.dispatcher.declaration import Dispatcher
from headrace.links.dispatcher.positions import committed_positions as dispatched
from headrace.links.dispatcher.standing import routes_of
from headrace.links.ledger.book import LinkBook, link_windows
from headrace.links.ledger.copies import CopiedTopic
from headrace.links.ledger.merges import MergedTopics
from headrace.links.merger.declaration import Merger
from headrace.links.merger.standing import plan_of
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.positions import committed_positions as mirrored
from headrace.links.mirror.standing import mirror_plan
from headrace.model import TopicPartition
from headrace.project.loaded import LoadedProject
from headrace.project.site_clusters import own_cluster
from headrace.settings import Settings, environment
from headrace.spark.kafka_session import kafka_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_COUNTED = "the records of both ends are counted with --recount"


@dataclass(frozen=True)
class DeclaredLink:
    """A link of the project.

    Attributes:
        book: with its names, and without windows.
        open: makes what is counted, with the clusters of both ends.
    """

    book: LinkBook
    open: Callable[[], CopiedTopic | MergedTopics]


def declared_links(project: LoadedProject, names: Collection[str] = ()) -> list[DeclaredLink]:
    """Returns the links of mirrors, mergers and dispatchers; by default of all."""
    links = chain(
        *(_of_mirror(project.settings, mirror) for mirror in project.declared(Mirror).values()),
        (_of_merger(project, merger) for merger in project.declared(Merger).values()),
        *(
            _of_dispatcher(project, dispatcher)
            for dispatcher in project.declared(Dispatcher).values()
        ),
    )
    return [link for link in links if link.book.name in names or not names]


def link_books(
    project: LoadedProject,
    links: Sequence[DeclaredLink],
    request: ReconcileRequest,
) -> tuple[LinkBook, ...]:
    """Counts both ends of links and compares them. Changes nothing.

    A link whose records are not counted, since there is no ``recount`` or for whatever reason, is
    unknown. Of windows, those remain that are requested, by their start and length.

    Raises:
        JarError: if a jar of Spark's Kafka source can't be downloaded.
        JavaMissingError: if there is no Java.
    """
    if not request.recount:
        return tuple(replace(link.book, unknown=_NOT_COUNTED) for link in links)
    if not links:
        return ()
    with kafka_session(project.settings, "reconcile", environment()) as spark:
        return tuple(_book(link, spark, request) for link in links)


def _book(link: DeclaredLink, spark: SparkSession, request: ReconcileRequest) -> LinkBook:
    seconds = link.book.window_seconds
    try:
        count = link.open().count(spark, seconds)
    except (HeadraceError, NotCountedError) as error:
        return replace(link.book, unknown=str(error))
    windows = link_windows(count, seconds, time.time())
    return replace(
        link.book,
        windows=tuple(window for window in windows if request.shows(window.start, seconds)),
        left_out=tuple(count.accepted),
        unknown="" if windows else "; ".join(count.unknown),
    )


def _of_mirror(settings: Settings, mirror: Mirror) -> Iterator[DeclaredLink]:
    site, seconds = own_cluster(settings).site, settings.ledger.window_seconds
    for topic, copy in mirror.topics.items():
        ends = f"{topic} at {mirror.source}", f"{copy.name} at {site}"
        book = LinkBook("mirror", mirror.name, *ends, seconds)
        yield DeclaredLink(book, partial(_mirrored_topic, settings, mirror, topic))


def _mirrored_topic(settings: Settings, mirror: Mirror, topic: str) -> CopiedTopic:
    link = mirror_plan(settings, mirror)

    def positions(sources: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        known = mirrored(link, [link.copy_of(source) for source in sources])
        return {link.source_of(copy): at for copy, at in known.items() if at is not None}

    return CopiedTopic(
        link.group,
        link.source_site,
        link.target_site,
        link.source,
        link.target,
        topic,
        link.copies[topic],
        positions,
        link.filter.is_copied_column,
        accepted_folder(settings, link.group).read,
    )


def _of_merger(project: LoadedProject, merger: Merger) -> DeclaredLink:
    site = own_cluster(project.settings).site

    def merged_topics() -> MergedTopics:
        plan = plan_of(project, merger)
        return MergedTopics(plan, site, accepted_folder(project.settings, plan.group).read)

    ends = ", ".join(topic.name for topic in merger.sources), merger.target.name
    seconds = project.settings.ledger.window_seconds
    return DeclaredLink(LinkBook("merger", merger.name, *ends, seconds), merged_topics)


def _of_dispatcher(project: LoadedProject, dispatcher: Dispatcher) -> Iterator[DeclaredLink]:
    site, seconds = own_cluster(project.settings).site, project.settings.ledger.window_seconds
    for target, topic in dispatcher.targets.items():
        ends = f"{dispatcher.source.name} at {site}", f"{topic} at {target}"
        book = LinkBook("dispatcher", dispatcher.name, *ends, seconds)
        yield DeclaredLink(book, partial(_dispatched_topic, project, dispatcher, target))


def _dispatched_topic(project: LoadedProject, dispatcher: Dispatcher, target: str) -> CopiedTopic:
    [route] = routes_of(project, dispatcher, [target])

    def positions(sources: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        return {source: at.reached for source, at in dispatched(route, sources).items()}

    return CopiedTopic(
        route.group,
        route.source_site,
        route.target_site,
        route.source,
        route.target,
        route.topic,
        route.target_topic,
        positions,
        route.is_sent,
        accepted_folder(project.settings, route.group).read,
    )
