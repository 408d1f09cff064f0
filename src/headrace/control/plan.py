"""What ``apply`` would change, which way rows take, and how records are worked on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.control.declared_keys import read_keys, remember_keys
from headrace.control.durability import cluster_warnings, identity_warnings, live_warnings
from headrace.control.project import LoadedProject
from headrace.control.services import broker_config
from headrace.control.sink_changes import SinkChange, sink_changes
from headrace.errors import BrokerUnreachableError
from headrace.kafka.brokers import Brokers, describe_brokers
from headrace.kafka.client import topic_ids
from headrace.kafka.topics import (
    Action,
    TopicChange,
    apply_changes,
    plan_topics,
    topic_states,
    with_dead_letters,
)
from headrace.model import Topic, TopicPartition
from headrace.model.fault import Fault
from headrace.workers import DeadLetters, Retry, RetryTopics, Skip, Stop, Worker
from headrace.workers.policy import FailurePolicy

_ENDS: Mapping[type, str] = {
    Stop: "the instance stops",
    Skip: "the record is skipped",
    DeadLetters: "the record is a dead letter",
}


@dataclass(frozen=True)
class PipelineRoute:
    """How one pipeline's rows travel.

    Attributes:
        pipeline: its name.
        topics: it reads.
        sink: kind and target of its sink: ``lake clicks``.
        guarantee: what a repeated batch may do to the sink.
        path: "fused" or "spark".
        why: a sentence.
    """

    pipeline: str
    topics: tuple[str, ...]
    sink: str
    guarantee: str
    path: str
    why: str


@dataclass(frozen=True)
class WorkerRoute:
    """How one worker's records are worked on.

    Attributes:
        worker: its name.
        topics: it reads.
        partitions: of them all, as declared.
        lanes: of all those partitions: so many records at a time, over all instances.
        on_failure: what happens to a record that failed, in words.
    """

    worker: str
    topics: tuple[str, ...]
    partitions: int
    lanes: int
    on_failure: str


@dataclass(frozen=True)
class Plan:
    """Topic changes, routes and workers.

    Attributes:
        changes: what ``apply`` would do, and what is refused.
        routes: one a pipeline.
        workers: one a worker.
        warnings: what is allowed and does not do what is expected of it, on these brokers.
        broker_down: why the broker gave no answer; every topic is shown as to be created then.
        sinks: what pipelines change in the targets of their sinks, and what is refused.
    """

    changes: tuple[TopicChange, ...]
    routes: tuple[PipelineRoute, ...]
    workers: tuple[WorkerRoute, ...]
    broker_down: str = ""
    warnings: tuple[Fault, ...] = ()
    sinks: tuple[SinkChange, ...] = ()

    @property
    def refused(self) -> tuple[TopicChange | SinkChange, ...]:
        """Changes that can't be made."""
        topics = tuple(one for one in self.changes if one.action is Action.REFUSED)
        return (*topics, *(change for change in self.sinks if change.is_refused))


@dataclass(frozen=True)
class AppliedPlan(Plan):
    """A plan whose changes are made, but for those that are refused."""


def make_plan(project: LoadedProject) -> Plan:
    """The plan, against the live topics; without them when the broker does not answer."""
    topics = project_topics(project)
    routes, workers = _routes(project), _workers(project)
    sinks = sink_changes(project.settings, project.pipelines.values())
    try:
        config = broker_config(project.settings)
        live = topic_states(config, [topic.name for topic in topics])
        found = _warnings(project, describe_brokers(config))
        warnings = (*identity_warnings(state.live for state in live.values()), *found)
    except BrokerUnreachableError as error:
        changes = tuple(plan_topics(topics, {}))
        return Plan(changes, routes, workers, broker_down=str(error), sinks=sinks)
    changes = tuple(plan_topics(topics, live, read_keys(project.settings.state)))
    return Plan(changes, routes, workers, warnings=warnings, sinks=sinks)


def apply_plan(project: LoadedProject) -> AppliedPlan:
    """Make the changes that can be made; returns the plan that was carried out.

    Raises:
        BrokerUnreachableError: no answer.
        TopicChangeError: Kafka refuses a change; those before it are made.
    """
    config = broker_config(project.settings)
    topics = project_topics(project)
    names = [topic.name for topic in topics]
    keys = read_keys(project.settings.state)
    changes = plan_topics(topics, topic_states(config, names), keys)
    apply_changes(config, changes)
    refused = {one.topic for one in changes if one.action is Action.REFUSED}
    kept = [topic for topic in topics if topic.name not in refused]
    remember_keys(project.settings.state, kept, topic_ids(config, names))
    return AppliedPlan(tuple(changes), _routes(project), _workers(project))


def project_topics(project: LoadedProject) -> list[Topic]:
    """Declared topics, and the dead-letter topics of those whose records may become some."""
    return with_dead_letters(project.topics.values(), project.dead_lettered.values())


def _warnings(project: LoadedProject, brokers: Brokers) -> tuple[Fault, ...]:
    found = [fault for topic in project.topics.values() for fault in live_warnings(topic, brokers)]
    return (*cluster_warnings(brokers), *found)


def _routes(project: LoadedProject) -> tuple[PipelineRoute, ...]:
    return tuple(
        PipelineRoute(
            pipeline.name,
            tuple(source.topic.name for source in pipeline.sources),
            pipeline.sink.label,
            pipeline.sink.guarantee.value,
            pipeline.path.kind.value,
            pipeline.path.reason,
        )
        for pipeline in project.pipelines.values()
    )


def _workers(project: LoadedProject) -> tuple[WorkerRoute, ...]:
    return tuple(_worker(one) for one in project.workers.values())


def _worker(worker: Worker) -> WorkerRoute:
    partitions = [
        TopicPartition(topic.name, number)
        for topic in worker.topics
        for number in range(topic.partitions)
    ]
    lanes = sum(worker.partitioner.count(one) for one in partitions)
    topics = tuple(topic.name for topic in worker.topics)
    return WorkerRoute(worker.name, topics, len(partitions), lanes, _policy(worker.on_failure))


def _policy(policy: FailurePolicy) -> str:
    if isinstance(policy, Retry):
        return f"{policy.attempts} attempts in place, then {_ENDS[type(policy.then)]}"
    if isinstance(policy, RetryTopics):
        return f"{len(policy.delays)} retry topics, then {_ENDS[type(policy.then)]}"
    return _ENDS[type(policy)]
