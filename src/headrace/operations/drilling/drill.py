"""A drill from its start to its report."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, DrillError
from headrace.kafka.admin.measuring import newest_records
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.offsets import group_offsets
from headrace.ledger.balance import Book
from headrace.ledger.request import ReconcileRequest
from headrace.model import Topic
from headrace.operations.drilling.arrivals import find_arrivals
from headrace.operations.drilling.books import worker_book, writing_book
from headrace.operations.drilling.cluster import (
    NODES,
    DrilledCluster,
    StartedBrokers,
    start_brokers,
)
from headrace.operations.drilling.events import Samples, TopicEvents
from headrace.operations.drilling.faults import Faults
from headrace.operations.drilling.instances import Instance
from headrace.operations.drilling.isolation import (
    REPLICATION,
    drilled_project,
    require_drillable,
    topics_looked_up,
    topics_read,
)
from headrace.operations.drilling.progress import Progress, Subject, longest_gap
from headrace.operations.drilling.report import DrillReport, HappenedFault, Standstill
from headrace.operations.drilling.schedule import FaultKind, schedule
from headrace.operations.drilling.sender import EventSender, send_records
from headrace.operations.measuring.result import machine, now, versions
from headrace.operations.measuring.sample import sample_of
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.sink_changes import apply_sinks
from headrace.project.check import project_topics
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.runtime.files.cache import cache_folder
from headrace.runtime.java.installation import find_java
from headrace.runtime.java.jars import Progress as Downloaded
from headrace.runtime.java.jars import fetch
from headrace.runtime.servers.ports import free_ports
from headrace.settings import environment
from headrace.workers.declaration import Worker

FOLDER_PREFIX = "headrace-drill-"
CALM = "calm"
"""Stands as the fault where there was none."""

_POLL_SECONDS = 0.1
_RECOVERY_SECONDS = 300.0
_CALM_SECONDS = 5.0
_CYCLE_SECONDS = 5.0
_MAX_ENDED = 20
_MAX_REFERENCE_RECORDS = 10_000
_WRITING = "writing"
_NOT_CHECKED = (
    "what your code does by itself, such as requests to a service: it was done",
    "several machines: all brokers and processes were on this one",
)

Drilled = Pipeline | Worker
OnStep = Callable[[str], None]
"""Called with what happens now."""


@dataclass(frozen=True)
class DrillOptions:
    """What was asked for.

    Attributes:
        kinds: of the faults.
        rounds: how often each of them happens.
        seed: that their order and moments follow from.
        rate: events a second, over all topics.
        instances: of each worker.
        records: of the sample of each topic at most.
        file: with events; None: the newest records of the project's own topics.
        sinks: settings of sinks, by kind.
        command: that was called.
    """

    kinds: Sequence[FaultKind]
    rounds: int
    seed: int
    rate: float
    instances: int
    records: int
    file: Path | None
    sinks: Mapping[str, Mapping[str, str]]
    command: str


class _NotRecoveredError(Exception):
    """Something did not work again in time. The message says what."""


def drill(
    project: LoadedProject,
    chosen: Sequence[Drilled],
    options: DrillOptions,
    on_step: OnStep,
    on_download: Downloaded,
) -> DrillReport:
    """Runs declarations of a project under faults, and returns what became of the events.

    Args:
        project: as declared; it is not changed.
        chosen: workers and pipelines of it.
        options: of the command.
        on_step: called as it proceeds.
        on_download: called while jars are fetched.

    Raises:
        DrillError: if something can't be drilled, or does not work before the first fault.
        MeasurementError: if there is no sample of a topic.
        BrokerUnreachableError: if a sample is read from the project's own brokers, which do not
            answer.
        ServerStartError, JavaUnavailableError, JarError: if a broker does not start.
    """
    require_drillable(project, chosen, options.sinks)
    samples, references = _samples(project, chosen, options)
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True)
            )
        )
        on_step(f"{len(NODES)} brokers start")
        brokers = _started(folder / "kafka", stack, on_download)
        copy = drilled_project(project, folder / "project", brokers.bootstrap, options.sinks)
        subject = _Subject(copy, chosen, samples, references)
        return _Drill(subject, brokers, options, on_step, stack).report()


@dataclass(frozen=True)
class _Subject:
    """What is drilled: declarations of a copy of the project, and records for their topics."""

    project: LoadedProject
    chosen: Sequence[Drilled]
    samples: Samples
    references: Samples


def _samples(
    project: LoadedProject, chosen: Sequence[Drilled], options: DrillOptions
) -> tuple[Samples, Samples]:
    """Returns records for the topics that are read, and those of topics that are looked up."""
    settings, file = project.settings, options.file
    config = broker_config(settings) if file is None else {}
    events = {
        topic.name: sample_of(config, settings, topic, options.records, file).records
        for topic in topics_read(chosen)
    }
    if file is not None:
        return events, {}
    looked_up = {topic.name for declared in chosen for topic in topics_looked_up(declared)}
    return events, {
        name: newest_records(config, name, _MAX_REFERENCE_RECORDS) for name in sorted(looked_up)
    }


def _started(folder: Path, stack: ExitStack, on_download: Downloaded) -> StartedBrokers:
    environ = environment()
    java = find_java(environ)
    jars = fetch("kafka", java, cache=cache_folder(environ), on_progress=on_download)
    return start_brokers(folder, java, jars, stack)


class _Drill:
    """One drill, once its brokers run."""

    def __init__(
        self,
        subject: _Subject,
        brokers: StartedBrokers,
        options: DrillOptions,
        on_step: OnStep,
        stack: ExitStack,
    ) -> None:
        self._project, self._chosen, self._options = subject.project, subject.chosen, options
        self._on_step, self._stack = on_step, stack
        project, chosen, samples = subject.project, subject.chosen, subject.samples
        self._config = broker_config(project.settings)
        self._apply()
        for name, records in subject.references.items():
            send_records(self._config, name, records)
        # So that each partition that has events has one every few seconds.
        most = max(1, int(_CYCLE_SECONDS * options.rate / len(samples)))
        self._events = [
            TopicEvents(number, topic, project.settings, samples[topic.name][:most])
            for number, topic in enumerate(topics_read(chosen))
        ]
        fed = [events.topic.name for events in self._events]
        self._cluster = DrilledCluster(brokers, self._config, fed)
        self._ports = free_ports(options.instances * len(self._workers))
        self._instances = list(self._made_instances())
        self._sender = EventSender(self._config, self._events, options.rate)
        self._progress = Progress(project.settings.state, self._ports)
        self._happened: list[HappenedFault] = []
        self._still: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._ended: list[str] = []

    def report(self) -> DrillReport:
        """Runs it."""
        problems: list[str] = []
        try:
            self._begin()
            try:
                self._faults()
            except _NotRecoveredError as error:
                problems.append(str(error))
            self._on_step("the last events are sent and processed")
            self._sender.stop()
            try:
                self._until(self._is_consumed, "all events processed")
            except _NotRecoveredError as error:
                problems.append(str(error))
            for instance in self._instances:
                instance.stop()
            self._on_step("everything is counted")
            books = tuple(self._books())
        finally:
            self._progress.stop()
        return DrillReport(
            command=self._options.command,
            drilled_at=now(),
            versions=versions(),
            machine=machine(),
            seed=self._options.seed,
            names=tuple(declared.name for declared in self._chosen),
            events=len(self._sender.acknowledged),
            faults=tuple(self._happened),
            standstills=tuple(self._standstills()),
            books=books,
            problems=(*problems, *self._ended),
            not_checked=_NOT_CHECKED,
        )

    def _apply(self) -> None:
        topics = [
            replace(topic, replication=REPLICATION) for topic in project_topics(self._project)
        ]
        apply_changes(self._config, plan_topics(topics, {}))
        apply_sinks(
            self._project.settings,
            [declared for declared in self._chosen if isinstance(declared, Pipeline)],
        )

    def _made_instances(self) -> Iterator[Instance]:
        root = self._project.settings.root
        pipelines = [declared.name for declared in self._chosen if isinstance(declared, Pipeline)]
        if pipelines:
            yield Instance("driver", pipelines, ["run", *pipelines], root)
        ports = iter(self._ports)
        for worker in self._workers:
            for number in range(1, self._options.instances + 1):
                command = ["workers", "run", worker.name, "--metrics-port", str(next(ports))]
                yield Instance(f"{worker.name} {number}", [worker.name], command, root)

    @property
    def _workers(self) -> list[Worker]:
        return [declared for declared in self._chosen if isinstance(declared, Worker)]

    def _begin(self) -> None:
        self._on_step("workers and pipelines start")
        for instance in self._instances:
            self._stack.callback(instance.kill)
            instance.start()
        self._stack.callback(self._sender.abandon)
        self._sender.start()
        self._progress.start()
        try:
            self._until(lambda: self._works(0.0), "the first records processed")
        except _NotRecoveredError as error:
            raise DrillError(f"before the first fault: {error}{self._outputs()}") from error
        if self._ended:
            raise DrillError(f"before the first fault: {self._ended[0]}{self._outputs()}")

    def _faults(self) -> None:
        faults = Faults(self._cluster, self._instances, self._until, self._is_working, self._wait)
        planned = schedule(self._options.kinds, self._options.rounds, self._options.seed)
        began = time.time()
        self._wait(_CALM_SECONDS)
        self._note(CALM, began, time.time())
        first = time.time()
        for number, fault in enumerate(planned, 1):
            self._on_step(f"fault {number} of {len(planned)}: {fault.kind}")
            since = time.time()
            failed = faults.happen(fault)
            healed = time.time()
            self._until(lambda healed=healed: self._works(healed), f"all work after {fault.kind}")  # type: ignore[misc]
            until = time.time()
            self._note(fault.kind, since, until)
            self._happened.append(
                HappenedFault(fault.kind, failed, round(since - first, 1), round(until - since, 1))
            )
            self._on_step(f"fault {number} of {len(planned)}: {failed}, {until - since:.1f} s")
            self._wait(fault.calm_seconds)

    def _note(self, kind: str, since: float, until: float) -> None:
        """Notes how long each stood still between two times."""
        written = self._sender.times
        partitions = [list(written[partition]) for partition in list(written)]
        self._still[kind, _WRITING].append(
            max(longest_gap(times, since, until) for times in partitions)
        )
        for name in self._names:
            gap = self._progress.longest_gap(self._subjects([name]), since, until)
            self._still[kind, name].append(gap)

    @property
    def _names(self) -> list[str]:
        return [declared.name for declared in self._chosen]

    def _subjects(self, names: Sequence[str]) -> Iterator[Subject]:
        """Yields what must move, so that workers and pipelines of these names work."""
        partitions = list(self._sender.times)
        for declared in self._chosen:
            if declared.name not in names:
                continue
            if isinstance(declared, Pipeline):
                yield declared.name, None
                continue
            read = {topic.name for topic in declared.topics}
            yield from ((declared.name, p) for p in partitions if p.topic in read)

    def _works(self, since: float) -> bool:
        """Returns whether all copies are in sync, and everything has written and processed."""
        written = self._sender.times
        return (
            bool(written)
            and all(written[partition][-1] > since for partition in list(written))
            and self._is_working(self._names, since)
            and self._cluster.is_in_sync()
        )

    def _is_working(self, names: Sequence[str], since: float) -> bool:
        return self._progress.has_moved(self._subjects(names), since)

    def _is_consumed(self) -> bool:
        ends = self._sender.ends
        for declared in self._chosen:
            read = declared.topics if isinstance(declared, Worker) else _topics_of(declared)
            own = {topic.name for topic in read}
            partitions = [partition for partition in ends if partition.topic in own]
            committed = group_offsets(self._config, declared.consumer_group, partitions)
            if any(committed.get(partition, 0) < ends[partition] for partition in partitions):
                return False
        return True

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits, and restarts what has ended by itself, as a supervisor would.

        Raises:
            _NotRecoveredError: if the condition does not hold in time.
            DrillError: if no more events are sent.
        """
        deadline = time.monotonic() + _RECOVERY_SECONDS
        while not _holds(condition):
            if self._sender.failure is not None:
                raise DrillError(f"no more events are sent: {self._sender.failure}")
            self._revive()
            if time.monotonic() > deadline:
                raise _NotRecoveredError(f"{_RECOVERY_SECONDS:.0f} s without {what}")
            time.sleep(_POLL_SECONDS)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._revive()
            time.sleep(_POLL_SECONDS)

    def _revive(self) -> None:
        for instance in self._instances:
            if not instance.is_alive:
                *_, last = instance.last_lines.splitlines() or [""]
                self._ended.append(f"{instance.name} ended by itself: {last}")
                if len(self._ended) > _MAX_ENDED:
                    raise _NotRecoveredError("instances end again and again")
                instance.start()

    def _outputs(self) -> str:
        return "".join(f"\n{instance.name}: {instance.last_lines}" for instance in self._instances)

    def _books(self) -> Iterator[Book]:
        scanned = [topic.name for topic in project_topics(self._project)]
        arrivals = find_arrivals(self._config, scanned)
        acknowledged = self._sender.acknowledged
        for events in self._events:
            yield writing_book(events, acknowledged, arrivals)
        fed = {events.topic.name for events in self._events}
        pipelines = [declared for declared in self._chosen if isinstance(declared, Pipeline)]
        others = {t.name for pipeline in pipelines for s in pipeline.sinks for t in s.topics}
        for events in self._events:
            readers = [worker for worker in self._workers if _reads(worker, events.topic)]
            if readers:
                yield worker_book(events, readers, acknowledged, arrivals, fed | others)
        if pipelines:
            # Inside: workers alone need no extra.
            from headrace.operations.reconciling.reconcile import reconcile

            request = ReconcileRequest(recount=True)
            yield from reconcile(self._project, pipelines, request).books

    def _standstills(self) -> Iterator[Standstill]:
        for (kind, subject), seconds in self._still.items():
            yield Standstill(kind, subject, tuple(round(length, 2) for length in seconds))


def _holds(condition: Callable[[], bool]) -> bool:
    """Returns whether a condition holds; not if brokers do not answer."""
    try:
        return condition()
    except (BrokerUnreachableError, KafkaException):
        return False


def _topics_of(pipeline: Pipeline) -> list[Topic]:
    return [source.topic for source in pipeline.sources]


def _reads(worker: Worker, topic: Topic) -> bool:
    return topic.name in {read.name for read in worker.topics}
