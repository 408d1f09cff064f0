"""EventStore: Kafka decides first; the spool gets what it does not have, and what follows that."""

import asyncio
import contextlib

import pytest

from headrace.errors import SpoolError, SpoolFullError
from headrace.ingest.events.delivery import NotTakenError, QueueFullError, UnknownOutcomeError
from headrace.ingest.events.event_store import EventStore
from headrace.ingest.events.topic_watch import TopicPresence
from headrace.ingest.events.validation import Accepted
from headrace.ingest.spool.loader import Loader, SendResult
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import SpoolLimits
from headrace.ingest.spool.topic_spools import TopicSpools

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

    async def send_or_reclaim(self, topic, events, headers, seconds):
        await self.send(topic, events, headers, seconds)
        return list(events[self.takes :])


class Watch:
    """Every topic is there, unless it is said to be something else."""

    def __init__(self, kafka_answers=True, **states):
        self.kafka_answers, self.states = kafka_answers, states

    def state(self, topic):
        return self.states.get(topic, TopicPresence.THERE)


@pytest.fixture
def spools(tmp_path):
    made = TopicSpools(tmp_path / "spool", SpoolLimits(budget_bytes=100_000), ["kept", "other"])
    yield made
    made.close()


@pytest.fixture
def spool(spools):
    return spools.open["kept"]


@pytest.fixture
def accepted(spools):
    def accepting(kafka, topic="kept", watch=None, events=EVENTS):
        acceptance = EventStore(kafka, spools, watch or Watch())
        return asyncio.run(acceptance.accept(topic, events, [("account", b"acme")], 5))

    return accepting


def fill(spool, size):
    with contextlib.suppress(SpoolFullError):
        while True:
            spool.append([SpoolRecord("kept", b"k", b"x" * size, (), 5, None)])


def spooled(spool):
    sent = []

    def send(records, _):
        sent.extend(records)
        return SendResult()

    Loader(spool, send).run_once()
    return [one.value.decode() for one in sent]


def test_what_kafka_has_is_not_spooled(accepted, spool):
    assert accepted(Kafka()) is False
    assert spooled(spool) == []


def test_only_what_kafka_does_not_have_is_spooled(accepted, spool):
    assert accepted(Kafka(takes=1)) is True
    assert spooled(spool) == ["b", "c"]


def test_behind_spooled_events_come_others_without_asking_kafka(accepted, spool):
    accepted(Kafka(takes=2))
    kafka = Kafka()
    assert accepted(kafka) is True
    assert kafka.sent == 0
    assert spooled(spool) == ["c", "a", "b", "c"]


def test_with_a_full_queue_everything_is_spooled(accepted, spool):
    assert accepted(Kafka(error=QueueFullError())) is True
    assert spooled(spool) == ["a", "b", "c"]


def test_what_kafka_rejects_for_ever_is_not_acknowledged_by_the_spool(accepted, spool):
    with pytest.raises(UnknownOutcomeError, match="too large"):
        accepted(Kafka(error=UnknownOutcomeError("too large")))
    assert not spool.pending


def test_events_of_other_topics_never_touch_the_spool(accepted, spool):
    accepted(Kafka(takes=0))
    with pytest.raises(UnknownOutcomeError):
        accepted(Kafka(error=UnknownOutcomeError("away")), "plain")
    assert accepted(Kafka(), "plain") is False
    assert spool.waiting == 3


def test_with_kafka_away_and_the_disk_broken_the_outcome_is_unknown(accepted, spool, monkeypatch):
    def broken(_):
        raise SpoolError("/srv/app/.headrace", "broken")

    monkeypatch.setattr(spool, "append", broken)
    with pytest.raises(UnknownOutcomeError) as caught:
        accepted(Kafka(takes=0))
    assert caught.value.code == "spool-failed"
    assert "/srv" not in str(caught.value)


def test_a_full_spool_takes_nothing_and_says_so_without_its_path(accepted, spool, tmp_path, caplog):
    fill(spool, 9000)
    kafka = Kafka()
    with pytest.raises(NotTakenError) as caught:
        accepted(kafka, events=[Accepted(b"x" * 9000, b"k", "", -1)])
    assert caught.value.code == "spool-full"
    assert str(tmp_path) not in str(caught.value)
    assert "spool of kept is full" in caplog.text
    assert kafka.sent == 0


def test_a_topic_that_is_not_there_takes_nothing(accepted, spool):
    kafka = Kafka(takes=0)
    for topic in ("kept", "plain"):
        with pytest.raises(NotTakenError) as caught:
            accepted(kafka, topic, Watch(**{topic: TopicPresence.MISSING}))
        assert caught.value.code == "topic-missing"
    assert kafka.sent == 0
    assert not spool.pending


def test_what_times_out_for_a_topic_that_went_meanwhile_is_not_spooled(accepted, spool):
    watch = Watch()

    class Deleted(Kafka):
        async def send(self, *_):
            watch.states["kept"] = TopicPresence.MISSING

    with pytest.raises(UnknownOutcomeError, match="was deleted"):
        accepted(Deleted(takes=0), watch=watch)
    assert not spool.pending


@pytest.mark.parametrize(
    ("topic", "state", "taken"),
    [
        ("kept", TopicPresence.KEPT, True),
        ("plain", TopicPresence.KEPT, False),
        ("kept", TopicPresence.UNKNOWN, False),
    ],
)
def test_before_kafka_has_answered_only_known_topics_with_a_spool_are_taken(
    accepted, spool, topic, state, taken
):
    watch = Watch(kafka_answers=False, **{topic: state})
    if taken:
        assert accepted(Kafka(takes=0), topic, watch) is True
    else:
        with pytest.raises(NotTakenError) as caught:
            accepted(Kafka(takes=0), topic, watch)
        assert caught.value.code == "not-ready"
    assert spool.pending is taken


def test_one_topic_in_its_spool_sends_no_other_there(accepted, spools):
    accepted(Kafka(takes=0))
    kafka = Kafka()
    assert accepted(kafka, "other") is False
    assert kafka.sent == 1
    assert {topic: one.records for topic, one in spools.stats().items()} == {"kept": 3, "other": 0}


def test_a_topic_says_whether_it_can_be_taken(accepted, spools):
    def standing(topic, **watched):
        return EventStore(Kafka(), spools, Watch(**watched)).standing(topic)

    assert standing("plain") == standing("kept") == "ready"
    assert standing("plain", kafka_answers=False) == "kafka-away"
    assert standing("kept", kafka_answers=False) == "spooling"
    assert standing("kept", kept=TopicPresence.MISSING) == "missing"
    assert standing("kept", kafka_answers=False, kept=TopicPresence.UNKNOWN) == "kafka-away"
    accepted(Kafka(takes=0))
    assert standing("kept") == "spooling"
    fill(spools.open["kept"], 300)
    assert standing("kept") == "spool-full"
