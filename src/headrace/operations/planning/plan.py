"""Plans what ``apply`` changes, and shows the execution path of pipelines and workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from headrace.errors import BrokerUnreachableError
from headrace.kafka.admin.topics import (
    Action,
    TopicChange,
    apply_changes,
    plan_topics,
    states_of,
    topic_states,
)
from headrace.kafka.client.admin_requests import describe, topic_ids
from headrace.kafka.client.brokers import describe_brokers
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import possible_replication
from headrace.links.sites.checks import link_warnings
from headrace.model import TopicPartition
from headrace.model.fault import Fault
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.late_data.retention_rules import live_horizon_warnings
from headrace.pipelines.sink_changes import (
    SinkChange,
    apply_sinks,
    pace_warnings,
    require_sink_extras,
    sink_changes,
)
from headrace.pipelines.standby.drivers import Drivers, drivers_of, leases_topic
from headrace.pipelines.start.checkpoint_changes import CheckpointChange, checkpoint_changes
from headrace.project.check import project_topics
from headrace.project.kinds import kinds
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.project.site_clusters import site_clusters
from headrace.queries.declaration import StandingQueries
from headrace.queries.topics import query_topic_changes
from headrace.settings import Settings
from headrace.sinks.api import Sink
from headrace.topics.declared_keys import read_keys, remember_keys
from headrace.topics.durability import (
    cluster_warnings,
    identity_warnings,
    live_warnings,
    rack_warnings,
)
from headrace.topics.schemas import schema_warnings
from headrace.workers import DeadLetters, Retry, RetryTopics, Skip, Stop, Worker
from headrace.workers.tasks.policy import FailurePolicy

_ENDS: Mapping[type, str] = {
    Stop: "the instance stops",
    Skip: "the record is skipped",
    DeadLetters: "the record is a dead letter",
}


@dataclass(frozen=True)
class PipelineRoute:
    """The execution path of a pipeline.

    Attributes:
        pipeline: its name.
        topics: names of the topics that it reads.
        sink: kind and target of its sink: ``lake clicks``.
        guarantee: what a repeated batch may do to the sink.
        path: "fused" or "spark".
        why: a sentence that says why it takes this path.
        late_data: where late events go: "keep", "dead-letter", "drop", or kind and target of the
            side table and its guarantee.
        allowed_lateness_seconds: how late an event is that is not late yet.
        unmatched: of a join, where later events go that found no earlier one: "keep", or as
            ``late_data``; empty without a join.
        active: the host of the driver that runs it, if that was started with ``--standby``.
        standbys: the hosts of the drivers that wait to take over, and are warm.
    """

    pipeline: str
    topics: tuple[str, ...]
    sink: str
    guarantee: str
    path: str
    why: str
    late_data: str
    allowed_lateness_seconds: float
    unmatched: str = ""
    active: str = ""
    standbys: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerRoute:
    """How the records of a worker are processed.

    Attributes:
        worker: its name.
        topics: names of the topics that it reads.
        partitions: number of their partitions, as declared.
        lanes: number of records that all instances together process at a time, at most.
        on_failure: a phrase that says what happens to a record that failed.
        guarantee: what a crash may do to what it sends.
        site: whose cluster has the topics; empty: the project's own.
    """

    worker: str
    topics: tuple[str, ...]
    partitions: int
    lanes: int
    on_failure: str
    guarantee: str
    site: str = ""


@dataclass(frozen=True)
class SetClients:
    """Settings of Kafka clients that differ from those of headrace.

    Attributes:
        of: what has the clients: "site", or the kind of a declaration, such as "mirror".
        name: of the site, or of the declaration.
        client: settings of all of its clients.
        consumer: those of clients that read records.
        producer: those of clients that write records.
    """

    of: str
    name: str
    client: Mapping[str, str]
    consumer: Mapping[str, str]
    producer: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """Topic changes, routes and workers.

    Attributes:
        changes: what ``apply`` would do, and what is refused.
        routes: the path of each pipeline.
        workers: the path of each worker.
        warnings: settings that are allowed and do not do what is expected of them on these brokers.
        broker_down: why the broker did not respond; every topic is then shown as one to create.
        sinks: what pipelines change in the targets of their sinks, and what is refused; of an
            applied plan, what was made.
        queries: pipelines that would not start, since other steps have written their checkpoint.
        clients: settings of Kafka clients, of sites and of declarations that have their own.
    """

    changes: tuple[TopicChange, ...]
    routes: tuple[PipelineRoute, ...]
    workers: tuple[WorkerRoute, ...]
    broker_down: str = ""
    warnings: tuple[Fault, ...] = ()
    sinks: tuple[SinkChange, ...] = ()
    queries: tuple[CheckpointChange, ...] = ()
    clients: tuple[SetClients, ...] = ()

    @property
    def refused(self) -> tuple[TopicChange | SinkChange | CheckpointChange, ...]:
        """Returns the changes that can't be made."""
        topics = tuple(change for change in self.changes if change.action is Action.REFUSED)
        sinks = tuple(change for change in self.sinks if change.is_refused)
        return (*topics, *sinks, *self.queries)


