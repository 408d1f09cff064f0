"""What `reconcile` counts of a link that copies: each topic with its copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from headrace.kafka.read.resume import Position
from headrace.links.accepted import accepted_folder
from headrace.links.copying.plan import CopyPlan
from headrace.links.copying.positions import committed_positions
from headrace.links.kind import ReplicatedTopic
from headrace.links.ledger.balances import CountedEnds
from headrace.links.ledger.book import LinkBook
from headrace.links.ledger.copies import CopiedTopic
from headrace.model import TopicPartition
from headrace.settings import Settings


def copied_ends(
    label: str,
    name: str,
    topics: Iterable[ReplicatedTopic],
    make_plan: Callable[[], CopyPlan],
    settings: Settings,
) -> Iterator[CountedEnds]:
    """Yields each topic with its copy.

    Args:
        label: of the kind of link.
        name: of the link.
        topics: that it copies.
        make_plan: returns its plan, when a topic is counted.
        settings: the project's deployment.
    """
    seconds = settings.ledger.window_seconds
    for at in topics:
        ends = f"{at.source} at {at.source_site}", f"{at.target} at {at.target_site}"
        book = LinkBook(label, name, *ends, seconds)
        yield CountedEnds(book, partial(_copied_topic, make_plan, settings, at.source))


def _copied_topic(make_plan: Callable[[], CopyPlan], settings: Settings, topic: str) -> CopiedTopic:
    plan = make_plan()

    def positions(sources: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        known = committed_positions(plan, [plan.copy_of(source) for source in sources])
        return {plan.source_of(copy): at for copy, at in known.items() if at is not None}

    return CopiedTopic(
        plan.group,
        plan.source_site,
        plan.target_site,
        plan.origin_site,
        plan.source,
        plan.target,
        topic,
        plan.copies[topic],
        positions,
        plan.filter.is_copied_column,
        accepted_folder(settings, plan.group).read,
    )
