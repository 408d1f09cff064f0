"""Plain Spark beside headrace's sinks: its Kafka sink, and its JDBC writer on each batch.

To OpenSearch the bulk helper of its Python client, on each partition of a batch.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import plain_spark, spark_bulks
from bench.driver import OnCommit, WriteOnce
from bench.peers.java_program import peer_jars
from bench.setup import Setup
from bench.sink_targets import KEY, jdbc_url, table_name
from headrace.runtime.java.installation import Java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TO_KAFKA = {
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "20",
    "kafka.batch.size": "262144",
    "kafka.acks": "all",
}
TO_POSTGRES = {"batchsize": "10000", "reWriteBatchedInserts": "true"}
SETTINGS = TO_KAFKA | TO_POSTGRES | spark_bulks.SETTINGS
DRIVER = "postgresql"


def driver_jars(java: Java) -> list[Path]:
    """PostgreSQL's JDBC driver."""
    return [jar for jar in peer_jars("jdbc-sink", java) if jar.name.startswith(f"{DRIVER}-")]


def open_to_kafka(setup: Setup) -> WriteOnce:
    """Starts Spark; the function returned writes the whole topic into another one."""
    from pyspark.sql import functions as F  # noqa: N812

    spark = plain_spark.session(setup)

    def write_once(out: Path, on_commit: OnCommit) -> None:
        rows = plain_spark.parsed(plain_spark.records(spark, setup))
        values = rows.select(F.to_json(F.struct("*")).alias("value"))
        writer = values.writeStream.format("kafka").options(**TO_KAFKA)
        writer = writer.option("kafka.bootstrap.servers", setup.bootstrap).option("topic", out.name)
        writer = writer.option("checkpointLocation", str(out / "checkpoint"))
        plain_spark.finish(writer.trigger(availableNow=True).start(), on_commit)

    return write_once


def open_to_postgres(setup: Setup, *, url: str, jars: list[Path]) -> WriteOnce:
    """Starts Spark; the function returned appends the whole topic to a table."""
    spark = plain_spark.session(replace(setup, connector=(*setup.connector, *jars)))

    def write_once(out: Path, on_commit: OnCommit) -> None:
        rows = plain_spark.timed(plain_spark.parsed(plain_spark.records(spark, setup)))
        append = partial(_append, url=jdbc_url(url), table=table_name(out.name))
        writer = rows.writeStream.foreachBatch(append)
        writer = writer.option("checkpointLocation", str(out / "checkpoint"))
        plain_spark.finish(writer.trigger(availableNow=True).start(), on_commit)

    return write_once


def _append(rows: DataFrame, _: int, *, url: str, table: str) -> None:
    options = {"url": url, "dbtable": table, "driver": "org.postgresql.Driver"}
    batch_size = TO_POSTGRES["batchsize"]
    rows.write.format("jdbc").options(**options, batchsize=batch_size).mode("append").save()


def open_to_opensearch(setup: Setup, *, url: str) -> WriteOnce:
    """Starts Spark; the function returned writes the whole topic to an index."""
    from pyspark.sql import functions as F  # noqa: N812

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = plain_spark.session(setup)

    def write_once(out: Path, on_commit: OnCommit) -> None:
        rows = plain_spark.timed(plain_spark.parsed(plain_spark.records(spark, setup)))
        document = F.to_json(F.struct("*")).alias(spark_bulks.DOCUMENT)
        documents = rows.select(F.col(KEY).alias(spark_bulks.ID), document)
        writer = documents.writeStream.foreachBatch(partial(_index, url=url, index=out.name))
        writer = writer.option("checkpointLocation", str(out / "checkpoint"))
        plain_spark.finish(writer.trigger(availableNow=True).start(), on_commit)

    return write_once


def _index(documents: DataFrame, _: int, *, url: str, index: str) -> None:
    documents.foreachPartition(partial(spark_bulks.load, url=url, index=index))
