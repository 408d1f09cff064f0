"""headrace's sinks, as a project would use them: one declared pipeline a run, one warm session."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.driver import WriteOnce
from bench.events import impressions_topic
from bench.headrace_writer import batch_limits, open_pipelines
from bench.setup import Setup
from bench.sink_targets import KEY, table_name
from headrace import Kafka, Pipeline, Postgres, WriteMode
from headrace.settings.model import SecretUrl
from headrace.sinks.api import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shown(impressions: DataFrame) -> DataFrame:
    """The Spark step: a filter that keeps every event."""
    from pyspark.sql import functions as F  # noqa: N812

    is_shown = F.col("position") > 0
    return impressions.where(is_shown)


def topic_sink(setup: Setup, out: Path) -> Sink:
    """The topic of a run."""
    return Kafka(impressions_topic(out.name, setup.partitions))


def append_sink(_: Setup, out: Path) -> Sink:
    """The table of a run; every row is inserted."""
    return Postgres(table_name(out.name))


def upsert_sink(_: Setup, out: Path) -> Sink:
    """The table of a run; a row replaces the one with its id."""
    return Postgres(table_name(out.name), mode=WriteMode.UPSERT, key=(KEY,))


SINKS = {"kafka": topic_sink, "postgres-append": append_sink, "postgres-upsert": upsert_sink}


def open_headrace(setup: Setup, *, sink: str, url: str, with_step: bool) -> WriteOnce:
    """Starts Spark; the function returned writes the whole topic through a sink of headrace.

    ``url`` is PostgreSQL's; empty where the sink needs none.
    """
    settings = {"postgres": {"url": SecretUrl(url)}} if url else {}
    pipeline = partial(_pipeline, setup, sink=sink, with_step=with_step)
    name = "spark-step" if with_step else "fused"
    return open_pipelines(setup, name, pipeline, sinks=settings)


def _pipeline(setup: Setup, out: Path, *, sink: str, with_step: bool) -> Pipeline:
    return Pipeline(
        out.name,
        source=impressions_topic(setup.topic, setup.partitions),
        sink=SINKS[sink](setup, out),
        steps=(shown,) if with_step else (),
        limits=batch_limits(setup),
    )
