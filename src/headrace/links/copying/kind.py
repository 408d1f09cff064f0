"""A kind of links that copy each partition of a topic to one partition of another."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.links.copying.declaration import CopyLink
from headrace.links.kind import LinkKind, ReplicatedTopic
from headrace.project.kind import StatusKind
from headrace.project.kinds import kind_of
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.links.copying.plan import CopyPlan
    from headrace.links.copying.status import CopyStatus
    from headrace.links.ledger.balances import CountedEnds
    from headrace.project.loaded import LoadedProject

Link = TypeVar("Link", bound=CopyLink)


@dataclass(frozen=True, kw_only=True)
class CopyKind(LinkKind[Link]):
    """A kind of links that copy. What is the same for all of them is not an argument.

    Of a kind whose values are a ``Relay``, ``plan`` of its folder has a ``RelayPlan``, and
    ``status``, which imports no clients of Kafka, a ``RelayStatus``.

    Attributes:
        source_site: returns the site of the topics that a link reads, given the project's own.
        plan_fields: values of the fields that the class has beside those of all plans.
    """

    source_site: Callable[[Link, str], str]
    plan_fields: Callable[[Link], Mapping[str, Any]] = lambda _: {}
    plural: str = field(init=False)
    hint: str = field(init=False)
    ends: Callable[[LoadedProject, Link], Iterable[CountedEnds]] = field(init=False)

    def __post_init__(self) -> None:
        common = {
            "plural": f"{self.label}s",
            "hint": f"`headrace {self.label}` has its commands",
            "consumer_group": lambda link: link.consumer_group,
            "writes": lambda link: (("copies to", topic) for topic in link.topics.values()),
            "is_sole_writer": True,
            "statuses": self._statuses,
            "replicated": self._replicated,
            "ends": self._ends,
        }
        for name, value in common.items():
            object.__setattr__(self, name, value)  # it is frozen for all others

    @property
    def plan_type(self) -> type[CopyPlan]:
        """The class of its plans, imported when it is asked for."""
        plan: type[CopyPlan] = self._class("Plan")
        return plan

    @property
    def status_type(self) -> type[CopyStatus]:
        """The class of its statuses, imported when it is asked for."""
        status: type[CopyStatus] = self._class("Status")
        return status

    def plan(self, settings: Settings, link: Link) -> CopyPlan:
        """Returns a link with its clusters.

        Raises:
            NotDeclaredError: if headrace.toml has no such site.
            BrokerUnreachableError: if an embedded broker was never started.
        """
        source_site, fields = self.source_site(link, settings.site), self.plan_fields(link)
        own = settings.of(self.plural, link.name)
        return self.plan_type.of(own, link, source_site, **fields)

    def _statuses(self) -> tuple[StatusKind, ...]:
        view = "headrace.links.copying.views"
        return (StatusKind(name=self.plural, type=self.status_type, view=view),)

    # By its name, and late: a check needs neither, and plans import clients of Kafka.
    def _class(self, name: str) -> Any:
        module = importlib.import_module(f"headrace.links.{self.label}.{name.lower()}")
        return getattr(module, f"{self.type.__name__}{name}")

    def _replicated(self, link: Link, site: str) -> Iterator[ReplicatedTopic]:
        by, source_site = f"{self.label} {link.name}", self.source_site(link, site)
        for source, copy in link.topics.items():
            yield ReplicatedTopic(by, source_site, source, site, copy.name, keeps_times=True)

    def _ends(self, project: LoadedProject, link: Link) -> Iterable[CountedEnds]:
        from headrace.links.copying.book import copied_ends

        settings = project.settings
        topics = self._replicated(link, settings.site)
        make_plan = partial(self.plan, settings, link)
        return copied_ends(self.label, link.name, topics, make_plan, settings)


def copy_kind_of(link: Link) -> CopyKind[Link]:
    """Returns the kind of a link that copies."""
    kind = kind_of(link)
    if not isinstance(kind, CopyKind):
        raise TypeError(f"{kind.label} {link.name!r} is no link that copies")
    return kind
