"""Topics of which a copy would not be exact, or could not be counted."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from headrace.errors import TopicChangeRefusedError
from headrace.links.change import rules
from headrace.links.change.rules import require_fit
from headrace.links.change.standing import keeps_order
from headrace.model import ByAccount, ByField, Random, Raw, Topic


class Order:
    customer: str
    at: datetime


def topic(name: str, **declared: object) -> Topic:
    return Topic(name, **{"event": Order, "key": "customer", "partitions": 4} | declared)


def check(monkeypatch, old: Topic, new: Topic, live: int = 4, **settings: str) -> None:
    """Settings are those of the new topic; the old one keeps all for a day."""
    partitions = {old.name: 2, new.name: live}
    configs = {old.name: {"retention.ms": "86400000", "retention.bytes": "100"}}
    configs[new.name] = {"retention.ms": "86400000", "retention.bytes": "50"} | settings
    states = {name: SimpleNamespace(config=config) for name, config in configs.items()}
    monkeypatch.setattr(
        rules, "live_topic", lambda _, name: SimpleNamespace(partitions=partitions[name])
    )
    monkeypatch.setattr(rules, "topic_states", lambda *_: states)
    require_fit({}, old, new)


@pytest.mark.parametrize(
    ("old", "new", "keeps"),
    [
        ({}, {}, True),
        ({}, {"key": None}, False),
        ({"partitioning": Random()}, {}, False),
        ({}, {"partitioning": Random()}, False),
        ({}, {"partitioning": ByField("customer")}, False),
    ],
)
def test_events_of_a_key_keep_their_order_if_one_partition_of_each_topic_has_them(old, new, keeps):
    assert keeps_order(topic("old", **old), topic("new", **new)) is keeps


def test_topics_that_fit_are_taken(monkeypatch):
    check(monkeypatch, topic("old"), topic("new"))
    check(monkeypatch, topic("old"), topic("new"), **{"retention.ms": "-1"})
    check(monkeypatch, topic("old"), topic("new"), **{"retention.bytes": "-1"})


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ({}, {"name": "old"}, "declare another topic"),
        ({"compaction": True}, {}, "old is compacted"),
        ({}, {"compaction": True}, "new is compacted"),
        ({}, {"key": None}, "new declares no key"),
        ({}, {"event": None, "format": Raw(), "key": None}, "different formats"),
        (
            {"key": None},
            {"event_time": "at", "partitioning": ByAccount(timedelta(minutes=1))},
            "the account is in a header",
        ),
        ({"envelope": object()}, {}, "records of old are envelopes"),
    ],
)
def test_what_would_not_be_exact_is_refused(monkeypatch, old, new, reason):
    with pytest.raises(TopicChangeRefusedError, match=reason):
        check(monkeypatch, topic(**{"name": "old"} | old), topic(**{"name": "new"} | new))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("message.timestamp.type", "LogAppendTime"),
        ("retention.ms", "86399999"),
        ("retention.bytes", "49"),
    ],
)
def test_settings_by_which_copies_would_change_or_vanish_are_refused(monkeypatch, setting, value):
    with pytest.raises(TopicChangeRefusedError, match=setting):
        check(monkeypatch, topic("old"), topic("new"), **{setting: value})


def test_other_partitions_than_declared_are_refused(monkeypatch):
    with pytest.raises(TopicChangeRefusedError, match="declares 4 partitions, and Kafka has 5"):
        check(monkeypatch, topic("old"), topic("new"), live=5)
