"""A kind of link is known to `reconcile` and `sites check` by its own part alone."""

from dataclasses import dataclass

import pytest

from headrace import Mirror, Topic
from headrace.links.kind import LinkKind, ReplicatedTopic, counted_ends, replicated_topics
from headrace.links.ledger.balances import CountedEnds
from headrace.links.ledger.book import LinkBook, LinkCount
from headrace.model.declared import DeclaredValue
from headrace.project import loaded
from headrace.project.kinds import kinds
from headrace.project.loaded import LoadedProject
from headrace.settings import Settings


@dataclass(frozen=True)
class Relay(DeclaredValue):
    name: str


class Counted:
    def count(self, *_):
        return LinkCount(unknown=("not counted",))


RELAY = LinkKind(
    type=Relay,
    label="relay",
    plural="relays",
    hint="",
    type_faults=lambda _: (),
    faults=lambda *_: (),
    replicated=lambda relay, site: (
        ReplicatedTopic(f"relay {relay.name}", "waw", "a", site, "b", keeps_times=True),
    ),
    ends=lambda _, relay: (CountedEnds(LinkBook("relay", relay.name, "a", "b", 60), Counted),),
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(loaded, "kinds", lambda: (*kinds(), RELAY))
    mirror = Mirror("m", "waw", {"a": Topic("waw.a")})
    settings = Settings(tmp_path, "demo", (), "")
    return LoadedProject(settings, (Relay("r"), mirror, Topic("waw.a")))


def test_a_new_kind_of_link_is_reconciled(project):
    counted = counted_ends(project)
    assert [(ends.book.kind, ends.book.name) for ends in counted] == [
        ("mirror", "m"),
        ("relay", "r"),
    ]
    assert list(counted[1].open().count(None, 60).unknown) == ["not counted"]


def test_topics_of_a_new_kind_of_link_are_compared_at_both_sites(project):
    topics = replicated_topics(project)
    assert [(topic.by, topic.source_site) for topic in topics] == [
        ("mirror m", "waw"),
        ("relay r", "waw"),
    ]
    assert {topic.target_site for topic in topics} == {project.settings.site}
