"""What has no event but its bytes lies where an event lies that ingest sends."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import BrokerUnreachableError, RecordRejectedError, SpreadsUnknownError
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import EventCheck
from headrace.model import ByAccount, Topic, partition_of
from headrace.model.event import EpochMillis
from headrace.settings import Settings
from headrace.topics.spreads import placing
from headrace.topics.spreads.placing import SpreadPlaces, SpreadTopics
from headrace.topics.spreads.spread_table import SpreadTable

LEAD = timedelta(hours=2)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
TABLE = SpreadTable().changed({"large": 5}, NOON - timedelta(days=1), LEAD)


class Visit:
    account: str
    at: datetime


class TimedVisit:
    account: str
    at: EpochMillis


def declared(event: type = Visit, field: str | None = "account", **topic: object) -> Topic:
    strategy = ByAccount(timedelta(minutes=1), account=field, lead=LEAD)
    return Topic(
        "visits", event=event, event_time="at", partitions=16, partitioning=strategy, **topic
    )


@pytest.fixture(autouse=True)
def _reads(monkeypatch):
    monkeypatch.setattr(placing, "SpreadsReader", lambda _: lambda: {"visits": TABLE})


def started(topic: Topic) -> SpreadPlaces:
    places = SpreadPlaces(SpreadTopics((topic,)), {})
    places.start()
    places.close()
    return places


def text(account: str, at: object) -> bytes:
    return b'{"account": "%b", "at": %b}' % (account.encode(), str(at).encode())


@pytest.mark.parametrize("account", ["large", "small", ""])
@pytest.mark.parametrize("minutes", [0, 1, 17, 59])
def test_a_record_is_where_ingest_puts_its_event(account, minutes):
    topic, at = declared(), NOON + timedelta(minutes=minutes)
    value = text(account, f'"{at.isoformat()}"')
    check = EventCheck(
        topic,
        JsonLimits(8, 64, 1024),
        (NOON + timedelta(days=9)).timestamp,
        applied=lambda name, _: TABLE.spreads.get(name, ()),
    )
    [accepted], _ = check.batch([value], "of-the-token", ())
    assert started(topic).partition("visits", value, b"key", ()) == accepted.partition


def test_the_account_is_that_of_the_header_or_the_key_of_a_topic_without_one():
    topic = declared(TimedVisit, None)
    value = text("any", 1000 * int(NOON.timestamp()))
    place = partition_of(topic.partitioning, 16, lambda name, _: TABLE.spreads.get(name, ()))
    places, header = started(topic), (("account", b"large"),)
    assert places.partition("visits", value, b"key", header) == place({}, "large", NOON)
    assert places.partition("visits", value, b"key", ()) == place({}, "key", NOON)
    assert places.partition("visits", value.decode(), "key", ()) == place({}, "key", NOON)


@pytest.mark.parametrize(
    ("value", "key"),
    [(None, b"key"), (b"no event", b"key"), (b'{"account": "large"}', b"key")],
)
def test_a_record_without_account_or_time_is_rejected(value, key):
    topic = declared(TimedVisit, None)
    with pytest.raises(RecordRejectedError, match=r"visits.*header `account`, or a `partition`"):
        started(topic).partition("visits", value, key, ())


def test_a_topic_with_a_key_has_no_account_but_that_of_the_header():
    topic = declared(field=None, key="account")
    value = text("large", f'"{NOON.isoformat()}"')
    with pytest.raises(RecordRejectedError):
        started(topic).partition("visits", value, b"large", ())


def test_records_of_windows_that_are_not_known_are_refused_and_other_topics_are_free(monkeypatch):
    value = text("large", f'"{NOON.isoformat()}"')

    def unreachable() -> None:
        raise BrokerUnreachableError("kafka", "cut off")

    monkeypatch.setattr(placing, "SpreadsReader", lambda _: unreachable)
    unread = started(declared())
    with pytest.raises(SpreadsUnknownError, match=r"visits.*read never.*cut off"):
        unread.partition("visits", value, None, ())
    assert unread.partition("others", value, None, ()) == -1


def test_a_worker_takes_the_topics_that_take_spreads_with_it(tmp_path):
    settings = Settings(tmp_path, "shop", ("flow",), "lake")
    assert SpreadTopics.of([Topic("plain")], settings) is None
    spread = SpreadTopics.of([Topic("plain"), declared()], settings)
    assert spread == SpreadTopics((declared(),))
    assert pickle.loads(pickle.dumps(spread)) == spread
