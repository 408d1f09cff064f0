"""What `reconcile` counts of a dispatcher: the source with the topic of each target."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from headrace.kafka.read.resume import Position
from headrace.links.accepted import accepted_folder
from headrace.links.dispatcher.declaration import Dispatcher
from headrace.links.dispatcher.positions import committed_positions
from headrace.links.dispatcher.standing import routes_of
from headrace.links.ledger.balances import CountedEnds
from headrace.links.ledger.book import LinkBook
from headrace.links.ledger.copies import CopiedTopic
from headrace.model import TopicPartition
from headrace.project.loaded import LoadedProject
from headrace.project.site_clusters import own_cluster


def dispatched_ends(project: LoadedProject, dispatcher: Dispatcher) -> Iterator[CountedEnds]:
    """Yields the source with the topic of each target."""
    site, seconds = own_cluster(project.settings).site, project.settings.ledger.window_seconds
    for target, topic in dispatcher.targets.items():
        ends = f"{dispatcher.source.name} at {site}", f"{topic} at {target}"
        book = LinkBook("dispatcher", dispatcher.name, *ends, seconds)
        yield CountedEnds(book, partial(_dispatched_topic, project, dispatcher, target))


def _dispatched_topic(project: LoadedProject, dispatcher: Dispatcher, target: str) -> CopiedTopic:
    [route] = routes_of(project, dispatcher, [target])

    def positions(sources: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        return {source: at.reached for source, at in committed_positions(route, sources).items()}

    return CopiedTopic(
        route.group,
        route.source_site,
        route.target_site,
        route.source_site,
        route.source,
        route.target,
        route.topic,
        route.target_topic,
        positions,
        route.is_sent,
        accepted_folder(project.settings, route.group).read,
    )
