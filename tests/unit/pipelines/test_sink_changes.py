"""What `plan` says of a table, before anything runs."""

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from headrace import Iceberg, Lake, Metadata, Pipeline, Postgres, Source, Topic
from headrace.errors import (
    BrokerUnreachableError,
    ExtraMissingError,
    SinkError,
    TableMismatchError,
)
from headrace.operations.planning.plan import apply_plan
from headrace.pipelines.sink_changes import SinkChange, apply_sinks, sink_changes
from headrace.pipelines.sinks import sink_context
from headrace.pipelines.source.record_columns import row_columns
from headrace.project.loaded import LoadedProject
from headrace.runtime import extras
from headrace.settings import Secret, Settings
from headrace.sinks.api import Provisionable, Transaction


@dataclass
class Site:
    id: int


@dataclass
class LargerSite(Site):
    name: str | None


@dataclass
class View:
    page: str
    site: Site


@dataclass
class LargerView(View):
    site: LargerSite
    seconds: float | None


@dataclass
class OtherView:
    page: int
    site: Site


@dataclass
class SmallerView:
    page: str


TOPIC = Topic("views", event=View)
PIPELINE = Pipeline("views-to-lake", TOPIC, Lake("views"))


@pytest.fixture
def settings(tmp_path):
    settings = Settings(root=tmp_path, name="p", modules=("flow",), lake=str(tmp_path / "lake"))
    rows = row_columns(TOPIC.schema, ())
    driver = PIPELINE.sink.open(sink_context(settings, PIPELINE, PIPELINE.sink), rows)
    writer = driver.writers("task")
    writer.write(pa.Table.from_pylist([{"page": "/", "site": {"id": 1}}], rows))
    driver.commit(writer.close(), Transaction({"a": 0}, {"a": None}), 0)
    driver.close(0)
    return settings


def changes(settings, event, pipeline=PIPELINE, **source):
    topic = replace(TOPIC, event=event)
    return sink_changes(settings, [replace(pipeline, source=Source(topic, **source))])


def test_a_table_as_declared_and_one_that_is_not_there_have_no_changes(settings):
    assert changes(settings, View) == ()
    assert changes(settings, LargerView, replace(PIPELINE, sink=Lake("new"))) == ()


def test_columns_that_the_table_gets_are_named(settings):
    assert changes(settings, LargerView, metadata=(Metadata.OFFSET,)) == tuple(
        SinkChange("views-to-lake", "lake views", f"gets column {column}")
        for column in ("'site.name', string", "'seconds', double", "'_offset', long")
    )


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (OtherView, "column 'page' is string in the table, but long in the rows"),
        (SmallerView, "column 'site' is not in the rows, and pipeline 'views-to-lake' wrote it"),
    ],
)
def test_what_can_not_be_is_refused_with_the_ways_on(settings, event, words):
    (change,) = changes(settings, event)
    assert change.is_refused
    assert words in change.detail
    assert "another `table`" in change.remedy


def test_a_pipeline_with_steps_is_compared_at_its_start(settings):
    assert changes(settings, OtherView, replace(PIPELINE, steps=[lambda rows: rows])) == ()


def test_a_lake_that_can_not_be_looked_at_refuses_nothing(settings):
    (log,) = (settings.root / "lake" / "views" / "_delta_log").glob("*00.json")
    log.write_text("no log")
    (change,) = changes(settings, View)
    assert not change.is_refused
    assert change.detail.startswith("can't be inspected: ")


@dataclass(frozen=True)
class Made(Lake, Provisionable):
    """A sink whose target is made beforehand, or can't be."""

    error: Exception | None = None
    is_provisioned = True

    def apply(self, context, schema):
        if self.error is not None:
            raise self.error
        return [f"{context.pipeline} made {', '.join(schema.names)}"]


def applied(settings, *sinks):
    return apply_sinks(settings, [replace(PIPELINE, sink=sink) for sink in sinks])


def test_targets_that_headrace_makes_are_made_and_the_others_left(settings):
    assert applied(settings, Lake("new"), Made("made")) == (
        SinkChange("views-to-lake", "lake made", "views-to-lake made page, site"),
    )
    assert not (settings.root / "lake" / "new").exists()


def test_an_iceberg_table_is_made_once(settings):
    sink = Lake("views", format=Iceberg())
    assert applied(settings, sink) == (SinkChange("views-to-lake", "lake views", "is created"),)
    assert applied(settings, sink) == ()


def test_a_target_that_would_have_to_change_otherwise_is_refused_and_the_next_is_made(settings):
    mismatch = TableMismatchError("made", "column 'page' is long")
    refused, made = applied(settings, Made("a", error=mismatch), Made("b"))
    assert (refused.is_refused, refused.remedy) == (True, mismatch.remedy)
    assert refused.detail == mismatch.reason
    assert not made.is_refused


def test_a_target_that_can_not_be_made_fails_the_command(settings):
    with pytest.raises(SinkError, match="no answer"):
        applied(settings, Made("a", error=SinkError("made", "no answer")))


@pytest.mark.parametrize("extra", ["spark", "made"])
def test_apply_needs_the_extras_of_targets_that_it_makes_before_it_connects(
    settings, monkeypatch, extra
):
    monkeypatch.setattr(Made, "extra_for", lambda *_: "made")
    monkeypatch.setattr(extras, "MODULES", {"spark": (), "made": (), extra: ("no_such_module",)})
    pipelines = (replace(PIPELINE, sink=Made("a")),)
    with pytest.raises(ExtraMissingError, match=extra):
        apply_plan(LoadedProject(settings, pipelines))
    with pytest.raises(BrokerUnreachableError):
        apply_plan(LoadedProject(settings, (PIPELINE,)))


UNREACHABLE = "can't be inspected"


@pytest.mark.parametrize(
    ("missing", "sink", "words"),
    [
        ("s3", Lake("views"), "extra 's3'"),
        ("s3", Postgres("views"), UNREACHABLE),
        ("postgres", Postgres("views"), "extra 'postgres'"),
        ("postgres", Lake("views"), ""),
        ("s3", Postgres("views", server="eu"), "PostgreSQL eu"),
    ],
)
def test_the_extra_of_the_sink_is_named_and_no_other(settings, monkeypatch, missing, sink, words):
    monkeypatch.setattr(extras, "MODULES", extras.MODULES | {missing: ("no_such_module",)})
    lake = "s3://bucket/lake" if missing == "s3" else settings.lake
    urls = dict.fromkeys(("url", "eu.url"), Secret("postgresql://127.0.0.1:1/no_server"))
    sinks = {"postgres": urls}
    found = changes(replace(settings, lake=lake, sinks=sinks), View, replace(PIPELINE, sink=sink))
    assert [words in change.detail for change in found] == [True] * bool(words)
