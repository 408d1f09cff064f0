"""headrace's sinks, as a project would use them: one declared pipeline a run, one warm session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.driver import WriteOnce
from bench.events import impressions_topic
from bench.headrace_writer import batch_limits, lake_sink, open_pipelines
from bench.setup import Setup
from bench.sink_targets import KEY, table_name
from headrace import (
    BigQuery,
    Guarantee,
    Iceberg,
    Kafka,
    OpenSearch,
    Pipeline,
    Postgres,
    Unique,
    WriteMode,
)
from headrace.settings import Secret
from headrace.sinks.api import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shown(impressions: DataFrame) -> DataFrame:
    """The Spark step: a filter that keeps every event."""
    from pyspark.sql import functions as F  # noqa: N812

    is_shown = F.col("position") > 0
    return impressions.where(is_shown)


def topic_sink(setup: Setup, out: Path) -> Kafka:
    """The topic of a run."""
    return Kafka(impressions_topic(out.name, setup.partitions))


def topic_once_sink(setup: Setup, out: Path) -> Sink:
    """The same, with rows and positions of a batch in one transaction."""
    return replace(topic_sink(setup, out), guarantee=Guarantee.EXACTLY_ONCE)


def append_sink(_: Setup, out: Path) -> Sink:
    """The table of a run; every row is inserted."""
    return Postgres(table_name(out.name))


def upsert_sink(_: Setup, out: Path) -> Sink:
    """The table of a run; a row replaces the one with its id."""
    return Postgres(table_name(out.name), mode=WriteMode.UPSERT, key=(KEY,))


def index_sink(_: Setup, out: Path) -> Sink:
    """The index of a run; the id of a document is the event's."""
    return OpenSearch(out.name, unique=Unique(by=[KEY]))


def bigquery_sink(_: Setup, out: Path) -> Sink:
    """The table of a run."""
    return BigQuery(table_name(out.name))


def iceberg_sink(_: Setup, __: Path) -> Sink:
    """The table in the folder of a run, with the catalog that headrace makes there."""
    return replace(lake_sink(), format=Iceberg())


def delta_sink(_: Setup, __: Path) -> Sink:
    """The same table in the other format."""
    return lake_sink()


SINKS = {
    "kafka": topic_sink,
    "kafka-once": topic_once_sink,
    "postgres-append": append_sink,
    "postgres-upsert": upsert_sink,
    "opensearch": index_sink,
    "bigquery": bigquery_sink,
    "iceberg": iceberg_sink,
    "delta": delta_sink,
}


def open_headrace(
    setup: Setup, *, sink: str, settings: Mapping[str, Mapping[str, str]], with_step: bool
) -> WriteOnce:
    """Starts Spark; the function returned writes the whole topic through a sink of headrace.

    ``settings`` are the tables ``[sinks]`` of a headrace.toml.
    """
    secret = {
        kind: {name: Secret(value) for name, value in values.items()}
        for kind, values in settings.items()
    }
    pipeline = partial(_pipeline, setup, sink=sink, with_step=with_step)
    name = "spark-step" if with_step else "fused"
    return open_pipelines(setup, name, pipeline, sinks=secret)


def _pipeline(setup: Setup, out: Path, *, sink: str, with_step: bool) -> Pipeline:
    return Pipeline(
        out.name,
        source=impressions_topic(setup.topic, setup.partitions),
        sink=SINKS[sink](setup, out),
        steps=(shown,) if with_step else (),
        limits=batch_limits(setup),
    )
