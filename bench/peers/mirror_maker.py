"""MirrorMaker 2 in Kafka Connect: one distributed worker at the target, one connector a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from bench.driver import OnCommit, WriteOnce
from bench.mirror_copies import follow_copy
from bench.peers.java_program import Program, peer_jars
from bench.peers.kafka_connect import Worker, plugin_folder, worker_program
from bench.setup import Setup
from headrace.links.mirror.declaration import Mirror
from headrace.runtime.java.installation import Java

_DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_STORES = ("config", "offset", "status")
WORKER = {
    "key.converter": _BYTES,
    "value.converter": _BYTES,
    "header.converter": _BYTES,
    "plugin.discovery": "service_load",
    **{f"{store}.storage.replication.factor": "1" for store in _STORES},
}
SETTINGS = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "target.cluster.alias": "target",
    "replication.factor": "1",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "refresh.topics.enabled": "false",
    "refresh.groups.enabled": "false",
    "emit.offset-syncs.enabled": "false",
    "source.consumer.auto.offset.reset": "earliest",
    "source.consumer.isolation.level": "read_committed",
}
TUNING = {
    "source.consumer.max.poll.records": "5000",
    "source.consumer.max.partition.fetch.bytes": "4194304",
    "producer.override.compression.type": "lz4",
    "producer.override.linger.ms": "20",
    "producer.override.batch.size": "262144",
}
EXACTLY_ONCE_WORKER = {"exactly.once.source.support": "enabled"}
_COMMIT_MS = Mirror.commit_every // timedelta(milliseconds=1)
EXACTLY_ONCE = {
    "exactly.once.support": "required",
    "transaction.boundary": "interval",
    # The same as headrace's.
    "transaction.boundary.interval.ms": str(_COMMIT_MS),
}


@dataclass(frozen=True)
class MirrorMaker:
    """The worker, and the folder of the plugin's jars."""

    worker: Program
    plugins: Path


def prepare(java: Java) -> MirrorMaker:
    """Fetches Connect and MirrorMaker."""
    worker = replace(worker_program(java), main=_DISTRIBUTED)
    return MirrorMaker(worker, plugin_folder("mirror-maker", peer_jars("mirror-maker", java)))


def open_mirror_maker(
    setup: Setup, *, maker: MirrorMaker, target: str, exactly_once: bool
) -> WriteOnce:
    """Starts the worker; the function returned runs one connector from the topic's start."""
    name = "exactly-once" if exactly_once else "at-least-once"
    home = setup.logs / f"mirror-maker-{name}"
    config = worker_config(home.name, setup.threads, exactly_once=exactly_once)
    worker = Worker(replace(setup, bootstrap=target), maker.worker, maker.plugins, home, config)

    def write_once(out: Path, on_commit: OnCommit) -> None:
        worker.add(out.name, connector(setup, target, out.name, exactly_once=exactly_once))
        follow_copy(setup, target, out.name, on_commit, worker.check)
        worker.remove(out.name)

    return write_once


def worker_config(name: str, threads: int, *, exactly_once: bool) -> dict[str, str]:
    """The worker's settings; several contests leave its topics at one broker."""
    own = f"{name}-{threads}"
    stores = {f"{store}.storage.topic": f"{own}-{store}" for store in _STORES}
    return WORKER | stores | {"group.id": own} | (EXACTLY_ONCE_WORKER if exactly_once else {})


def connector(setup: Setup, target: str, name: str, *, exactly_once: bool) -> dict[str, str]:
    """The configuration of one that copies to the topic of a run."""
    return (
        SETTINGS
        | TUNING
        | (EXACTLY_ONCE if exactly_once else {})
        | {
            "source.cluster.alias": name,
            "source.cluster.bootstrap.servers": setup.bootstrap,
            "target.cluster.bootstrap.servers": target,
            "topics": setup.topic,
            "tasks.max": str(setup.threads),
        }
    )
