"""Who writes the topic, and what each of them needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import headrace_writer, plain_spark
from bench.driver import Open
from bench.peers import flink_sql, kafka_connect, kafka_workers
from headrace.runtime.java.installation import Java


@dataclass(frozen=True)
class System:
    """One way to write the topic.

    Attributes:
        prepare: fetches and compiles what it needs; what it gives starts the system. Raises
            PeerMissingError or JarError where something can't be had.
        files: where its files are after a run.
        guarantee: of delivery, with the settings measured.
        settings: what is not its default.
    """

    prepare: Callable[[Java], Open]
    files: Callable[[Path], list[Path]]
    guarantee: str
    settings: Mapping[str, str]


def _headrace(*, with_step: bool) -> System:
    start = partial(headrace_writer.open_headrace, with_step=with_step)
    return System(lambda _: start, headrace_writer.table_files, "exactly once", {})


def _kafka_workers(java: Java) -> Open:
    return partial(
        kafka_workers.open_kafka_workers,
        program=kafka_workers.prepare(java),
        task=kafka_workers.parquet_task,
    )


def _kafka_connect(java: Java) -> Open:
    return partial(kafka_connect.open_kafka_connect, connect=kafka_connect.prepare(java))


def _flink(java: Java) -> Open:
    return partial(flink_sql.open_flink, program=flink_sql.prepare(java))


SYSTEMS = {
    "headrace-fused": _headrace(with_step=False),
    "headrace-spark-step": _headrace(with_step=True),
    "plain-spark": System(
        lambda _: plain_spark.open_plain_spark,
        plain_spark.table_files,
        "exactly once, for readers of its log",
        plain_spark.SETTINGS,
    ),
    "kafka-workers": System(
        _kafka_workers, kafka_workers.table_files, "at least once", kafka_workers.SETTINGS
    ),
    "kafka-connect": System(
        _kafka_connect,
        kafka_connect.table_files,
        "exactly once",
        kafka_connect.WORKER | kafka_connect.SETTINGS,
    ),
    "flink-sql": System(_flink, flink_sql.table_files, "exactly once", flink_sql.SETTINGS),
}
