"""Events that Spark matches are those that match on Arrow columns, which DuckDB has, too."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import functions as f
from tests.unit.queries.compile.arrow.expressions import VISITS, Visit
from tests.unit.queries.pipeline import live_queries
from tests.unit.queries.query_strategies import EVENTS, TOPIC, query_sets

from headrace import StandingQueries, Topic
from headrace.model import Json, TopicPartition
from headrace.pipelines.source.decode import decoder_for
from headrace.queries.emit import rules as rules_module
from headrace.queries.emit.outgoing import RuleColumns, outgoing_rows
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.rules import EmittingRules
from headrace.queries.emit.sent import SentOfEvent
from headrace.queries.match.held import RegistryPoint

PARTITIONS = 3
UNREADABLE = (b"", b"[]", b"{", b'{"country": 1}', b'{"country": "a", "views": 1}', None)
MATCHED = EmitterPlan(
    StandingQueries("ads", partitions=2),
    Topic(TOPIC, Visit, event_time="at", partitions=PARTITIONS),
    {},
    "here",
)
RECORDS = (
    "topic string, partition int, offset bigint, key binary, value binary, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


def emitting_rules(texts, rows):
    queries = live_queries(
        {name: f"{text}\nMATCHED EVENTS EMIT" for name, text in texts.items()}, VISITS, topic=TOPIC
    )
    return EmittingRules.of(queries, rows, RegistryPoint("id", 7, 0)), queries


def records(spark, values):
    rows = [
        (TOPIC, offset % PARTITIONS, offset // PARTITIONS, None, value, None, None)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RECORDS)


def sent(spark, values, rules, before=None):
    """Query and place in the list of values, of all that is sent."""
    columns = RuleColumns.of(rules, VISITS)
    rows = outgoing_rows(records(spark, values), MATCHED, columns, before or {})
    headers = f.element_at(f.col("headers"), -1)["value"].cast("string")
    pairs = []
    for row in rows.select("key", "topic", "partition", "value", headers.alias("origin")).collect():
        site, topic, partition, offset = row.origin.split("/")
        assert (row.topic, site, topic) == ("ads.matched-events", "here", TOPIC)
        assert row.partition == int(partition) % 2
        number = int(offset) * PARTITIONS + int(partition)
        assert bytes(row.value) == values[number]
        pairs.append((row.key, number))
    return pairs


def on_arrow(values, texts):
    decoded = decoder_for(Json(), VISITS).decode(values)
    rejected = set(decoded.rejected)
    numbers = [number for number in range(len(values)) if number not in rejected]
    _, queries = emitting_rules(texts, decoded.rows)
    return [
        (queries.rules.rule(slot).query_id, numbers[row])
        for matches in queries.rules.matches(decoded.rows)
        for row, slot in zip(matches.rows, matches.slots, strict=True)
    ]


EVENT = {"country": "a", "views": 1, "at": "2026-05-01T00:00:00Z"}


@pytest.mark.drill
def test_what_is_sent_matches_on_arrow_columns(drill_run, spark):
    examples = drill_run.size(short=30, long=1_000)
    counts = Counter()

    @seed(drill_run.random.randrange(2**32))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(query_sets(), min_size=1, max_size=6),
        st.lists(EVENTS, max_size=60),
        st.lists(st.sampled_from(UNREADABLE), max_size=3),
    )
    @example([{"all": f"SELECT count(*) FROM {TOPIC}"}], [EVENT] * 10, [])
    def matches_are_the_same(sets, events, unreadable):
        texts = {f"{n}-{name}": text for n, each in enumerate(sets) for name, text in each.items()}
        values = [*map(msgspec.json.encode, events), *unreadable]
        expected = on_arrow(values, texts)
        decoded = decoder_for(Json(), VISITS).decode(values)
        rules, _ = emitting_rules(texts, decoded.rows)
        assert sorted(sent(spark, values, rules)) == sorted(expected)
        counts.update(queries=len(texts), matches=len(expected), events=len(events))

    matches_are_the_same()
    drill_run.report(examples=examples, **counts)
    assert counts["matches"] > examples // 10


def test_what_was_sent_of_an_event_is_not_sent_again(spark):
    values = [b'{"country": "a", "views": %d, "at": "2026-05-01T00:00:00Z"}' % n for n in range(6)]
    texts = dict.fromkeys("pq", f"SELECT count(*) FROM {TOPIC} WHERE country = 'a'")
    rules, _ = emitting_rules(texts, decoder_for(Json(), VISITS).decode(values).rows)
    before = {TopicPartition(TOPIC, 1): SentOfEvent(0, {"p"})}
    every = {(name, number) for name in "pq" for number in range(6)}
    assert set(sent(spark, values, rules, before)) == every - {("p", 1)}
    assert len(sent(spark, values, rules)) == len(every)


def test_a_query_begins_at_an_offset_of_each_partition(spark):
    values = [b'{"country": "a", "views": %d, "at": "2026-05-01T00:00:00Z"}' % n for n in range(9)]
    rows = decoder_for(Json(), VISITS).decode(values).rows
    texts = {"p": f"SELECT count(*) FROM {TOPIC}"}
    first, _ = emitting_rules(texts, rows)
    both, _ = emitting_rules(texts | {"q": f"SELECT count(*) FROM {TOPIC}"}, rows)
    later = both.after(first, {0: 1, 1: 3, 2: 0})
    every = {("p", number) for number in range(9)}
    of_new = {("q", 3), ("q", 6), ("q", 2), ("q", 5), ("q", 8)}
    assert set(sent(spark, values, later)) == every | of_new
    assert set(sent(spark, values, both.after(later, {0: 9, 1: 9, 2: 9}))) == every | of_new


def test_shapes_beyond_the_limit_match_nothing_and_are_counted(monkeypatch):
    monkeypatch.setattr(rules_module, "MAX_SHAPES", 2)
    texts = {name: f"SELECT count(*) FROM {TOPIC} WHERE title LIKE '{name}%'" for name in "abcd"}
    texts["e"] = texts["a"]
    rules, _ = emitting_rules(texts, decoder_for(Json(), VISITS).decode([]).rows)
    assert (len(rules.shapes), rules.left_out, {row["query"] for row in rules.rows}) == (
        2,
        2,
        {"a", "b", "e"},
    )


def test_headers_say_where_an_event_is_and_what_it_matches(spark):
    values = [b'{"country": "a", "views": 1, "at": "2026-05-01T00:00:00Z"}']
    rules, _ = emitting_rules(
        {"q": f"SELECT count(*) FROM {TOPIC}"}, decoder_for(Json(), VISITS).decode(values).rows
    )
    own = records(spark, values).withColumn(
        "headers", f.array(f.struct(f.lit("own").alias("key"), f.lit(b"1").alias("value")))
    )
    [row] = outgoing_rows(own, MATCHED, RuleColumns.of(rules, VISITS), {}).collect()
    assert [(each.key, bytes(each.value)) for each in row.headers] == [
        ("own", b"1"),
        ("headrace-query-revision", b"1"),
        ("headrace-registry-offset", b"7"),
        ("headrace-origin", f"here/{TOPIC}/0/0".encode()),
    ]
    assert bytes(row.value) == values[0]
