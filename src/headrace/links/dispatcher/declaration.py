"""The declaration of a dispatcher."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import timedelta

from headrace.model import Topic
from headrace.model.declared import DeclaredValue


class DispatchMode(enum.StrEnum):
    """How Spark runs a dispatcher. What is sent, and where to, is the same.

    Attributes:
        REAL_TIME: Spark's real-time mode. Records are sent as they arrive, within milliseconds.
            Each partition takes a core of Spark's for each target, all the time.
        MICRO_BATCH: in batches, one after the other, within half a second or so, on any number
            of cores.
    """

    REAL_TIME = "real-time"
    MICRO_BATCH = "micro-batch"


@dataclass(frozen=True)
class Home:
    """The site where the user of an event is at home.

    Attributes:
        field: of the JSON event, such as ``user.country``.
        sites: names of sites by values of the field; empty: the value is the site's name.
    """

    field: str
    sites: Mapping[str, str] = dataclass_field(default_factory=dict)


@dataclass(frozen=True)
class Dispatcher(DeclaredValue):
    """Records of a topic, sent to other sites by a table of routes. Declaring it runs nothing.

    A record goes to a target unless it has been there, as its headers ``headrace-origin`` say, and
    if one of these holds:

    - neither ``home`` nor ``related`` is declared;
    - the target is the home of its user, or ``home`` is declared and that of the record is not
      known: the field is absent or null, or names no site;
    - the target is related to the site where the record came in: its first origin, or this site.

    Partition, key, value and headers are kept. Added are ``headrace-origin``, which names this
    site, and ``headrace-timestamp``, the record's timestamp in milliseconds since 1970: the
    timestamp at the target is the time when the record was sent, as Spark has no way to set it.

    Order is that of each partition; only a record that the target had rejected comes behind later
    ones. Delivery: at least once. A start leaves out what the target has already, so a crash
    repeats only what was in flight then; repeated records have the same ``headrace-origin``. Each
    target has a query of its own: a site that is unreachable delays no other.

    Attributes:
        name: in commands and logs.
        source: the topic of this site that is read; committed records only.
        targets: names of sites, each with the name of its topic. That topic has the source's
            partitions, and is made by the site's own project.
        home: where the user of an event is at home.
        related: names of sites, each with the targets that want what came in there.
        mode: how Spark runs it.
        commit_every: in real-time mode, how often the position is committed, at least 5 s. At
            the end of each interval Spark pauses for some tenths of a second.
    """

    name: str
    source: Topic
    targets: Mapping[str, str]
    home: Home | None = None
    related: Mapping[str, Collection[str]] = dataclass_field(default_factory=dict)
    mode: DispatchMode = DispatchMode.REAL_TIME
    commit_every: timedelta = timedelta(minutes=1)

    @property
    def consumer_group(self) -> str:
        """Prefix of the groups in which positions are committed: one a target."""
        return f"headrace.dispatcher.{self.name}"
