"""Loads offline files by a plain loop, which neither checks nor remembers: a second run doubles.

``python -m bench.offline_client copy|insert|send FOLDER TARGET``: into a table of the PostgreSQL
with the URL ``TARGET`` by one ``COPY`` or by INSERTs, 1,000 rows a transaction, or into the topic
``TARGET``, which is ``BOOTSTRAP/TOPIC``.
"""

from __future__ import annotations

import base64
import itertools
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import psycopg

from bench.offline_lines import COLUMNS, TABLE

ROWS_A_TRANSACTION = 1_000
PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 20,
}
_POLL_SECONDS = 0.1


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of the files, in their order, with the JSON text of their bodies."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            for text in file:
                line = json.loads(text)
                body = zlib.decompress(base64.b64decode(line["row"]["body"]))
                yield line["row"] | {"body": body.decode(), "counter": line["counter"]}


def copy(folder: Path, url: str) -> None:
    """By one ``COPY``, in one transaction."""
    statement = f"COPY {TABLE} ({', '.join(COLUMNS)}) FROM STDIN"
    with psycopg.connect(url) as connection, connection.cursor().copy(statement) as target:
        for row in rows(folder):
            target.write_row([row[column] for column in COLUMNS])


def insert(folder: Path, url: str) -> None:
    """By ``executemany``, as psycopg pipelines it."""
    places = ", ".join(["%s"] * len(COLUMNS))
    statement = f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) VALUES ({places})"
    values = ([row[column] for column in COLUMNS] for row in rows(folder))
    with psycopg.connect(url) as connection:
        while batch := list(itertools.islice(values, ROWS_A_TRANSACTION)):
            with connection.transaction():
                connection.cursor().executemany(statement, batch)


def send(folder: Path, target: str) -> None:
    """By librdkafka, the project as key, the body unpacked."""
    bootstrap, _, topic = target.partition("/")
    failed = 0

    def on_delivery(error: confluent_kafka.KafkaError | None, _: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    for row in rows(folder):
        event = json.dumps(row | {"body": json.loads(row["body"])}).encode()
        while True:
            try:
                producer.produce(
                    topic, event, str(row["project_id"]).encode(), on_delivery=on_delivery
                )
                break
            except BufferError:
                producer.poll(_POLL_SECONDS)
        producer.poll(0)
    producer.flush()
    if failed:
        raise SystemExit(f"{failed} events were not acknowledged")


WAYS: dict[str, Callable[[Path, str], None]] = {"copy": copy, "insert": insert, "send": send}


def main(given: Sequence[str]) -> None:
    """Loads the files of a folder in one of the ways."""
    way, folder, target = given
    WAYS[way](Path(folder), target)


if __name__ == "__main__":
    main(sys.argv[1:])
