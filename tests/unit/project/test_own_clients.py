"""What runs for a declaration has the settings of Kafka clients that are its own."""

from __future__ import annotations

from datetime import datetime

import pytest

from headrace import Dispatcher, Kafka, Merger, Mirror, Pipeline, Source, StandingQueries, Topic
from headrace.links.copying.kind import copy_kind_of
from headrace.links.dispatcher.standing import routes_of
from headrace.links.merger.standing import plan_of
from headrace.pipelines.run.pipeline_run import Deployment, run_context
from headrace.pipelines.sinks import sink_context
from headrace.project.loaded import LoadedProject
from headrace.queries import run as query_runs
from headrace.service.run import RunOptions
from headrace.settings import load_settings


class Click:
    id: str
    at: datetime


CLICKS = Topic("clicks", event=Click, key="id", event_time="at")
ORDERS = Topic("orders", event=Click, key="id", event_time="at")
LATE = Topic("late", event=Click, key="id", event_time="at")
MERGER = Merger("own", sources=[CLICKS], target=ORDERS, late=LATE)
PIPELINE = Pipeline("own", source=Source(CLICKS), sink=Kafka(ORDERS))


@pytest.fixture
def project(tmp_path):
    tables = "".join(
        f"[{kind}.own.kafka.client]\nclient.id = '{kind}'\n"
        f"[{kind}.own.kafka.consumer]\nfetch.min.bytes = 7\n"
        f"[{kind}.own.kafka.producer]\nlinger.ms = 9\n"
        for kind in ("pipelines", "mirrors", "mergers", "dispatchers", "standing_queries")
    )
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "ads"\nmodules = ["flow"]\n[kafka]\nbootstrap_servers = "here:1"\n'
        f'[sites.waw.kafka]\nbootstrap_servers = "waw:1"\n{tables}'
    )
    return LoadedProject(load_settings(tmp_path, {}))


def assert_own(config, kind, servers="here:1"):
    assert config["bootstrap.servers"] == servers
    assert config["client.id"] == kind
    assert config["consumer.fetch.min.bytes"] == "7"
    assert config["producer.linger.ms"] == "9"


def test_a_pipeline_and_its_sinks(project, tmp_path):
    deployment = Deployment("here:1", str(tmp_path), "local", {})
    assert_own(run_context(project.settings, PIPELINE, deployment).client, "pipelines")
    assert_own(sink_context(project.settings, PIPELINE, PIPELINE.sink).client, "pipelines")


def test_a_mirror_at_both_sites(project):
    mirror = Mirror("own", source="waw", topics={"clicks": CLICKS})
    plan = copy_kind_of(mirror).plan(project.settings, mirror)
    assert_own(plan.source, "mirrors", "waw:1")
    assert_own(plan.target, "mirrors")


def test_a_merger(project):
    assert_own(plan_of(project, MERGER).config, "mergers")


def test_a_dispatcher_at_both_sites(project):
    dispatcher = Dispatcher("own", source=CLICKS, home="id", targets={"waw": "clicks"})
    [route] = routes_of(project, dispatcher)
    assert_own(route.source, "dispatchers")
    assert_own(route.target, "dispatchers", "waw:1")


def test_an_instance_of_standing_queries(project, monkeypatch):
    seen = []
    monkeypatch.setattr(query_runs, "event_topics", lambda *_: {"clicks": CLICKS})
    monkeypatch.setattr(query_runs, "AggregatorInstance", lambda config, *_: seen.append(config))
    monkeypatch.setattr(query_runs, "ServiceRun", lambda *_: None)
    query_runs.query_run(project, StandingQueries("own"), RunOptions())
    assert_own(seen[0], "standing_queries")
