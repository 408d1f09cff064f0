"""Kafka Connect with Debezium's JDBC sink: one standalone worker, one connector a run.

Aiven's and Confluent's JDBC sinks can't be had from Maven Central; Debezium's can, and is
Apache-2.0. It needs records with a schema, which Kafka's JSON converter gives to plain JSON
(``schema.content``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.integration.postgres_server import USER

from bench.driver import OnCommit, WriteOnce
from bench.peers.java_program import Program, peer_jars
from bench.peers.kafka_connect import Worker, plugin_folder, worker_program
from bench.peers.progress import follow_group
from bench.setup import Setup
from bench.sink_targets import KEY, jdbc_url, table_name
from headrace.runtime.java.installation import Java

TIME = "event_time"
TYPES = {
    "event_id": "string",
    TIME: "int64",
    "category": "string",
    "campaign": "string",
    "item_id": "int64",
    "position": "int64",
    "clicked": "boolean",
    "propensity": "double",
    "user_group": "string",
    "user_segment": "string",
}
SETTINGS = {
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
    "schema.evolution": "none",
    "batch.size": "5000",
    "dialect.postgres.unnest.insert.enabled": "true",
}
MODES = {
    "postgres-append": {"insert.mode": "insert", "primary.key.mode": "none"},
    "postgres-upsert": {
        "insert.mode": "upsert",
        "primary.key.mode": "record_value",
        "primary.key.fields": KEY,
    },
}


@dataclass(frozen=True)
class Connect:
    """The worker, and the folder of the plugin's jars."""

    worker: Program
    plugins: Path


def prepare(java: Java) -> Connect:
    """Fetches Connect and the sink."""
    jars = peer_jars("jdbc-sink", java)
    return Connect(worker_program(java), plugin_folder("jdbc-sink", jars))


def open_jdbc_sink(setup: Setup, *, connect: Connect, sink: str, url: str) -> WriteOnce:
    """Starts the worker; the function returned runs one connector over the topic."""
    worker = Worker(setup, connect.worker, connect.plugins, setup.logs / "kafka-connect")

    def write_once(out: Path, on_commit: OnCommit) -> None:
        worker.add(out.name, connector(setup, out.name, sink, url))
        # A task commits what it has put into the database, every second.
        follow_group(setup, f"connect-{out.name}", on_commit, worker.check)
        worker.remove(out.name)

    return write_once


def connector(setup: Setup, name: str, sink: str, url: str) -> dict[str, str]:
    """The configuration of one that writes into the table of a run."""
    return (
        SETTINGS
        | MODES[sink]
        | {
            "topics": setup.topic,
            "tasks.max": str(setup.threads),
            "collection.name.format": table_name(name),
            "connection.url": jdbc_url(url),
            "connection.username": USER,
            "connection.password": USER,
            "value.converter.schema.content": json.dumps(schema()),
        }
    )


def schema() -> dict[str, object]:
    """Of the events, as Kafka Connect's JSON converter names it."""
    fields = [{"field": name, "type": kind, "optional": False} for name, kind in TYPES.items()]
    times = {"name": "org.apache.kafka.connect.data.Timestamp", "version": 1}
    typed = [field | times if field["field"] == TIME else field for field in fields]
    return {"type": "struct", "name": "impression", "optional": False, "fields": typed}
