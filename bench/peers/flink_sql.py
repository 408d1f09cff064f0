"""Flink SQL: a Kafka table, a partitioned Parquet table of files, and one INSERT between them.

PyFlink would run the same job: SQL is planned and run on the JVM, Python only hands it over.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.driver import OnCommit, WriteOnce
from bench.peers.java_program import Program, compiled, peer_jars
from bench.peers.programs import Conversation, started
from bench.peers.progress import follow_group
from bench.setup import Setup
from headrace.runtime.java.installation import Java
from headrace.runtime.java.spark_jars import spark_jar
from headrace.runtime.servers.ports import LOOPBACK

TABLE = "impressions"
SETTINGS = {
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",
    "table.local-time-zone": "UTC",
}
OPTIONS = (
    # As Flink's own configuration file has them for Java 17.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
)
STATEMENTS = """\
CREATE TABLE topic (
  event_id STRING, event_time BIGINT, category STRING, campaign STRING, item_id BIGINT,
  `position` BIGINT, clicked BOOLEAN, propensity DOUBLE, user_group STRING, user_segment STRING
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
  'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = '{group}',
  'scan.startup.mode' = 'earliest-offset'
);
CREATE TABLE lake (
  event_id STRING, event_time TIMESTAMP_LTZ(3), campaign STRING, item_id BIGINT,
  `position` BIGINT, clicked BOOLEAN, propensity DOUBLE, user_group STRING, user_segment STRING,
  `day` STRING, `hour` STRING, category STRING
) PARTITIONED BY (`day`, `hour`, category) WITH (
  'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
  'parquet.compression' = 'ZSTD', 'parquet.compression.codec.zstd.level' = '1'
);
INSERT INTO lake SELECT
  event_id, TO_TIMESTAMP_LTZ(event_time, 3), campaign, item_id, `position`, clicked, propensity,
  user_group, user_segment, DATE_FORMAT(TO_TIMESTAMP_LTZ(event_time, 3), 'yyyy-MM-dd'),
  DATE_FORMAT(TO_TIMESTAMP_LTZ(event_time, 3), 'HH'), category
FROM topic"""
_SPARK_JARS = ("hadoop-client-api", "hadoop-client-runtime", "zstd-jni")


def prepare(java: Java, connectors: Sequence[Path] = ()) -> Program:
    """Fetches Flink, compiles what runs the statements.

    ``connectors`` are jars of those that not every job needs.

    Raises:
        PeerMissingError: there is no compiler.
    """
    libraries = (*peer_jars("flink", java), *map(spark_jar, _SPARK_JARS), *connectors)
    return Program(java, (compiled("flink", libraries, java), *libraries), "Sql", OPTIONS)


def open_flink(setup: Setup, *, program: Program) -> WriteOnce:
    """Starts the JVM; the function returned runs one job over the topic."""
    home = setup.logs / "flink-sql"
    settings = [f"{name}={value}" for name, value in all_settings(setup, home).items()]
    command = program.command(home, setup.heap_mb, str(setup.threads), *settings)
    jvm = Conversation(started(command, subprocess.PIPE))

    def write_once(out: Path, on_commit: OnCommit) -> None:
        file = home / "run.sql"
        file.write_text(statements(setup, out))
        jvm.ask(str(file), "started")
        follow_group(setup, out.name, on_commit, jvm.check)
        jvm.ask("stop", "stopped")

    return write_once


def all_settings(setup: Setup, home: Path) -> dict[str, str]:
    """Those of every run, and those of this one, whose checkpoints are in ``home``."""
    return SETTINGS | {
        "execution.checkpointing.interval": f"{setup.commit_every_ms} ms",
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
        "rest.bind-address": LOOPBACK,
    }


def statements(setup: Setup, out: Path) -> str:
    """The job that writes into ``out``, whose name is its group."""
    return STATEMENTS.format(
        topic=setup.topic,
        bootstrap=setup.bootstrap,
        group=out.name,
        path=(out / TABLE).as_uri(),
    )


def table_files(out: Path) -> list[Path]:
    """The files that were committed; the others' names begin with a dot."""
    return list((out / TABLE).rglob("part-*"))
