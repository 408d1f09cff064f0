"""A kind of link: what is known of its declarations beside what each kind of declarations says.

What concerns all links, such as ``headrace reconcile`` and ``headrace sites check``, loops over
these values, so that a new kind of link changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.project.kind import Kind, Value

if TYPE_CHECKING:
    from headrace.links.ledger.balances import CountedEnds
    from headrace.project.loaded import LoadedProject


@dataclass(frozen=True)
class ReplicatedTopic:
    """A topic whose records are copied, or sent, from one site to another.

    Attributes:
        by: what copies it, such as ``mirror warsaw``.
        source_site: the site where it is read.
        source: its name there.
        target_site: the site where it is written.
        target: its name there.
        keeps_times: whether the records' own timestamps are written.
    """

    by: str
    source_site: str
    source: str
    target_site: str
    target: str
    keeps_times: bool

    def __str__(self) -> str:
        return (
            f"{self.by}, {self.source} at {self.source_site} to {self.target} at {self.target_site}"
        )


@dataclass(frozen=True, kw_only=True)
class LinkKind(Kind[Value]):
    """A kind of link. Its ``label`` is the name of its folder.

    Attributes:
        replicated: the topics that a link copies from site to site, given the project's own site.
        ends: what `reconcile` counts of a link. Only it may import clients of Kafka.
    """

    replicated: Callable[[Value, str], Iterable[ReplicatedTopic]] = lambda *_: ()
    ends: Callable[[LoadedProject, Value], Iterable[CountedEnds]]


def declared_links(project: LoadedProject) -> Iterator[tuple[LinkKind[Any], Any]]:
    """Yields the links of a project, each with its kind and in the order of the kinds."""
    for kind, link in project.by_kind:
        if isinstance(kind, LinkKind):
            yield kind, link


def replicated_topics(project: LoadedProject) -> list[ReplicatedTopic]:
    """Returns what the links of a project copy from site to site."""
    site = project.settings.site
    return [
        topic for kind, link in declared_links(project) for topic in kind.replicated(link, site)
    ]


def counted_ends(project: LoadedProject) -> list[CountedEnds]:
    """Returns what `reconcile` counts of all links."""
    return [ends for kind, link in declared_links(project) for ends in kind.ends(project, link)]
