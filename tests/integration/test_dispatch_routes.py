"""Which records go to which target: Spark's columns against the rules in Python."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import Home
from headrace.kafka.origin import ORIGIN, origins
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.routes.sent import SentRecords, is_new
from headrace.model import TopicPartition
from headrace.spark.header_columns import TIMESTAMP

SITES = ("central", "waw", "par", "lyon")
SCHEMA = (
    "topic string, partition int, offset long, key binary, value binary, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
TIME = datetime(2026, 11, 24, 12, 0, 0, 123000, tzinfo=UTC)
VALUES = (
    *(json.dumps({"user": {"home": home}}) for home in (*SITES, "PL", "FR", "XX", None, 48, True)),
    json.dumps({"user": "PL"}),
    json.dumps({"user.home": "PL"}),
    "{}",
    "no JSON",
    '{"user": {"home": "PL"',
    "",
    None,
)
HEADERS = (
    *((ORIGIN, f"{site}/clicks/0/7".encode()) for site in SITES),
    (ORIGIN, b"waw/clicks/0"),
    (ORIGIN, b"waw/clicks/0/7\n"),
    (ORIGIN, b"\xff/clicks/0/7"),
    (ORIGIN, None),
    ("other", b"waw/clicks/0/7"),
    (TIMESTAMP, b"1"),
)
HOMES = (None, Home("user.home"), Home("user.home", {"PL": "waw", "FR": "par", "48": "waw"}))
RELATED = (None, frozenset(), frozenset({"central"}), frozenset({"waw", "par"}))


def route_to(site, home, related):
    return DispatcherRoute(
        "dispatch", "g", "central", site, {}, {}, "clicks", "events", home, related,
        frozenset(SITES),
    )  # fmt: skip


def home_of(value, home):
    """The site where a user is at home; `None`: not known."""
    try:
        found = json.loads(value)["user"]["home"]
    except (ValueError, TypeError, KeyError):
        return None
    if found is None:
        return None
    text = json.dumps(found) if not isinstance(found, str) else found
    return home.sites.get(text) if home.sites else text if text in SITES else None


def is_wanted(route, value, headers):
    """The rules of `Dispatcher`, in Python."""
    sites = [origin.site for origin in origins(headers or ())]
    if route.target_site in sites:
        return False
    if route.home is None and route.related is None:
        return True
    if route.home is not None and home_of(value, route.home) in {None, route.target_site}:
        return True
    entered = sites[0] if sites else route.source_site
    return route.related is not None and entered in route.related


def sent(spark, route, rows):
    records = [
        ("clicks", n % 3, n, b"k", None if value is None else value.encode(), TIME, headers)
        for n, (value, headers) in enumerate(rows)
    ]
    return route.outgoing(spark.createDataFrame(records, SCHEMA)).collect()


rows = st.tuples(
    st.sampled_from(VALUES), st.none() | st.lists(st.sampled_from(HEADERS), max_size=3)
)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("related", RELATED)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(made=st.lists(rows, min_size=60, max_size=60))
def test_spark_sends_what_the_rules_say(spark, home, related, made):
    route = route_to("waw", home, related)
    numbers = [
        int(dict(row.headers)[ORIGIN].decode().rpartition("/")[2])
        for row in sent(spark, route, made)
    ]
    assert numbers == [n for n, row in enumerate(made) if is_wanted(route, *row)]


def test_headers_are_added_behind_those_of_the_record(spark):
    known = [("h", None), (ORIGIN, b"par/clicks/1/2")]
    [row] = sent(spark, route_to("waw", None, None), [("{}", known)])
    assert [tuple(header) for header in row.headers] == [
        ("h", None),
        (ORIGIN, b"par/clicks/1/2"),
        (TIMESTAMP, b"%d" % (TIME.timestamp() * 1000)),
        (ORIGIN, b"central/clicks/0/0"),
    ]
    assert (row.topic, row.partition, bytes(row.key), bytes(row.value)) == (
        "events",
        0,
        b"k",
        b"{}",
    )


def test_the_time_of_the_first_dispatch_stays(spark):
    [row] = sent(spark, route_to("waw", None, None), [("{}", [(TIMESTAMP, b"1")])])
    assert [name for name, _ in row.headers] == [TIMESTAMP, ORIGIN]
    assert bytes(row.headers[0][1]) == b"1"


def test_records_that_the_target_has_are_not_new(spark):
    sent = {
        TopicPartition("clicks", 0): SentRecords(10, b"\1\0\1"),
        TopicPartition("clicks", 2): SentRecords(0, b"\1"),
    }
    places = [(partition, offset) for partition in range(3) for offset in (0, 9, 10, 11, 12, 13)]
    records = [("clicks", *place, b"k", b"{}", TIME, None) for place in places]
    new = spark.createDataFrame(records, SCHEMA).where(is_new(sent)).collect()
    known = {(0, 10), (0, 12), (2, 0)}
    assert [(row.partition, row.offset) for row in new] == [p for p in places if p not in known]


def test_without_records_that_were_sent_all_are_new(spark):
    records = spark.createDataFrame([("clicks", 0, 0, b"k", b"{}", TIME, None)], SCHEMA)
    assert records.where(is_new({})).count() == 1
