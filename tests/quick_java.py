"""JVMs of tests that start with half the work: most of them end soon.

``python -m tests.quick_java`` makes archives of the classes that Spark and Kafka load at their
start, beside the environment; ``make test`` does. Without them all works, and takes longer.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.kafka.embedded.cluster import EmbeddedCluster
from headrace.runtime.files.cache import cache_folder
from headrace.runtime.java.installation import Java, find_java
from headrace.runtime.java.jars import fetch
from headrace.settings.model import EmbeddedKafka, SparkSettings
from headrace.spark.session import start_session

SPARK, KAFKA = "spark", "kafka"
_OPTIONS_OF_SPARK = "SPARK_SUBMIT_OPTS"  # Spark's own, of the JVM of a driver
_OPTIONS_OF_JAVA = "JDK_JAVA_OPTIONS"
# Code that is compiled well pays for its compilation later than most tests end. By itself, this
# leaves 48 MB to compiled code, and a thread looks for room once they are full.
_COMPILE_FAST = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def hasten_spark() -> None:
    """Lets drivers of Spark that this process starts begin sooner, and those of its children."""
    os.environ[_OPTIONS_OF_SPARK] = _options(SPARK, find_java(os.environ))


def quick_spark(java: Java) -> dict[str, str]:
    """The environment of Spark's master and workers; executors inherit it."""
    return {_OPTIONS_OF_JAVA: _options(SPARK, java)}


def quick_kafka(java: Java) -> dict[str, str]:
    """The environment of a command that starts brokers; a JVM says on stderr that it has it."""
    return {_OPTIONS_OF_JAVA: _options(KAFKA, java)}


class QuickCluster(EmbeddedCluster):
    """A cluster whose brokers begin sooner, also those that are started again."""

    def __init__(
        self, folder: Path, settings: EmbeddedKafka, java: Java, *more: Any, **config: Any
    ):
        super().__init__(folder, settings, java, *more, **config)
        self.environ = quick_kafka(java)

    def start(self) -> str:
        with self._hastened():
            return super().start()

    def start_broker(self, node: int) -> None:
        with self._hastened():
            super().start_broker(node)

    @contextmanager
    def _hastened(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environ.items():
                patch.setenv(name, value)
            yield


def _options(of: str, java: Java) -> str:
    archive = _archive(of, java)
    if not archive.exists():
        return _COMPILE_FAST
    # Of an archive that does not fit, a broker would say so on its standard output.
    return f"{_COMPILE_FAST} -XX:SharedArchiveFile={archive} -Xlog:disable"


def _archive(of: str, java: Java) -> Path:
    return Path(sys.prefix) / f"{of}-java-{java.version}.jsa"


def _made_at_exit(of: str, java: Java) -> str:
    return f"-XX:ArchiveClassesAtExit={_archive(of, java)} -Xlog:disable"


def _archive_spark(java: Java, jars: list[Path], folder: Path) -> None:
    os.environ[_OPTIONS_OF_SPARK] = _made_at_exit(SPARK, java)
    settings = SparkSettings(config={"spark.jars": ",".join(map(str, jars))})
    session = start_session(
        "archive", settings, master="local[2]", java=java.environ(), state=folder
    )
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        rows.dropDuplicates(["value"])
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda batch, _: batch.groupBy("value").count().collect())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    query.stop()
    session.stop()
    # The archive is written when the JVM ends, and that is when it is told nothing any more.
    process = session.sparkContext._gateway.proc
    process.stdin.close()
    process.wait(120)


def _archive_kafka(java: Java, jars: list[Path], folder: Path) -> None:
    os.environ[_OPTIONS_OF_JAVA] = _made_at_exit(KAFKA, java)
    cluster = EmbeddedCluster(folder, EmbeddedKafka(brokers=1, ports=(), heap_mb=512), java, jars)
    cluster.start()
    cluster.stop()
    del os.environ[_OPTIONS_OF_JAVA]


def main() -> None:
    java, cache = find_java(os.environ), cache_folder(os.environ)
    jars = {
        group: fetch(group, java, cache=cache, on_progress=lambda *_: None)
        for group in ("kafka", "spark-kafka")
    }
    # It stays: a JVM takes an archive only if the jars that it was made of are still there.
    folder = Path(sys.prefix) / "quick-java"
    shutil.rmtree(folder, ignore_errors=True)
    _archive_kafka(java, jars["kafka"], folder)
    _archive_spark(java, jars["spark-kafka"], folder)
    assert all(_archive(of, java).exists() for of in (SPARK, KAFKA))


if __name__ == "__main__":
    main()
