"""A kind of link: what is known of its declarations beside what each kind of declarations says.

What concerns all links, such as ``headrace reconcile`` and ``headrace sites check``, loops over
these values, so that a new kind of link changes nothing else.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model.fault import Fault
from headrace.project.kind import Declaration, DeclarationFault, Declarations, Kind, Value
from headrace.project.kinds import kinds
from headrace.settings import Settings

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

    shared_faults: Callable[[Declarations, Settings], Iterable[DeclarationFault]] = (
        lambda declarations, settings: circles(declarations, settings.site)
    )
    replicated: Callable[[Value, str], Iterable[ReplicatedTopic]] = lambda *_: ()
    ends: Callable[[LoadedProject, Value], Iterable[CountedEnds]]

    def within_site(self, link: Value, site: str) -> Iterator[tuple[str, str]]:
        """Yields the topics of the project's own site between which a link moves records.

        Each is named with the one that is read first.
        """
        for topic in self.replicated(link, site):
            if topic.source_site == topic.target_site == site:
                yield topic.source, topic.target
        written = [topic for _, topic in self.writes(link)]
        for source, target in product(self.reads(link), written):
            yield source.name, target.name


def link_kinds() -> list[LinkKind[Any]]:
    """Returns the kinds of links, in their order."""
    return [kind for kind in kinds() if isinstance(kind, LinkKind)]


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


_Moves: TypeAlias = Mapping[str, Mapping[str, Declaration[Any]]]


def circles(declarations: Declarations, site: str) -> Iterator[DeclarationFault]:
    """Yields links that bring records back to a topic of the project's own site.

    Each record of such a topic would be copied without end. Circles through other sites are none:
    links between sites skip records by the sites in their origins.
    """
    moves: dict[str, dict[str, Declaration[Any]]] = defaultdict(dict)
    for declaration in declarations:
        if not isinstance(declaration.kind, LinkKind):
            continue
        for source, target in declaration.kind.within_site(declaration.value, site):
            path = _path(moves, target, source)
            if path is None:
                moves[source].setdefault(target, declaration)
                continue
            steps = ", ".join(f"to {end!r} by {moves[start][end]}" for start, end in pairwise(path))
            message = f"{declaration} copies {source!r} to {target!r}"
            remedy = "take one of these links out: each record would be copied without end"
            yield declaration, Fault(f"{message}, and it comes back {steps}".rstrip(), remedy)


def _path(moves: _Moves, start: str, end: str) -> list[str] | None:
    """Returns a shortest path between topics; ``None``: there is none."""
    paths = {start: [start]}
    queue = deque([start])
    while queue and end not in paths:
        topic = queue.popleft()
        for following in moves.get(topic, ()):
            if following not in paths:
                paths[following] = [*paths[topic], following]
                queue.append(following)
    return paths.get(end)