@dataclass(frozen=True)
class AppliedPlan(Plan):
    """A plan whose changes are made, but for those that are refused."""


def make_plan(project: LoadedProject) -> Plan:
    """Compares the project with the live topics, if the broker responds."""
    topics = project_topics(project)
    routes, workers = _routes(project), _workers(project)
    pipelines = project.declared(Pipeline).values()
    # Outside of the try: sinks and checkpoints are shown also while the broker is down.
    sinks = sink_changes(project.settings, pipelines)
    queries = checkpoint_changes(project.settings, pipelines)
    clients = _set_clients(project.settings)
    shown = partial(Plan, workers=workers, sinks=sinks, queries=queries, clients=clients)
    try:
        config = broker_config(project.settings)
        names = [topic.name for topic in topics]
        existing = describe(config, [*names, *map(leases_topic, pipelines)])
        live = states_of(config, {name: existing[name] for name in names if name in existing})
        changes = plan_topics(topics, live, read_keys(project.settings.state))
        changes = _without_growth(project, changes)
        changes += _query_topic_changes(project, config)
        brokers = describe_brokers(config)
        routes = _with_drivers(routes, drivers_of(config, pipelines, existing))
        warnings = (
            *identity_warnings(state.live for state in live.values()),
            *cluster_warnings(brokers),
            *(
                fault
                for topic in project.topics.values()
                for fault in live_warnings(topic, brokers)
            ),
            *rack_warnings((state.live for state in live.values()), brokers),
            *(
                fault
                for pipeline in pipelines
                for fault in live_horizon_warnings(pipeline, live, brokers.config)
            ),
            *link_warnings(project, brokers),
            *schema_warnings(project.topics.values(), project.settings),
            *(fault for pipeline in pipelines for fault in pace_warnings(pipeline)),
        )
    except BrokerUnreachableError as error:
        missing = tuple(plan_topics(topics, {}))
        return shown(missing, routes, broker_down=str(error))
    return shown(tuple(changes), routes, warnings=warnings)


def apply_plan(project: LoadedProject) -> AppliedPlan:
    """Makes the changes that can be made, and returns the plan that was carried out.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
        TopicChangeError: if Kafka rejects a change; those before it are made.
        ExtraMissingError: if a sink's target must be made, and its extra is not installed; nothing
            is changed.
        SinkError: if a sink's target can't be made; the topics are.
    """
    # First: it is the only failure that is known before anything is changed.
    require_sink_extras(project.settings, project.declared(Pipeline).values())
    config = broker_config(project.settings)
    topics = project_topics(project)
    names = [topic.name for topic in topics]
    keys = read_keys(project.settings.state)
    changes = _without_growth(project, plan_topics(topics, topic_states(config, names), keys))
    changes += _query_topic_changes(project, config)
    apply_changes(config, changes)
    refused = {change.topic for change in changes if change.action is Action.REFUSED}
    # A refused topic keeps the key with which it was applied before.
    kept = [topic for topic in topics if topic.name not in refused]
    # Kafka does not store the key of a topic: a later change of it is noticed by this.
    remember_keys(project.settings.state, kept, topic_ids(config, names))
    # Last: a sink that can't be reached leaves topics that producers can write to.
    sinks = apply_sinks(project.settings, project.declared(Pipeline).values())
    return AppliedPlan(tuple(changes), _routes(project), _workers(project), sinks=sinks)


