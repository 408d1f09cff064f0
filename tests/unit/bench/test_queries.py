"""The pure parts of the benchmark of standing queries."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import pyarrow as pa
import pytest
from bench import queries, query_traffic
from bench.driver import OutputWrongError
from bench.match_rules import Condition, Rule, decode_rule, encode_rule, rule_of
from bench.match_systems import COMPARED, SYSTEMS, systems_of
from bench.peers import percolator
from bench.peers.contest import Findings
from bench.peers.match_topics import Match, rules_topic
from bench.query_traffic import ADVERTISERS, AdImpressions, QueryMix, ad_impressions_topic
from bench.report import PAGE

from headrace.pipelines.source.decode.columns import arrow_schema
from headrace.queries.language import parse_query, print_query
from headrace.queries.match import held
from headrace.queries.match.held import LiveQueries
from headrace.queries.match.shape import compile_query
from headrace.queries.registry.record import encode_query

SCHEMA = ad_impressions_topic("ads", 1).schema
MIXES = [
    QueryMix(1),
    QueryMix(7),
    QueryMix(1_000),
    QueryMix(1_500),
    QueryMix(1_500, unselective=0.3),
    QueryMix(1_500, hot=0.015),
    QueryMix(200, unselective=0.3, hot=0.015),
]


def table(values):
    """Returns events as a task has them."""
    events = [json.loads(value) for value in values]
    for event in events:
        event["event_time"] = datetime.fromtimestamp(event["event_time"] / 1000, UTC)
    return pa.Table.from_pylist(events, arrow_schema(SCHEMA))


OPERATORS = {
    "in": lambda value, values: value in values,
    "=": lambda value, values: value in values,
    "!=": lambda value, values: value not in values,
    ">=": lambda value, values: value >= values[0],
}


@cache
def registered(mix):
    return tuple(mix.queries("ads"))


@cache
def rules_of(mix):
    return [decode_rule(encode_rule(rule_of(query))) for query in registered(mix)]


def matches_of_rules(mix, impressions):
    """Counts the events that meet all conditions of the rules, which the rivals are told."""
    rules = rules_of(mix)
    by_advertiser = {
        advertiser: rule
        for rule in rules
        for condition in rule.conditions
        if condition.field == "advertiser"
        for advertiser in condition.values
    }
    asked = [
        event
        for event in map(json.loads, impressions.values())
        if event["advertiser"] in by_advertiser
    ]
    return Counter(
        rule.id
        for event in asked
        for rule in [by_advertiser[event["advertiser"]]]
        if all(
            OPERATORS[condition.operator](event[condition.field], condition.values)
            for condition in rule.conditions
        )
    )


def asked_for(query):
    return query.constants[-2][0]


def test_the_events_are_the_same_ones_in_every_run_and_of_the_class():
    impressions = AdImpressions(1_500)
    first, again = list(impressions.values()), list(impressions.values())
    assert first == again
    assert all(set(json.loads(value)) == set(SCHEMA.names) for value in first)
    assert len(impressions.matching) == 2


def test_one_event_in_a_thousand_is_of_an_advertiser_that_a_query_asks_for():
    impressions = AdImpressions(3_000)
    advertisers = [json.loads(value)["advertiser"] for value in impressions.values()]
    asked = [name for name in advertisers if name.startswith("asked-")]
    assert (
        asked
        == [f"asked-{place}" for place, _ in impressions.matching]
        == [
            "asked-0",
            "asked-1",
            "asked-2",
        ]
    )


@pytest.mark.parametrize("mix", MIXES, ids=repr)
def test_each_advertiser_is_asked_for_by_one_query(mix):
    names = [name for query in registered(mix) for name in asked_for(query)]
    asked = [name for name in names if name.startswith("asked-")]
    assert sorted(asked) == sorted(f"asked-{place}" for place in range(ADVERTISERS))
    assert len(set(names)) == len(names) >= mix.count


@pytest.mark.parametrize("mix", MIXES, ids=repr)
def test_the_expected_matches_are_those_of_the_queries(mix, monkeypatch):
    monkeypatch.setattr(query_traffic, "MATCH_EVERY", 2)
    impressions = AdImpressions(2_200)
    rows = table(impressions.values())
    live = LiveQueries("ads", SCHEMA)
    for query in registered(mix):
        live.apply(*encode_query(query))
    matches = sum(len(matches.rows) for matches in live.rules.matches(rows))
    expected = mix.matches(impressions.matching)
    assert matches == expected.total()
    assert 0 < matches < 1_100 if mix.unselective else matches == 1_100
    assert expected == matches_of_rules(mix, impressions)


def test_few_queries_have_most_matches_in_a_skewed_mix():
    mix = queries.MIXES["match-skewed"]
    of_query = Counter({query.id: len(asked_for(query)) for query in registered(mix)})
    absent = sum("absent" in name for query in registered(mix) for name in asked_for(query))
    assert sum(count for _, count in of_query.most_common(150)) == 900
    assert sum(of_query.values()) - absent == ADVERTISERS


def test_three_in_ten_queries_have_an_unselective_equality():
    mix = queries.MIXES["match-unselective"]
    texts = [query.text for query in registered(mix)]
    assert sum("position = " in text for text in texts) == 3_000
    assert {text.count("position = 2") for text in texts} == {0, 1}


@pytest.mark.parametrize("mix", [QueryMix(250), QueryMix(250, unselective=0.3)], ids=repr)
def test_queries_are_registered_as_the_command_would(mix):
    for query in registered(mix):
        tree = parse_query(query.text)
        shape, constants = compile_query(tree, SCHEMA)
        assert (print_query(tree), shape.key) == (query.text, query.shape)
        assert repr(constants) == repr(query.constants)
    assert len({query.shape for query in registered(mix)}) == 100


def test_one_query_of_each_shape_is_parsed(monkeypatch):
    parsed = []
    monkeypatch.setattr(held, "parse_query", lambda text: parsed.append(text) or parse_query(text))
    live = LiveQueries("ads", SCHEMA)
    for query in QueryMix(300).queries("ads"):
        live.apply(*encode_query(query))
    assert len(live.rules) == 300
    assert len(parsed) == 100


def measured(*speeds):
    runs = [{"messages_per_second": speed} for speed in speeds]
    return Findings({("headrace", 2): runs})


def test_speed_is_compared_with_other_numbers_of_queries_in_the_same_round():
    findings = {
        "match-100": measured(100.0, 200.0),
        "match-1": measured(150.0, 220.0),
        "match-10000": measured(90.0, 100.0),
        "match-skewed": measured(45.0, 150.0),
    }
    ratios = {
        name: [run.get(ratio) for run in queries.with_ratios(name, findings)["headrace", 2]]
        for name, ratio in {
            "match-1": "times_100_queries",
            "match-10000": "times_100_queries",
            "match-skewed": "times_10000_queries",
            "match-100": "times_100_queries",
        }.items()
    }
    assert ratios == {
        "match-1": [1.5, 1.1],
        "match-10000": [0.9, 0.5],
        "match-skewed": [0.5, 1.5],
        "match-100": [None, None],
    }


def test_a_benchmark_without_its_base_has_no_ratio():
    findings = {"match-skewed": measured(45.0), "match-10000": Findings()}
    for known in (findings, {"match-skewed": measured(45.0)}):
        assert queries.with_ratios("match-skewed", known) == measured(45.0).runs


def test_headrace_is_compared_with_its_rivals_in_the_same_round():
    findings = measured(100.0, 200.0)
    findings.runs["flink", 2] = [{"messages_per_second": speed} for speed in (50.0, 400.0)]
    runs = queries.with_ratios("match-100", {"match-100": findings})
    assert [run["times_flink"] for run in runs["headrace", 2]] == [2.0, 0.5]
    assert all("times_opensearch" not in run for run in runs["headrace", 2])
    assert runs["flink", 2] == findings.runs["flink", 2]


def test_rivals_take_part_where_there_are_rules_for_them():
    assert set(COMPARED) == {"match-100", "match-1000", "match-10000"} <= queries.MIXES.keys()
    for benchmark in queries.MIXES:
        assert systems_of(benchmark) == (list(SYSTEMS) if benchmark in COMPARED else ["headrace"])
    assert len({rules_topic(benchmark).name for benchmark in COMPARED}) == 3


def test_times_of_a_rule_are_those_of_events():
    [rule] = {
        rule_of(query)
        for query in QueryMix(100).queries("ads")
        if "event_time" in query.text and query.id == "query-3"
    }
    assert rule.conditions[1] == Condition("event_time", ">=", (1_546_300_800_000,))


def test_a_query_that_is_more_than_comparisons_is_no_rule():
    [query] = QueryMix(1).queries("ads")
    other = replace(query, text="SELECT count(*) FROM ads WHERE position = 1 OR position = 2")
    with pytest.raises(TypeError, match="no condition of a rule"):
        rule_of(other)


def test_the_percolator_has_the_conditions_of_a_rule_and_computes_no_score():
    rule = Rule(
        "query-1",
        (
            Condition("advertiser", "in", ("a", "b")),
            Condition("position", ">=", (1,)),
            Condition("campaign", "!=", ("",)),
        ),
    )
    assert percolator.query_of(rule) == {
        "bool": {
            "filter": [{"terms": {"advertiser": ("a", "b")}}, {"range": {"position": {"gte": 1}}}],
            "must_not": [{"terms": {"campaign": ("",)}}],
        }
    }


class AnsweringClient:
    def __init__(self, answer):
        self.answer = answer

    def call(self, method, path, body):
        self.documents = json.loads(body)["query"]["constant_score"]["filter"]["percolate"]
        return self.answer


def test_the_slots_of_the_percolators_answer_are_events_of_the_request():
    slots = [("query-1", [0, 2]), ("query-2", [2])]
    hits = [{"_id": name, "fields": {"_percolator_document_slot": slot}} for name, slot in slots]
    client = AnsweringClient({"hits": {"total": {"value": 2}, "hits": hits}})
    events = [b'{"event_id":"e%d","event_time":%d}' % (number, number) for number in range(3)]
    assert list(percolator.percolated(client, events)) == [
        Match("query-1", "e0", 0),
        Match("query-1", "e2", 2),
        Match("query-2", "e2", 2),
    ]
    assert client.documents["documents"] == list(map(json.loads, events))


def test_an_answer_of_the_percolator_without_some_of_the_rules_is_an_error():
    client = AnsweringClient({"hits": {"total": {"value": 10_001}}})
    with pytest.raises(RuntimeError, match="10001 rules match, 0 were returned"):
        list(percolator.percolated(client, [b"{}"]))


def test_the_percolator_knows_the_fields_that_rules_ask_for():
    rules = rules_of(QueryMix(1_500, unselective=0.3))
    fields = {condition.field for rule in rules for condition in rule.conditions}
    assert fields == percolator.FIELDS.keys() - {"query"}


def test_matches_are_compared_by_query():
    expected = Counter({"query-1": 2, "query-2": 1})
    queries.check(Counter({"query-1": 2, "query-2": 1}), expected)
    with pytest.raises(OutputWrongError, match="3 matches, not 3; 2 queries have others"):
        queries.check(Counter({"query-1": 1, "query-2": 2}), expected)
    with pytest.raises(OutputWrongError, match="query-3 has 1 instead of 0"):
        queries.check(expected | Counter({"query-3": 1}), expected)


@pytest.mark.parametrize("benchmark", queries.MIXES)
def test_each_benchmark_has_a_place_on_the_page(benchmark):
    assert f"<!-- {benchmark}: begin -->" in PAGE.read_text()


def test_an_unknown_benchmark_is_refused(capsys):
    with pytest.raises(SystemExit):
        queries.main(["match-7"])
    assert "there is no benchmark match-7" in capsys.readouterr().err
