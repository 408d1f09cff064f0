"""Workers of a project: run, listed, paused and resumed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import uvloop

from headrace.errors import PartitionMissingError, TopicMissingError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import group_offsets, watermarks
from headrace.kafka.group.groups import ConsumerGroup, describe_group, first_timestamps
from headrace.kafka.group.subscription import Membership
from headrace.model import TopicPartition
from headrace.project.services import broker_config
from headrace.project.site_clusters import cluster_of
from headrace.runtime.instance_name import process_name
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder
from headrace.settings import Settings
from headrace.workers import Worker, WorkerInstance
from headrace.workers.consumer_group import pause_requests
from headrace.workers.monitoring.lag import seconds_since
from headrace.workers.monitoring.progress import Observe
from headrace.workers.monitoring.progress_monitor import ProgressMonitor
from headrace.workers.schemas import with_schemas
from headrace.workers.status import WorkerStatus
from headrace.workers.tasks.retry_topics import consumed_topics, topics_read


@dataclass(frozen=True)
class WorkerRunOptions(RunOptions):
    """Options of the run of an instance.

    Attributes:
        instance_id: makes its membership static; empty: it is not.
        protocol: of the consumer group, ``classic`` or ``consumer``.
    """

    instance_id: str = ""
    protocol: str = "classic"


def source_config(settings: Settings, worker: Worker) -> ClientConfig:
    """Returns the configuration of clients of the cluster that has the topics of a worker.

    Raises:
        BrokerUnreachableError: if its embedded broker is down.
    """
    return cluster_of(settings, worker.site or settings.site).client_config()


class _WorkerService:
    """An instance with an event loop of its own, on which the monitor measures it."""

    def __init__(
        self, instance: WorkerInstance, name: str, source: ClientConfig, own: ClientConfig
    ) -> None:
        self._instance, self._name, self._source, self._own = instance, name, source, own
        self._progress = WorkerStatus(instance.worker.name, instance=name)

    def stop(self) -> None:
        self._instance.stop()

    def status(self) -> WorkerStatus:
        return self._progress

    def run(self, observe: Observe) -> None:
        def seen(progress: WorkerStatus) -> None:
            self._progress = progress
            observe(progress)

        monitor = ProgressMonitor(self._instance, self._name, self._source, seen, self._own)
        uvloop.run(monitor.run_instance())


def worker_run(
    settings: Settings, worker: Worker, options: WorkerRunOptions
) -> ServiceRun[WorkerStatus]:
    """Returns an instance of a worker that is ready to run.

    Raises:
        BrokerUnreachableError: if the embedded broker is down.
        ExtraMissingError: if it reads events of a format without its extra.
    """
    own = settings.of("workers", worker.name)
    config, source = broker_config(own), source_config(own, worker)
    membership = Membership(
        worker.consumer_group, instance_id=options.instance_id, protocol=options.protocol
    )
    worker = with_schemas(worker, settings)
    instance = WorkerInstance(worker, config, source=source, membership=membership)
    service = _WorkerService(instance, options.instance_id or process_name(), source, config)
    return ServiceRun(service, StatusFolder(settings.state, WorkerStatus), options)


# -- where workers stand --------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionStanding:
    """One partition: committed offset (None: none yet), what the topic holds, if it is paused."""

    partition: str
    committed: int | None
    earliest: int
    latest: int
    paused: bool


@dataclass(frozen=True)
class WorkerStanding:
    """The progress of a worker, as Kafka knows it.

    Attributes:
        worker: its name.
        topics: that it reads, its retry topics included.
        guarantee: what a crash may do to what it sends.
        group: its consumer group, with its members; they read its retry topics in another.
        lag_records: offsets from what is committed to the end of its partitions.
        lag_seconds: age of the first record that is not committed; 0 without a lag.
        partitions: those of the topics that exist.
        missing_topics: those that are declared and do not exist.
    """

    worker: str
    topics: tuple[str, ...]
    guarantee: str
    group: ConsumerGroup
    lag_records: int
    lag_seconds: float
    partitions: tuple[PartitionStanding, ...]
    missing_topics: tuple[str, ...]

    @property
    def paused_partitions(self) -> tuple[str, ...]:
        """The partitions that an operator paused."""
        return tuple(standing.partition for standing in self.partitions if standing.paused)


def standings(settings: Settings, workers: Collection[Worker]) -> list[WorkerStanding]:
    """Returns the standing of each of ``workers``.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    own = broker_config(settings)
    return [_standing(source_config(settings, worker), own, worker) for worker in workers]


