"""Acceptance: Kafka decides first; the spool gets what it does not have, and what follows that."""

import asyncio

import pytest

from headrace.errors import SpoolError
from headrace.ingest.acceptance import Acceptance
from headrace.ingest.delivery import QueueFullError, UnknownOutcomeError
from headrace.ingest.spool import Loader, Outcome, Spool, SpoolLimits
from headrace.ingest.validation import Accepted

EVENTS = [Accepted(text.encode(), b"k", text, -1) for text in ("a", "b", "c")]


class Kafka:
    """Takes the first ``takes`` events of each request, or raises."""

    def __init__(self, takes=3, error=None):
        self.takes, self.error = takes, error
        self.sent = 0

    async def send(self, topic, events, headers, seconds):
        self.sent += 1
        if self.error:
            raise self.error

    async def send_or_take_back(self, topic, events, headers, seconds):
        await self.send(topic, events, headers, seconds)
        return list(events[self.takes :])


@pytest.fixture
def spool(tmp_path):
    made = Spool(tmp_path / "spool", SpoolLimits())
    yield made
    made.close()


def accepted(kafka, spool, topic="kept"):
    acceptance = Acceptance(kafka, spool, ["kept"])
    return asyncio.run(acceptance.accept(topic, EVENTS, [("account", b"acme")], 5))


def spooled(spool):
    sent = []

    def send(records, _):
        sent.extend(records)
        return Outcome()

    Loader(spool, send).run_once()
    return [one.value.decode() for one in sent]


def test_what_kafka_has_is_not_spooled(spool):
    assert accepted(Kafka(), spool) is False
    assert spooled(spool) == []


def test_only_what_kafka_does_not_have_is_spooled(spool):
    assert accepted(Kafka(takes=1), spool) is True
    assert spooled(spool) == ["b", "c"]


def test_behind_spooled_events_come_others_without_asking_kafka(spool):
    accepted(Kafka(takes=2), spool)
    kafka = Kafka()
    assert accepted(kafka, spool) is True
    assert kafka.sent == 0
    assert spooled(spool) == ["c", "a", "b", "c"]


def test_with_a_full_queue_everything_is_spooled(spool):
    assert accepted(Kafka(error=QueueFullError()), spool) is True
    assert spooled(spool) == ["a", "b", "c"]


def test_what_kafka_refuses_for_ever_is_not_acknowledged_by_the_spool(spool):
    with pytest.raises(UnknownOutcomeError, match="too large"):
        accepted(Kafka(error=UnknownOutcomeError("too large")), spool)
    assert not spool.pending


def test_events_of_other_topics_never_touch_the_spool(spool):
    accepted(Kafka(takes=0), spool)
    with pytest.raises(UnknownOutcomeError):
        accepted(Kafka(error=UnknownOutcomeError("away")), spool, "plain")
    assert accepted(Kafka(), spool, "plain") is False
    assert spool.waiting == 3


def test_with_kafka_away_and_the_disk_broken_the_outcome_is_unknown(spool, monkeypatch):
    def broken(_):
        raise SpoolError("folder", "broken")

    monkeypatch.setattr(spool, "append", broken)
    with pytest.raises(UnknownOutcomeError, match="broken"):
        accepted(Kafka(takes=0), spool)


def test_the_spool_is_ready_while_kafka_is_not(spool):
    assert Acceptance(Kafka(), spool, ["kept"]).ready()
