"""Kafka Workers 1.1.9, with the tasks of ``java/workers``.

No package registry has Kafka Workers. ``KAFKA_WORKERS_JAR`` names its jar, built from its public
repository as that describes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.driver import OnCommit, WriteOnce
from bench.peers.java_program import LOG_JARS, Program, compiled, peer_jars, write_properties
from bench.peers.programs import Conversation, PeerMissingError, started
from bench.peers.progress import follow_group
from bench.setup import Setup
from headrace.runtime.java.installation import Java
from headrace.runtime.java.spark_jars import spark_jar

VERSION = "1.1.9"
JAR_VARIABLE = "KAFKA_WORKERS_JAR"
TABLE = "impressions"
SETTINGS = {
    "consumer.kafka.auto.offset.reset": "earliest",
    "consumer.kafka.max.poll.records": "5000",
    "consumer.commit.interval.ms": "250",
    "consumer.poll.timeout.ms": "100",
    "worker.processing.guarantee": "at_least_once",
}
Task = Callable[[Setup, Path], dict[str, str]]
"""The task's settings, from the output's folder."""

OPTIONS = ("-XX:+UseParallelGC",)
_DESERIALIZER = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_WEIGHER = "com.rtbhouse.kafka.workers.api.record.weigher.ByteArrayWeigher"
_CLASSES = {
    "consumer.kafka.key.deserializer": _DESERIALIZER,
    "consumer.kafka.value.deserializer": _DESERIALIZER,
    "record.key.weigher": _WEIGHER,
    "record.value.weigher": _WEIGHER,
}
_SPARK_JARS = (
    *LOG_JARS,
    *("avro", "commons-lang3", "hadoop-client-api", "hadoop-client-runtime", "lz4-java"),
    *("jackson-annotations", "jackson-core", "jackson-databind", "jts-core", "snappy-java"),
    *("parquet-column", "parquet-common", "parquet-encoding", "parquet-format-structures"),
    *("parquet-hadoop", "parquet-jackson", "zstd-jni"),
)


def prepare(java: Java) -> Program:
    """Compiles the tasks against Kafka Workers' jar.

    Raises:
        PeerMissingError: the jar is not there, or there is no compiler.
    """
    chosen = os.environ.get(JAR_VARIABLE, "")
    jar = Path(chosen).absolute()
    if not (chosen and jar.is_file()):
        raise PeerMissingError(
            f"{JAR_VARIABLE} does not name the jar of Kafka Workers {VERSION}, which no package "
            "registry has: build it from its public repository, as that describes"
        )
    libraries = (jar, *peer_jars("kafka-workers", java), *map(spark_jar, _SPARK_JARS))
    classes = compiled("workers", libraries, java)
    return Program(java, (classes, *libraries), "Workers", OPTIONS)


def open_kafka_workers(setup: Setup, *, program: Program, task: Task) -> WriteOnce:
    """Starts the JVM; the function returned runs one instance of Kafka Workers over the topic."""
    home = setup.logs / "kafka-workers"
    command = program.command(home, setup.heap_mb)
    jvm = Conversation(started(command, subprocess.PIPE))

    def write_once(out: Path, on_commit: OnCommit) -> None:
        file = write_properties(home / "run.properties", properties(setup, out, task))
        jvm.ask(str(file), "started")
        follow_group(setup, out.name, on_commit, jvm.check)
        jvm.ask("stop", "stopped")

    return write_once


def properties(setup: Setup, out: Path, task: Task) -> dict[str, str]:
    """Of one instance; the name of ``out`` is its group."""
    return (
        SETTINGS
        | _CLASSES
        | {
            "consumer.topics": setup.topic,
            "consumer.kafka.bootstrap.servers": setup.bootstrap,
            "consumer.kafka.group.id": out.name,
            "worker.threads.num": str(setup.threads),
        }
        | task(setup, out)
    )


def parquet_task(setup: Setup, out: Path) -> dict[str, str]:
    """JSON by Jackson, files by parquet-avro, a writer for each partition."""
    return {
        "worker.task.name": "parquet",
        "worker.task.lanes": "1",
        "worker.task.folder": str(out / TABLE),
        "worker.task.roll.records": str(setup.batch_records // setup.partitions),
    }


def table_files(out: Path) -> list[Path]:
    """The files of all tasks."""
    return list((out / TABLE).rglob("*.parquet"))