def _standing(config: ClientConfig, own: ClientConfig, worker: Worker) -> WorkerStanding:
    topics = topics_read(worker)
    live = describe(config, topics)
    partitions = [
        partition for name in topics if name in live for partition in live[name].all_partitions
    ]
    # First, because a group that was never described before has no coordinator yet.
    committed = committed_offsets(config, worker, partitions)
    marks = watermarks(config, partitions)
    paused = pause_requests.paused(own, worker.name)
    begins = {
        partition: committed.get(partition, earliest) for partition, (earliest, _) in marks.items()
    }
    behind = {partition: at for partition, at in begins.items() if at < marks[partition][1]}
    # One record of each partition is read for it, only where there is a lag.
    oldest_ms = min(first_timestamps(config, behind).values(), default=-1)
    return WorkerStanding(
        worker.name,
        topics,
        worker.guarantee.value,
        describe_group(config, worker.consumer_group),
        sum(marks[partition][1] - at for partition, at in behind.items()),
        round(seconds_since(oldest_ms), 1),
        tuple(
            PartitionStanding(
                str_of(partition), committed.get(partition), *marks[partition], partition in paused
            )
            for partition in partitions
        ),
        tuple(topic.name for topic in worker.topics if topic.name not in live),
    )


def committed_offsets(
    config: ClientConfig, worker: Worker, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns what ``worker`` has committed of its topics and of its retry topics."""
    offsets: dict[TopicPartition, int] = {}
    for group, topics in consumed_topics(worker).items():
        own = [partition for partition in partitions if partition.topic in topics]
        offsets.update(group_offsets(config, group, own))
    return offsets


# -- paused on request ----------------------------------------------------------------------------


def pause(
    settings: Settings, worker: Worker, topics: Collection[str], numbers: Collection[int]
) -> list[str]:
    """Pauses partitions in all instances; returns all that are paused then, as ``topic/number``.

    Args:
        settings: the project's deployment.
        worker: whose instances pause them.
        topics: of the partitions; none: all that the worker reads, its retry topics too.
        numbers: of the partitions; none: all that exist now.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic does not exist.
        PartitionMissingError: if a topic has no such partition.
    """
    config = broker_config(settings)
    names = list(topics) or topics_read(worker)
    # Retry topics may not exist yet, so they are not required.
    required = topics or [topic.name for topic in worker.topics]
    chosen = selected_partitions(source_config(settings, worker), names, required, numbers)
    pause_requests.pause(config, worker.name, chosen)
    return [str_of(partition) for partition in sorted(pause_requests.paused(config, worker.name))]


def resume(
    settings: Settings, worker: Worker, topics: Collection[str], numbers: Collection[int]
) -> list[str]:
    """Resumes paused partitions; returns those that stay paused.

    Arguments and errors are those of :func:`pause`, but nothing that is named must exist.
    """
    config = broker_config(settings)
    paused = pause_requests.paused(config, worker.name)
    chosen = {
        partition
        for partition in paused
        if (not topics or partition.topic in topics)
        and (not numbers or partition.partition in numbers)
    }
    pause_requests.resume(config, worker.name, chosen)
    return [str_of(partition) for partition in sorted(paused - chosen)]


def selected_partitions(
    config: ClientConfig,
    topics: Collection[str],
    required: Collection[str],
    numbers: Collection[int],
) -> list[TopicPartition]:
    """Returns the partitions of ``topics`` that ``numbers`` name; without numbers, all of them.

    Raises:
        TopicMissingError: if one of the ``required`` topics does not exist.
        PartitionMissingError: if such a topic has no partition of a number.
    """
    live = describe(config, topics)
    for name in required:
        if name not in live:
            raise TopicMissingError(name)
        for number in numbers:
            if number >= live[name].partitions:
                raise PartitionMissingError(name, number, live[name].partitions)
    partitions = (partition for topic in live.values() for partition in topic.all_partitions)
    return [partition for partition in partitions if not numbers or partition.partition in numbers]


def str_of(partition: TopicPartition) -> str:
    """Returns the name of a partition in commands: ``clicks/3``."""
    return f"{partition.topic}/{partition.partition}"