def _without_growth(project: LoadedProject, changes: list[TopicChange]) -> list[TopicChange]:
    """Refuses partitions for topics of workers that keep a state by partition."""
    keepers = {
        name: worker
        for worker in project.declared(Worker).values()
        if worker.state is not None
        for name in (*(topic.name for topic in worker.topics), worker.state_topic)
    }
    return [
        TopicChange(
            change.topic,
            Action.REFUSED,
            f"{change.detail}: worker {keepers[change.topic].name!r} keeps a state, and keys would "
            "move to partitions without theirs; move to a topic with a new name",
        )
        if change.action is Action.ADD_PARTITIONS and change.topic in keepers
        else change
        for change in changes
    ]


def _query_topic_changes(project: LoadedProject, config: ClientConfig) -> list[TopicChange]:
    declared = project.declared(StandingQueries).values()
    if not declared:
        return []
    replication = possible_replication(config)
    live = topic_states(config, [topic for queries in declared for topic in queries.topics])
    return [
        change for queries in declared for change in query_topic_changes(queries, replication, live)
    ]


def _routes(project: LoadedProject) -> tuple[PipelineRoute, ...]:
    return tuple(
        PipelineRoute(
            pipeline.name,
            tuple(source.topic.name for source in pipeline.sources),
            pipeline.sink.label,
            pipeline.sink.guarantee.value,
            pipeline.path.kind.value,
            pipeline.path.reason,
            _of_side_table(
                pipeline.side_table if pipeline.join is None else None, str(pipeline.late_data)
            ),
            pipeline.allowed_lateness.total_seconds(),
            "" if pipeline.join is None else _of_side_table(pipeline.side_table, "keep"),
        )
        for pipeline in project.declared(Pipeline).values()
    )


def _with_drivers(
    routes: Iterable[PipelineRoute], drivers: Mapping[str, Drivers]
) -> tuple[PipelineRoute, ...]:
    return tuple(
        route
        if (of := drivers.get(route.pipeline)) is None
        else replace(
            route,
            active="" if of.active is None else of.active.host,
            standbys=tuple(standby.host for standby in of.warm),
        )
        for route in routes
    )


def _set_clients(settings: Settings) -> tuple[SetClients, ...]:
    labels = {kind.plural: kind.label for kind in kinds()}
    clusters = [(cluster.site, cluster.kafka) for cluster in site_clusters(settings)]
    shown = (
        *(SetClients("site", n, k.client, k.consumer, k.producer) for n, k in clusters),
        *(
            SetClients(labels[kind], name, own.client, own.consumer, own.producer)
            for (kind, name), own in settings.clients.items()
        ),
    )
    return tuple(row for row in shown if row.client or row.consumer or row.producer)


def _of_side_table(side: Sink | None, otherwise: str) -> str:
    return otherwise if side is None else f"{side.label}, {side.guarantee.value}"


def _workers(project: LoadedProject) -> tuple[WorkerRoute, ...]:
    routes: list[WorkerRoute] = []
    for worker in project.declared(Worker).values():
        partitions = [
            TopicPartition(topic.name, number)
            for topic in worker.topics
            for number in range(topic.partitions)
        ]
        lanes = sum(map(worker.partitioner.count, partitions))
        topics, policy = tuple(topic.name for topic in worker.topics), _policy(worker.on_failure)
        guarantee = worker.guarantee.value
        routes.append(
            WorkerRoute(worker.name, topics, len(partitions), lanes, policy, guarantee, worker.site)
        )
    return tuple(routes)


def _policy(policy: FailurePolicy) -> str:
    if isinstance(policy, Retry):
        return f"{policy.attempts} attempts in place, then {_ENDS[type(policy.then)]}"
    if isinstance(policy, RetryTopics):
        return f"{len(policy.delays)} retry topics, then {_ENDS[type(policy.then)]}"
    return _ENDS[type(policy)]
