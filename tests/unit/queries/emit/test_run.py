"""Of which topics matched events are sent."""

from __future__ import annotations

import pytest
from tests.unit.queries.registry.flow import FLOW, write_project

from headrace import StandingQueries
from headrace.errors import (
    MatchedEventsFormatError,
    NotDeclaredError,
    QueriesUnmatchedError,
    QueryUnmatchedError,
)
from headrace.project.check import load_project
from headrace.queries.emit.run import matched_events_run
from headrace.queries.run import query_run
from headrace.service.run import RunOptions
from headrace.settings import load_settings

TOPIC = 'Topic("clicks", event=Click'


def run_of(folder, monkeypatch, flow=FLOW, topic=None):
    monkeypatch.syspath_prepend(str(folder))
    write_project(folder, flow, bootstrap="127.0.0.1:1")
    with (folder / "headrace.toml").open("a") as file:
        file.write('[schema_registry]\nurl = "http://127.0.0.1:1"\n')
    project = load_project(load_settings(folder, {}))
    queries = project.declared(StandingQueries)["ads"]
    return matched_events_run(project, queries, topic, RunOptions())


def test_the_only_topic_that_is_matched_need_not_be_named(tmp_path, monkeypatch):
    assert run_of(tmp_path, monkeypatch) is not None


def test_a_topic_that_is_not_matched_is_named_with_those_that_are(tmp_path, monkeypatch):
    with pytest.raises(QueryUnmatchedError, match="clicks") as refused:
        run_of(tmp_path, monkeypatch, topic="views")
    assert refused.value.topic == "views"
    with pytest.raises(NotDeclaredError, match="clicks") as unknown:
        run_of(tmp_path, monkeypatch, topic="orders")
    assert unknown.value.name == "orders"


def test_without_a_pipeline_the_one_that_is_needed_is_named(tmp_path, monkeypatch):
    flow = FLOW.replace("match_clicks =", "def unused():\n    return")
    with pytest.raises(QueriesUnmatchedError) as refused:
        run_of(tmp_path, monkeypatch, flow)
    assert 'Pipeline("match-TOPIC", TOPIC, MatchQueries(ads))' in refused.value.remedy
    project = load_project(load_settings(tmp_path, {}))
    with pytest.raises(QueriesUnmatchedError):
        query_run(project, project.declared(StandingQueries)["ads"], RunOptions())


@pytest.mark.parametrize(
    ("options", "reason"),
    [("format=Avro()", "Avro"), ("envelope=ArrayEnvelope()", "envelopes")],
)
def test_records_that_are_not_one_json_event_are_refused(tmp_path, monkeypatch, options, reason):
    flow = FLOW.replace(TOPIC, f"{TOPIC}, {options}")
    flow = flow.replace("import Guarantee,", "import ArrayEnvelope, Avro, Guarantee,")
    with pytest.raises(MatchedEventsFormatError, match=reason):
        run_of(tmp_path, monkeypatch, flow)


def test_partitions_that_are_added_find_a_core(tmp_path, monkeypatch):
    flow = FLOW.replace(TOPIC, f"{TOPIC}, partitions=3")

    def opened(_settings, _name, _environ, master):
        raise OSError(master)

    monkeypatch.setattr("headrace.queries.emit.run.kafka_session", opened)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(OSError, match=r"local\[6\]"):
        run_of(tmp_path, monkeypatch, flow).run(lambda _: None)
