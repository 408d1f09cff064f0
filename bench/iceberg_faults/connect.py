"""Kafka Connect's Iceberg sink: distributed workers, one connector of two tasks."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

from bench.driver import SystemFailedError
from bench.iceberg_faults.catalog import NAME, NAMESPACE, await_
from bench.iceberg_faults.processes import Member
from bench.iceberg_faults.system import System
from bench.peers.java_program import peer_jars, write_properties
from bench.peers.kafka_connect import call, plugin_folder, worker_program
from bench.sink_targets import jdbc_url
from headrace.kafka.admin.topics import apply_changes, delete_topic, plan_topics
from headrace.kafka.client.admin_requests import admin_request
from headrace.kafka.client.clients import client_config
from headrace.model import Topic
from headrace.runtime.java.installation import Java
from headrace.runtime.java.spark_jars import spark_jar
from headrace.runtime.servers.ports import LOOPBACK, free_ports
from headrace.settings.model import KafkaSettings

CONTROL_TOPIC, OFFSETS = "control-topic-recreated", "group-offsets-deleted"
MEMBERS = 2
_DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
_STORES = ("config", "offset", "status")
_HADOOP = ("hadoop-client-api", "hadoop-client-runtime", "jcl-over-slf4j")
_READY_SECONDS = 1200.0
# What is counted is no speed.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The driver sends the text of each statement, which the losing proxy reads.
SQL_TEXT = "&prepareThreshold=0"
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "consumer.isolation.level": "read_committed",
    # So that a run takes minutes, not an hour: what is dead is noticed sooner.
    "consumer.session.timeout.ms": "10000",
    "scheduled.rebalance.max.delay.ms": "3000",
    # Else a task without records answers the coordinator once a minute.
    "offset.flush.interval.ms": "1000",
    "plugin.discovery": "service_load",
}
CONNECTOR = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": "2",
    "iceberg.catalog.type": "jdbc",
    "iceberg.catalog.jdbc.schema-version": "V1",
    "iceberg.control.commit.interval-ms": "3000",
    "iceberg.kafka.session.timeout.ms": "10000",
}


class KafkaConnect(System):
    """A cluster of workers of its own in each run."""

    settings: ClassVar[Mapping[str, str]] = WORKER | CONNECTOR
    states: ClassVar[Mapping[str, str]] = {
        CONTROL_TOPIC: "the control topic",
        OFFSETS: "the offsets of the consumer group",
    }

    @cached_property
    def _ports(self) -> list[int]:
        return free_ports(MEMBERS)

    @cached_property
    def members(self) -> Sequence[Member]:
        """Its workers."""
        return [self._member(number) for number in range(MEMBERS)]

    def _member(self, number: int) -> Member:
        place = self.place
        home = place.folder / f"worker-{number}"
        home.mkdir(parents=True)
        stores = {f"{store}.storage.topic": f"{place.name}-{store}" for store in _STORES}
        stores |= {f"{store}.storage.replication.factor": "1" for store in _STORES}
        own = {
            "bootstrap.servers": place.broker.bootstrap,
            "group.id": f"workers-{place.name}",
            "listeners": f"http://{LOOPBACK}:{self._ports[number]}",
            "plugin.path": str(plugins(place.java)),
        }
        file = write_properties(home / "worker.properties", WORKER, stores, own)
        program = replace(worker_program(place.java), main=_DISTRIBUTED, options=QUICK)
        # JDBC finds drivers on the class path alone.
        with_driver = (*program.class_path, _driver(place.java))
        program = replace(program, class_path=with_driver)
        command = program.command(home, place.heap_mb, str(file))
        return Member(f"worker {number}", command, home / "log", home)

    def start(self, members: int) -> None:
        """Starts workers, and the connector in the first run of them."""
        first_time = not any(member.log.exists() for member in self.members)
        if first_time:
            self.place.catalog.create(self.place.name)
            self._make_control_topic()
        for member in self.members[:members]:
            member.start()
        await_(self._answers, _READY_SECONDS, "Kafka Connect's workers")
        if first_time:
            await_(self._is_created, _READY_SECONDS, "Kafka Connect to take the connector")
        await_(self._has_tasks, _READY_SECONDS, "the tasks of the connector")

    def join(self) -> None:
        """Starts the second worker."""
        self.members[1].start()

    def has_joined(self) -> bool:
        """The second worker answers, and so has a part in the group."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            return call(self._ports[1], "GET", "/connectors")[0] == HTTPStatus.OK
        return False

    def take_over(self, frozen: Member) -> None:
        """Nothing: its tasks go to the other worker."""

    def lose(self, state: str) -> None:
        """Recreates the control topic, or deletes the group of the tasks with its offsets."""
        if state == CONTROL_TOPIC:
            delete_topic(self._client, self._control)
            self._make_control_topic()
        else:
            admin_request(
                self._client,
                lambda admin: admin.delete_consumer_groups([self.group])[self.group].result(),
            )

    @property
    def group(self) -> str:
        """That of the tasks."""
        return f"connect-{self.place.name}"

    def has_read_all(self, count: int) -> bool:
        """Not while a task does not run: what it has read may not be committed yet."""
        return self._has_tasks() and super().has_read_all(count)

    def tend(self) -> None:
        """Starts workers that have ended, and tasks that failed."""
        self.restart_ended()
        if self._task_states().count("FAILED"):
            self.note("failed tasks restarted")
            path = f"/connectors/{self.place.name}/restart?includeTasks=true&onlyFailed=true"
            self._ask("POST", path)

    @property
    def _client(self) -> dict[str, str]:
        return client_config(KafkaSettings(), self.place.broker.bootstrap)

    @property
    def _control(self) -> str:
        return f"control-{self.place.name}"

    def _make_control_topic(self) -> None:
        apply_changes(self._client, plan_topics([Topic(self._control, partitions=1)], {}))

    def _config(self) -> dict[str, str]:
        name = self.place.name
        return CONNECTOR | {
            "topics": name,
            "iceberg.tables": f"{NAMESPACE}.{name}",
            "iceberg.control.topic": self._control,
            "iceberg.catalog": NAME,
            "iceberg.catalog.uri": jdbc_url(self.place.database) + SQL_TEXT,
            "iceberg.catalog.warehouse": self.place.catalog.warehouse,
        }

    def _answers(self) -> bool:
        status, _ = self._ask("GET", "/connectors")
        return status == HTTPStatus.OK

    def _is_created(self) -> bool:
        path = f"/connectors/{self.place.name}/config"
        status, answer = self._ask("PUT", path, self._config())
        # A worker takes nothing while its group rebalances.
        if status not in {0, HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
            raise SystemFailedError(f"the connector was refused: {answer}")
        return status in {HTTPStatus.OK, HTTPStatus.CREATED}

    def _has_tasks(self) -> bool:
        return self._task_states().count("RUNNING") == int(CONNECTOR["tasks.max"])

    def _task_states(self) -> list[str]:
        _, answer = self._ask("GET", f"/connectors/{self.place.name}/status")
        return [task["state"] for task in answer.get("tasks", ())]

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Asks the first worker that answers; status 0: none does."""
        for member, port in zip(self.members, self._ports, strict=True):
            if member in self.running():
                with suppress(OSError, http.client.HTTPException, ValueError):
                    return call(port, method, path, body)
        return 0, {}


def plugins(java: Java) -> Path:
    """Returns a worker's ``plugin.path`` with the sink."""
    jars = [*peer_jars("iceberg", java), *map(spark_jar, _HADOOP)]
    return plugin_folder("iceberg-faults", jars)


def _driver(java: Java) -> Path:
    return next(jar for jar in peer_jars("jdbc-sink", java) if jar.name.startswith("postgresql"))
