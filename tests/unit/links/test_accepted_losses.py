"""What is refused of those who accept a loss of a mirror or a merger: nothing is committed then."""

from types import SimpleNamespace

import pytest

from headrace.errors import (
    LinkLossError,
    LinkNotRefusedError,
    LinkRunningError,
    MirrorOffsetError,
)
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.group.groups import ConsumerGroup, Member
from headrace.kafka.read.resume import Position
from headrace.links import accepted
from headrace.links.copying import standing as mirrors
from headrace.links.merger import standing as mergers
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.starts import Starts
from headrace.model import TopicPartition

SOURCE, COPY = TopicPartition("a", 0), TopicPartition("waw.a", 0)
LINK = MirrorPlan("m", "headrace.mirror.m", "waw", "central", {}, {}, {"a": "waw.a"})
PLAN = MergerPlan("m", "headrace.merger.m", {}, {"a": ClockSource.WALL}, "all", "late", 0, 1.0)
TOPIC = LiveTopic("a", "id", 1, 1)


@pytest.fixture
def group(monkeypatch):
    """Members of the group; the source has offsets 2 to 9, of which 8 is next, and lost nothing."""
    members = []

    def commit(*_):
        raise AssertionError

    for module in (mirrors, mergers):
        monkeypatch.setattr(module, "commit", commit)
    monkeypatch.setattr(accepted, "describe_group", lambda *_: ConsumerGroup("", tuple(members)))
    starts = Starts({SOURCE: Position(8, "id"), COPY: Position(8, "id")}, {}, frozenset())
    monkeypatch.setattr(mirrors, "describe", lambda *_: {"a": TOPIC})
    monkeypatch.setattr(mirrors, "committed_positions", lambda *_: {})
    monkeypatch.setattr(mirrors, "find_starts", lambda *_: starts)
    monkeypatch.setattr(mirrors, "watermarks", lambda *_: {SOURCE: (2, 10)})
    monkeypatch.setattr(mergers, "plan_of", lambda *_: PLAN)
    monkeypatch.setattr(mergers, "committed", lambda *_: [])
    monkeypatch.setattr(mergers, "find_loss", lambda *_: None)
    return members


def accept_of_mirror(to=None):
    return mirrors.accept_loss(None, LINK, SOURCE, to)


def accept_of_merger():
    return mergers.accept_loss(SimpleNamespace(settings=None), SimpleNamespace(name="m"), SOURCE)


@pytest.mark.parametrize(
    ("accept", "error", "code"),
    [
        (accept_of_mirror, LinkRunningError, "MIRROR_RUNNING"),
        (accept_of_merger, LinkRunningError, "MERGER_RUNNING"),
    ],
)
def test_nothing_is_accepted_while_instances_run(group, accept, error, code):
    group.append(Member("host-1", "", 1))
    with pytest.raises(error) as raised:
        accept()
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("accept", "error", "code"),
    [
        (accept_of_mirror, LinkNotRefusedError, "MIRROR_NOT_REFUSED"),
        (lambda: accept_of_mirror(8), LinkNotRefusedError, "MIRROR_NOT_REFUSED"),
        (lambda: accept_of_mirror(3), LinkNotRefusedError, "MIRROR_NOT_REFUSED"),
        (accept_of_merger, LinkNotRefusedError, "MERGER_NOT_REFUSED"),
    ],
)
@pytest.mark.usefixtures("group")
def test_what_is_not_lost_is_not_accepted(accept, error, code):
    with pytest.raises(error) as raised:
        accept()
    assert raised.value.code == code


@pytest.mark.parametrize("to", [1, 11])
@pytest.mark.usefixtures("group")
def test_an_offset_that_the_source_does_not_have_is_refused_with_those_it_has(to):
    with pytest.raises(MirrorOffsetError, match="from 2 to 10") as raised:
        accept_of_mirror(to)
    assert raised.value.code == "MIRROR_OFFSET"


@pytest.mark.parametrize("to", [2, 5])
@pytest.mark.usefixtures("group")
def test_an_offset_before_the_cut_of_a_truncated_log_is_refused_with_the_lowest_allowed(
    to, monkeypatch
):
    loss = LinkLossError(*LINK.source_names, SOURCE.path, 8, 6, "", "truncated")
    monkeypatch.setattr(mirrors, "find_starts", lambda *_: Starts({}, {SOURCE: loss}, frozenset()))
    with pytest.raises(MirrorOffsetError, match="from 6 to 10"):
        accept_of_mirror(to)
    monkeypatch.setattr(mirrors, "describe", lambda *_: dict.fromkeys(("a", "waw.a"), TOPIC))
    monkeypatch.setattr(mirrors, "latest_offsets", lambda *_: {COPY: (8, 0)})
    monkeypatch.setattr(mirrors, "accepted_folder", lambda *_: None)
    monkeypatch.setattr(mirrors, "accept", lambda _kind, _folder, range_, _commit, **_: range_)
    assert accept_of_mirror(6).end == 6
