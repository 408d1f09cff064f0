"""Writes ``jars.lock.toml``, the jars of the peers: ``python -m bench.peers.relock``.

To move to other versions, edit ``ROOTS``.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.runtime.java import find_java
from headrace.runtime.relock import Roots, write_lock

LOCK = Path(__file__).with_name("jars.lock.toml")
KAFKA = "org.apache.kafka"
ICEBERG = "org.apache.iceberg"
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
            ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        ),
        closure=True,
    ),
    "iceberg": Roots(
        (
            (ICEBERG, "iceberg-kafka-connect", "1.12.0"),
            (ICEBERG, "iceberg-parquet", "1.12.0"),
        ),
        closure=True,
    ),
}


if __name__ == "__main__":
    write_lock(find_java(os.environ), LOCK, ROOTS)
