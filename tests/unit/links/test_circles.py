"""Links of a site by which records would come again to a topic are refused, of any kinds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Dispatcher, Merger, Mirror, Topic
from headrace.links.copying.declaration import CopyLink
from headrace.links.copying.kind import CopyKind
from headrace.links.dispatcher.kind import KIND as DISPATCHER
from headrace.links.kind import LinkKind, link_kinds
from headrace.links.merger.kind import KIND as MERGER
from headrace.links.mirror.kind import KIND as MIRROR
from headrace.project.kind import Declaration
from headrace.project.kinds import kinds
from headrace.settings import Settings

NAMES = "abcdefg"


@dataclass(frozen=True)
class Relay(CopyLink):
    name: str
    topics: Mapping[str, Topic]
    commit_every: timedelta = timedelta(seconds=1)

    @property
    def consumer_group(self):
        return f"headrace.relay.{self.name}"


def relay_kind(label):
    return CopyKind(
        type=Relay,
        label=label,
        type_faults=lambda _: (),
        faults=lambda *_: (),
        source_site=lambda _, site: site,
    )


RELAY, FILTER = relay_kind("relay"), relay_kind("filter")


def declared(kind, value, line=1):
    return Declaration(kind, value, "flow.py", line)


def relay(name, kind=RELAY, **topics):
    return declared(kind, Relay(name, {source: Topic(copy) for source, copy in topics.items()}))


def merger(name, sources, target, late="late"):
    sources = [Topic(source) for source in sources]
    return declared(MERGER, Merger(name, sources=sources, target=Topic(target), late=Topic(late)))


@pytest.fixture
def refused(tmp_path):
    settings = Settings(tmp_path, "demo", (), "")

    def refused(*declarations):
        """The faults between the declarations, each once, as a check reports them."""
        faults = RELAY.shared_faults(declarations, settings)
        return [(str(declaration), fault.message) for declaration, fault in faults]

    return refused


def test_a_topic_that_is_copied_back_is_refused_with_the_way(refused):
    [(declaration, message)] = refused(relay("there", a="b"), relay("back", b="a"))
    assert declaration == "relay 'back'"
    assert message == "relay 'back' copies 'b' to 'a', and it comes back to 'b' by relay 'there'"


def test_a_way_back_through_three_topics_and_kinds_is_named(refused):
    [(_, message)] = refused(
        relay("r", a="b"), merger("m", ["b", "x"], "c"), relay("f", FILTER, c="a", d="e")
    )
    assert message == (
        "filter 'f' copies 'c' to 'a', and it comes back to 'b' by relay 'r', to 'c' by merger 'm'"
    )


def test_one_link_whose_topics_are_a_circle_and_a_topic_onto_itself_are_refused(refused):
    assert len(refused(relay("r", a="b", b="a"))) == 1
    [(_, message)] = refused(relay("r", a="a"))
    assert message == "relay 'r' copies 'a' to 'a', and it comes back"


def test_two_mergers_are_a_circle_by_their_targets_or_a_topic_of_late_records(refused):
    assert len(refused(merger("m", ["a", "b"], "c"), merger("n", ["c", "d"], "a", "other"))) == 1
    assert len(refused(merger("m", ["a", "b"], "c"), relay("late", late="a"))) == 1


def test_a_way_back_from_another_site_is_none_since_links_skip_those_records(refused):
    sends = Dispatcher("d", source=Topic("b"), targets={"waw": "a"})
    assert not refused(
        declared(MIRROR, Mirror("m", "waw", {"a": Topic("a")})),
        relay("r", a="b"),
        declared(DISPATCHER, sends),
    )


TOPICS = st.sampled_from(NAMES)
RELAYS = st.tuples(
    st.sampled_from((RELAY, FILTER)), st.dictionaries(TOPICS, TOPICS, min_size=1, max_size=2)
)
MERGERS = st.tuples(st.just(MERGER), st.lists(TOPICS, min_size=1, max_size=2, unique=True), TOPICS)


def moves(declarations):
    """The topics between which each link moves records, by its text."""
    by_link = {}
    for declaration in declarations:
        link = declaration.value
        if isinstance(link, Merger):
            targets = (link.target.name, link.late.name)
            pairs = {(source.name, target) for source in link.sources for target in targets}
        else:
            pairs = {(source, copy.name) for source, copy in link.topics.items()}
        by_link[str(declaration)] = pairs
    return by_link


def has_circle(pairs):
    """Plain: topics that no other is copied to are taken out until none is left, or a circle."""
    pairs = set(pairs)
    while pairs:
        targets = {target for _, target in pairs}
        if not (first := {pair for pair in pairs if pair[0] not in targets}):
            return True
        pairs -= first
    return False


@given(drawn=st.lists(RELAYS | MERGERS, max_size=7))
def test_links_are_refused_exactly_if_their_topics_have_a_circle(drawn):
    declarations = []
    for number, (kind, *parts) in enumerate(drawn):
        if kind is MERGER:
            declarations.append(merger(str(number), *parts))
        else:
            declarations.append(relay(str(number), kind, **parts[0]))
    settings = Settings(None, "demo", (), "")
    faults = list(RELAY.shared_faults(declarations, settings))
    by_link = moves(declarations)
    assert bool(faults) == has_circle({pair for pairs in by_link.values() for pair in pairs})
    refused = {str(declaration) for declaration, _ in faults}
    left = [pairs for link, pairs in by_link.items() if link not in refused]
    assert not has_circle(set().union(*left))
    for declaration, fault in faults:
        source, target = re.search(r"copies '(.)' to '(.)'", fault.message).groups()
        steps = re.findall(r"to '(\w+)' by (\w+ '\d')", fault.message)
        assert (source, target) in by_link[str(declaration)]
        way = [target, *(topic for topic, _ in steps)]
        assert way[-1] == source
        assert all(
            pair in by_link[link] for pair, (_, link) in zip(pairwise(way), steps, strict=True)
        )


def test_a_check_looks_for_circles_once_for_all_kinds_of_links():
    looks = {kind.shared_faults for kind in kinds() if isinstance(kind, LinkKind)}
    assert looks == {RELAY.shared_faults}
    assert len(link_kinds()) > 1
