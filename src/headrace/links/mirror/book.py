"""What `reconcile` counts of a mirror: each topic with its copy."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from headrace.kafka.read.resume import Position
from headrace.links.accepted import accepted_folder
from headrace.links.ledger.balances import CountedEnds
from headrace.links.ledger.book import LinkBook
from headrace.links.ledger.copies import CopiedTopic
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.positions import committed_positions
from headrace.links.mirror.standing import mirror_plan
from headrace.model import TopicPartition
from headrace.project.site_clusters import own_cluster
from headrace.settings import Settings


def mirrored_ends(settings: Settings, mirror: Mirror) -> Iterator[CountedEnds]:
    """Yields each topic with its copy."""
    site, seconds = own_cluster(settings).site, settings.ledger.window_seconds
    for topic, copy in mirror.topics.items():
        ends = f"{topic} at {mirror.source}", f"{copy.name} at {site}"
        book = LinkBook("mirror", mirror.name, *ends, seconds)
        yield CountedEnds(book, partial(_mirrored_topic, settings, mirror, topic))


def _mirrored_topic(settings: Settings, mirror: Mirror, topic: str) -> CopiedTopic:
    plan = mirror_plan(settings, mirror)

    def positions(sources: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        known = committed_positions(plan, [plan.copy_of(source) for source in sources])
        return {plan.source_of(copy): at for copy, at in known.items() if at is not None}

    return CopiedTopic(
        plan.group,
        plan.source_site,
        plan.target_site,
        plan.source,
        plan.target,
        topic,
        plan.copies[topic],
        positions,
        plan.filter.is_copied_column,
        accepted_folder(settings, plan.group).read,
    )
