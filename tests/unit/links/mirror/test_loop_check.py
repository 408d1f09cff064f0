"""Records that a mirror skips, since their origins name its own site."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from headrace.errors import AuthorizationError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.origin import ORIGIN
from headrace.links.mirror import loop_check
from headrace.links.mirror.plan import MirrorPlan
from headrace.model import TopicPartition

LINK = MirrorPlan("m", "g", "other", "central", {}, {}, {"clicks-8": "other.clicks"})
SOURCE = TopicPartition("clicks-8", 0)
CHANGED = [(ORIGIN, b"central/clicks/0/5")]
"""Of a record that another project, whose site is central, too, copied by `topics change`."""


@pytest.fixture
def here(monkeypatch):
    """The topics of this site: the offset after the last record of each partition."""
    ends = {"clicks": [4, 0]}

    def describe(_, topics):
        return {at: LiveTopic(at, "id", len(ends[at]), 1) for at in topics if at in ends}

    monkeypatch.setattr(loop_check, "describe", describe)
    monkeypatch.setattr(
        loop_check,
        "high_watermarks",
        lambda _, places: {at: ends[at.topic][at.partition] for at in places},
    )
    return ends


def logged(caplog, *records):
    skipping = LINK.skipping()
    for offset, headers in records:
        assert LINK.filter.counter_of(headers) == "loops_skipped"
        skipping(SOURCE, offset, headers)
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def test_a_record_that_this_site_never_had_is_an_error_that_says_what_to_do(here, caplog):
    """Two sites with one name: what the other one has copied within itself looks like a loop."""
    [message] = logged(caplog, (7, CHANGED), (8, CHANGED))  # the second within a minute
    assert "offset 7 of clicks-8[0] at other is skipped" in message
    assert "central/clicks/0/5 it has been at central, which has no such record" in message
    assert "give each site a project.site of its own" in message


@pytest.mark.parametrize("ends", [{}, {"clicks": []}])
def test_so_is_one_of_a_topic_or_partition_that_is_not_there(here, caplog, ends):
    here.clear()
    here.update(ends)
    assert len(logged(caplog, (7, CHANGED))) == 1


def test_a_record_that_has_been_at_this_site_is_none(here, caplog):
    here["clicks"] = [6]
    assert logged(caplog, (7, CHANGED)) == []
    left = [(ORIGIN, b"other/clicks/0/5"), (ORIGIN, b"lyon/other.clicks/0/3")]
    assert logged(caplog, (8, left)) == []  # and has come back to its source


def test_a_topic_that_may_not_be_seen_ends_no_mirror(here, caplog, monkeypatch):
    def forbidden(*_):
        raise AuthorizationError("DESCRIBE", "topic clicks", "User:m")

    monkeypatch.setattr(loop_check, "describe", forbidden)
    assert logged(caplog, (7, CHANGED)) == []


def test_a_topic_is_looked_at_again_after_a_minute(here, caplog, monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(loop_check.time, "monotonic", lambda: clock.now)
    skipping = LINK.skipping()
    for clock.now in (100.0, 159.0, 160.0):
        skipping(SOURCE, int(clock.now), CHANGED)
    assert len(caplog.records) == 2
