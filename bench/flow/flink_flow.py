"""Flink SQL in each part: Kafka tables, one INSERT, state in the heap."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from bench.driver import OnCommit, WriteOnce
from bench.flow.events import Traffic
from bench.flow.part import nulls
from bench.flow.times import Times
from bench.peers import flink_sql
from bench.peers.java_program import Program
from bench.peers.programs import Conversation, started
from bench.peers.progress import follow_groups
from bench.setup import Setup
from bench.sink_targets import jdbc_url, table_name

TABLE = "rows"
STATE = "savepoint"
HEAP_FACTOR = 2
"""Its heap is so many times as large as the others': state is in it."""
MINUTE = timedelta(minutes=1)
Statements = Callable[[Setup, Path], str]
"""The job that writes into a folder, whose name is its group."""

_KAFKA = """\
  'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
  'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = '{group}',
  'scan.startup.mode' = 'earliest-offset'"""
_FILES = """\
  'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
  'parquet.compression' = 'ZSTD', 'parquet.compression.codec.zstd.level' = '1'"""
_IMPRESSION = """\
  event_id STRING, event_time BIGINT, category STRING, campaign STRING, item_id BIGINT,
  `position` BIGINT, clicked BOOLEAN, propensity DOUBLE, user_group STRING, user_segment STRING"""
_CLICK = "  event_id STRING, event_time BIGINT, impression_id STRING, `position` BIGINT"
_WATERMARK = """\
  seen AS TO_TIMESTAMP_LTZ(event_time, 3),
  WATERMARK FOR seen AS seen - INTERVAL '{late}' MINUTE"""
_JOIN = """\
CREATE TABLE shown (
{impression},
{watermark}
) WITH (
{impressions}
);
CREATE TABLE clicks (
{click},
{watermark}
) WITH (
{clicks}
);
CREATE TABLE lake (
  event_id STRING, event_time TIMESTAMP_LTZ(3), impression_id STRING, `position` BIGINT,
  shown_id STRING, shown_at TIMESTAMP_LTZ(3), category STRING, campaign STRING, item_id BIGINT,
  shown_position BIGINT, clicked BOOLEAN, propensity DOUBLE, user_group STRING,
  user_segment STRING
) WITH (
{files}
);
INSERT INTO lake SELECT
  c.event_id, TO_TIMESTAMP_LTZ(c.event_time, 3), c.impression_id, c.`position`, i.event_id,
  TO_TIMESTAMP_LTZ(i.event_time, 3), i.category, i.campaign, i.item_id, i.`position`, i.clicked,
  i.propensity, i.user_group, i.user_segment
FROM clicks c LEFT JOIN shown i ON c.impression_id = i.event_id
  AND i.seen BETWEEN c.seen - INTERVAL '{within}' MINUTE AND c.seen + INTERVAL '{late}' MINUTE"""


_FIRST = """\
CREATE TABLE topic (
{impression},
  arrived AS PROCTIME()
) WITH (
{topic}
);
CREATE TABLE lake (
{row}
) WITH (
{files}
);
INSERT INTO lake SELECT
  event_id, TO_TIMESTAMP_LTZ(event_time, 3), category, campaign, item_id, `position`, clicked,
  propensity, user_group, user_segment
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY event_id ORDER BY arrived) AS number FROM topic
) WHERE number = 1"""


_STATS = """\
CREATE TABLE topic (
{impression}
) WITH (
{topic}
);
CREATE TABLE counts (
  window_start TIMESTAMP(3), campaign STRING, category STRING, impressions BIGINT,
  positions BIGINT, PRIMARY KEY (window_start, campaign, category) NOT ENFORCED
) WITH (
  'connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{table}'
);
INSERT INTO counts
SELECT window_start, campaign, category, COUNT(*), SUM(`position`) FROM (
  SELECT CAST(TO_TIMESTAMP_LTZ(event_time - MOD(event_time, {ms}), 3) AS TIMESTAMP(3))
    AS window_start, campaign, category, `position` FROM topic
) GROUP BY window_start, campaign, category"""
MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}
"""Else each event is a row for PostgreSQL."""


def open_flow(
    setup: Setup,
    *,
    program: Program,
    topics: Sequence[str],
    statements: Statements,
    settings: Mapping[str, str] | None = None,
) -> WriteOnce:
    """Starts the JVM; the function returned runs one job over the topics.

    ``settings`` are those that it has beside those of all jobs.
    """
    home = setup.logs / "flink-sql"
    job_settings = flink_sql.all_settings(setup, home) | dict(settings or {})
    arguments = [f"{name}={value}" for name, value in job_settings.items()]
    command = program.command(home, HEAP_FACTOR * setup.heap_mb, str(setup.threads), *arguments)
    jvm = Conversation(started(command, subprocess.PIPE))

    def write_once(out: Path, on_commit: OnCommit) -> None:
        file = home / "run.sql"
        file.write_text(statements(setup, out))
        jvm.ask(str(file), "started")
        follow_groups(setup, topics, out.name, on_commit, jvm.check)
        jvm.ask("stop", "stopped")
        (home / STATE).rename(out / STATE)
        shutil.rmtree(home / "checkpoints", ignore_errors=True)

    return write_once


def join_statements(setup: Setup, out: Path, *, traffic: Traffic, times: Times) -> str:
    """The interval join: left outer."""
    return _JOIN.format(
        impression=_IMPRESSION,
        click=_CLICK,
        watermark=_WATERMARK.format(late=times.wait // MINUTE),
        impressions=_kafka(setup, out, traffic.impressions_topic.name),
        clicks=_kafka(setup, out, traffic.clicks_topic.name),
        files=_FILES.format(path=(out / TABLE).as_uri()),
        within=times.within // MINUTE,
        late=times.wait // MINUTE,
    )


def deduplication_statements(setup: Setup, out: Path) -> str:
    """The first row of each id; it forgets by processing time alone."""
    return _FIRST.format(
        impression=_IMPRESSION,
        row=_IMPRESSION.replace("event_time BIGINT", "event_time TIMESTAMP_LTZ(3)"),
        topic=_kafka(setup, out, setup.topic),
        files=_FILES.format(path=(out / TABLE).as_uri()),
    )


def stats_statements(setup: Setup, out: Path, *, url: str, every: timedelta) -> str:
    """Totals of windows and groups, written again as they grow."""
    return _STATS.format(
        impression=_IMPRESSION,
        topic=_kafka(setup, out, setup.topic),
        url=jdbc_url(url),
        table=table_name(out.name),
        ms=every // timedelta(milliseconds=1),
    )


def kept_for(time: timedelta) -> dict[str, str]:
    """The setting that has state forgotten that was not used for so long."""
    return {"table.exec.state.ttl": f"{time // MINUTE} min"}


def _kafka(setup: Setup, out: Path, topic: str) -> str:
    return _KAFKA.format(topic=topic, bootstrap=setup.bootstrap, group=out.name)


def joined_rows(out: Path) -> dict[str, int]:
    """The rows with an impression, and those without one."""
    matched, unmatched = nulls(table_files(out), "shown_id")
    return {"matched_rows": matched, "unmatched_rows": unmatched}


def table_files(out: Path) -> list[Path]:
    """The files that were committed; the others' names begin with a dot."""
    return list((out / TABLE).glob("part-*"))


def state_folders(out: Path) -> list[Path]:
    """The savepoint at the job's end."""
    return [out / STATE]
