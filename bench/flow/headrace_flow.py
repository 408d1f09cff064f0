"""headrace in each part, as a project declares it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from bench.cluster import WORK
from bench.driver import WriteOnce
from bench.events import Impression, impressions_topic
from bench.flow.events import Click, Traffic
from bench.flow.part import nulls
from bench.flow.times import Times
from bench.headrace_writer import TABLE, batch_limits, files_of, open_pipelines
from bench.setup import Setup
from bench.sink_targets import table_name
from headrace import (
    BatchLimits,
    Join,
    Kafka,
    Lake,
    Pipeline,
    Stats,
    Topic,
    Unique,
    deduplicate,
)
from headrace.pipelines.declaration import Step
from headrace.settings.model import SecretUrl
from headrace.sinks.api import Sink

CLICKS = "clicks"
LIVE_WAIT = timedelta(milliseconds=10)
"""How long a batch of a live join waits for more."""
INDEXES = WORK / "indexes"
"""Of joins, which are in the folder for temporary files."""


def open_join(setup: Setup, *, traffic: Traffic, times: Times) -> WriteOnce:
    """Starts Spark; the function returned joins both topics into a fresh lake."""
    _use_folder_for_indexes()
    pipeline = partial(_join_pipeline, setup, traffic=traffic, times=times)
    return open_pipelines(setup, "join", pipeline)


def _use_folder_for_indexes() -> None:
    """Of this process and those that it starts."""
    INDEXES.mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(INDEXES)


def _join_pipeline(setup: Setup, out: Path, *, traffic: Traffic, times: Times) -> Pipeline:
    # Both topics share a batch equally, and the clicks need little of their half.
    limits = replace(batch_limits(setup), max_records=2 * setup.batch_records)
    return Pipeline(out.name, source=_join(traffic, times), sink=Lake(CLICKS), limits=limits)


def _join(traffic: Traffic, times: Times) -> Join:
    return Join(
        traffic.clicks_topic,
        traffic.impressions_topic,
        on=("impression_id", "event_id"),
        column="impression",
        within=times.within,
        wait=times.wait,
    )


def open_live_join(setup: Setup, *, times: Times, to_kafka: bool) -> WriteOnce:
    """Starts Spark; the function returned follows the topics of a run until it has read them all.

    The topics have the name of the run, and so has the topic that the rows go to.
    """
    _use_folder_for_indexes()
    pipeline = partial(_live_pipeline, setup, times=times, to_kafka=to_kafka)
    return open_pipelines(setup, "live", pipeline, until=setup.messages)


def _live_pipeline(setup: Setup, out: Path, *, times: Times, to_kafka: bool) -> Pipeline:
    source = _join(Traffic(0, setup.partitions, name=out.name), times)
    sink = Kafka(joined_topic(out.name, setup.partitions)) if to_kafka else Lake(CLICKS)
    return Pipeline(out.name, source=source, sink=sink, limits=BatchLimits(max_wait=LIVE_WAIT))


def joined_topic(name: str, partitions: int) -> Topic:
    """Of the rows of a live join; a record has the time at which the broker got it."""
    config = {"message.timestamp.type": "LogAppendTime"}
    return Topic(name, event=JoinedClick, partitions=partitions, config=config)


class JoinedClick(Click):
    """A click with its impression."""

    impression: Impression | None


def open_deduplicated(setup: Setup, *, within: timedelta) -> WriteOnce:
    """Starts Spark; the function returned writes the topic by a step without repeats."""
    step = deduplicate(by=["event_id"], within=within)
    pipeline = partial(_topic_pipeline, setup, sink=Lake(TABLE), steps=(step,))
    return open_pipelines(setup, "deduplicated", pipeline)


def open_unique(setup: Setup, *, within: timedelta) -> WriteOnce:
    """Starts Spark; the function returned writes the topic into a table without repeats."""
    sink = Lake(TABLE, unique=Unique(by=["event_id"], within=within))
    pipeline = partial(_topic_pipeline, setup, sink=sink)
    return open_pipelines(setup, "unique", pipeline)


def open_stats(setup: Setup, *, url: str, stats: Stats) -> WriteOnce:
    """Starts Spark; the function returned counts the topic in a new table of PostgreSQL."""
    settings = {"postgres": {"url": SecretUrl(url)}}

    def pipeline(out: Path) -> Pipeline:
        return _topic_pipeline(setup, out, sink=replace(stats, table=table_name(out.name)))

    return open_pipelines(setup, "stats", pipeline, sinks=settings)


def _topic_pipeline(setup: Setup, out: Path, *, sink: Sink, steps: Sequence[Step] = ()) -> Pipeline:
    topic = impressions_topic(setup.topic, setup.partitions)
    return Pipeline(out.name, source=topic, sink=sink, steps=steps, limits=batch_limits(setup))


def joined_rows(out: Path) -> dict[str, int]:
    """The rows with an impression, and those without one."""
    matched, unmatched = nulls(files_of(out / CLICKS), "impression")
    return {"matched_rows": matched, "unmatched_rows": unmatched}


def state_folders(out: Path) -> list[Path]:
    """Spark's checkpointed state."""
    return [folder for folder in out.rglob("state") if (folder / "0").is_dir()]


def join_state(out: Path) -> list[Path]:
    """The durable files, and the indexes of this machine."""
    # The folder itself stays: where it is gone, processes take the system's own.
    return [*out.rglob("headrace/join"), *INDEXES.glob("headrace-join-*")]
