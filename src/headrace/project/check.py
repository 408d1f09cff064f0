"""A project: what its modules declare, checked as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from headrace.errors import Problem, ProjectError
from headrace.links.dispatcher import rules as dispatcher_rules
from headrace.links.dispatcher.declaration import Dispatcher
from headrace.links.dispatcher.rules import dispatcher_faults
from headrace.links.merger import rules as merger_rules
from headrace.links.merger.declaration import Merger
from headrace.links.merger.rules import merger_faults
from headrace.links.mirror import rules as mirror_rules
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.rules import mirror_faults
from headrace.model import Topic
from headrace.model.fault import Fault, is_a
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.durability import pipeline_warnings
from headrace.pipelines.late_data.retention_rules import retention_faults
from headrace.pipelines.rules import is_typed, pipeline_faults, settings_faults
from headrace.project.declarations import (
    Declaration,
    Declared,
    field_location,
    find_declarations,
)
from headrace.queries.declaration import StandingQueries
from headrace.queries.rules import queries_matched_by, standing_query_faults
from headrace.settings import PROJECT_FILE, Settings
from headrace.sinks.api import Sink
from headrace.topics.durability import topic_contradictions, topic_warnings
from headrace.topics.rules import topic_faults
from headrace.workers import Worker
from headrace.workers import rules as worker_rules
from headrace.workers.rules import sends_dead_letters, worker_faults

Named = TypeVar("Named", Topic, Pipeline, Worker, Mirror, Merger, Dispatcher, StandingQueries)
Reader: TypeAlias = Pipeline | Worker | Mirror | Merger | Dispatcher
"""What reads topics, as a consumer group."""


@dataclass(frozen=True)
class LoadedProject:
    """What is declared, by name, in the order of the modules.

    Attributes:
        settings: the deployment.
        topics: every declared topic.
        pipelines: every declared pipeline.
        workers: every declared worker.
        mirrors: every declared mirror.
        mergers: every declared merger.
        dispatchers: every declared dispatcher.
        standing_queries: every declaration of standing queries.
        warnings: declarations that are valid and do not do what is expected of them, and what the
            HTTP service lacks.
    """

    settings: Settings
    topics: Mapping[str, Topic]
    pipelines: Mapping[str, Pipeline]
    workers: Mapping[str, Worker] = field(default_factory=dict)
    mirrors: Mapping[str, Mirror] = field(default_factory=dict)
    mergers: Mapping[str, Merger] = field(default_factory=dict)
    dispatchers: Mapping[str, Dispatcher] = field(default_factory=dict)
    standing_queries: Mapping[str, StandingQueries] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()

    @property
    def sources(self) -> dict[str, Topic]:
        """Topics that some pipeline reads, by name."""
        return {
            source.topic.name: source.topic
            for pipeline in self.pipelines.values()
            for source in pipeline.sources
        }

    @property
    def dead_lettered(self) -> dict[str, Topic]:
        """Topics whose records may become dead letters: of a pipeline, or of a worker."""
        of_workers = {
            topic.name: topic
            for worker in self.workers.values()
            if sends_dead_letters(worker)
            for topic in worker.topics
        }
        return self.sources | of_workers

    def writers_beside(self, own_sink: Sink) -> list[str]:
        """Returns the names of pipelines that write to the target of one's sink, too."""
        own = _target_of(own_sink, self.settings)
        return [
            other.name
            for other in self.pipelines.values()
            for sink in other.sinks
            if _target_of(sink, self.settings) == own and sink is not own_sink
        ]


def project_topics(project: LoadedProject) -> list[Topic]:
    """Returns the declared topics, and the dead-letter topics of those that need one."""
    # Inside: it imports the client of Kafka, which a check does without.
    from headrace.kafka.admin.topics import with_dead_letters

    return with_dead_letters(project.topics.values(), project.dead_lettered.values())


def load_project(settings: Settings) -> LoadedProject:
    """Returns the project, valid as a whole. Starts nothing, connects to nothing, imports no Spark.

    Raises:
        ProjectError: if it is not valid: every problem of the modules and their declarations, with
            file and line.
    """
    declarations, problems = find_declarations(settings)
    problems += [*_problems(declarations, settings), *_unknown_sinks(declarations, settings)]
    if not problems and not declarations:
        problems.append(_nothing_declared(settings))
    if problems:
        # Each problem once: topics that share an event class find the same mistakes in it.
        # The sort is stable, so problems of one line stay in the order of their declarations.
        raise ProjectError(
            sorted(dict.fromkeys(problems), key=lambda problem: (problem.file, problem.line))
        )
    warnings = (*settings.unset, *_warnings(declarations))
    return LoadedProject(
        settings,
        _by_name(declarations, Topic),
        _by_name(declarations, Pipeline),
        _by_name(declarations, Worker),
        _by_name(declarations, Mirror),
        _by_name(declarations, Merger),
        _by_name(declarations, Dispatcher),
        _by_name(declarations, StandingQueries),
        warnings,
    )


def _by_name(declarations: Iterable[Declaration], kind: type[Named]) -> dict[str, Named]:
    values = (declaration.value for declaration in declarations)
    return {value.name: value for value in values if isinstance(value, kind)}


def _nothing_declared(settings: Settings) -> Problem:
    modules = ", ".join(settings.modules)
    return Problem(
        str(settings.root / PROJECT_FILE),
        1,
        f"no Topic, Pipeline, Worker, Mirror, Merger, Dispatcher or StandingQueries in {modules}",
        "give one to a variable there, or name in project.modules the module that does",
    )


def _unknown_sinks(declarations: list[Declaration], settings: Settings) -> Iterator[Problem]:
    """Settings of sinks that are neither installed nor declared in a module."""
    declared = {
        sink.kind
        for declaration in declarations
        if isinstance(declaration.value, Pipeline) and is_typed(declaration.value)
        for sink in declaration.value.sinks
    }
    if settings.sinks.keys() <= declared:
        return
    # Which packages bring sinks stands in their metadata, which takes a while to read.
    from headrace.sinks.registry import installed_kinds

    kinds = installed_kinds() | declared
    for kind in settings.sinks.keys() - kinds:
        file, known = str(settings.root / PROJECT_FILE), ", ".join(sorted(kinds))
        yield Problem(file, 1, f"[sinks.{kind}]: no sink of this name is installed", known)


def _problems(declarations: list[Declaration], settings: Settings) -> list[Problem]:
    problems = [
        _problem(declaration, fault)
        for declaration in declarations
        for fault in _own_faults(declaration.value, settings)
    ]
    return problems + [_problem(*pair) for pair in _faults_between(declarations, settings)]


def _own_faults(value: Declared, settings: Settings) -> Iterable[Fault]:
    if isinstance(value, Topic):
        return _topic_faults(value, settings)
    if isinstance(value, Pipeline):
        return [*_pipeline_faults(value), *settings_faults(value, settings.sinks)]
    if isinstance(value, Mirror):
        return mirror_faults(value, settings)
    if isinstance(value, Dispatcher):
        return dispatcher_faults(value, settings)
    if isinstance(value, StandingQueries):
        return standing_query_faults(value)
    return merger_faults(value) if isinstance(value, Merger) else worker_faults(value)


def _topic_faults(topic: Topic, settings: Settings) -> list[Fault]:
    # Values are compared with each other only where each is what it must be.
    return list(topic_faults(topic, settings)) or list(topic_contradictions(topic))


def _pipeline_faults(pipeline: Pipeline) -> list[Fault]:
    return list(pipeline_faults(pipeline)) or list(retention_faults(pipeline))


def _warnings(declarations: list[Declaration]) -> Iterator[Problem]:
    for declaration in declarations:
        for fault in _own_warnings(declaration.value):
            yield _problem(declaration, fault)


def _own_warnings(value: Declared) -> Iterable[Fault]:
    if isinstance(value, Topic):
        return topic_warnings(value)
    return pipeline_warnings(value) if isinstance(value, Pipeline) else ()


def _problem(declaration: Declaration, fault: Fault) -> Problem:
    value, file, line = declaration.value, declaration.file, declaration.line
    if fault.field and isinstance(value, Topic) and isinstance(value.event, type):
        file, line = field_location(value.event, fault.field) or (file, line)
    return Problem(file, line, fault.message, fault.remedy)


def _faults_between(
    declarations: list[Declaration], settings: Settings
) -> Iterator[tuple[Declaration, Fault]]:
    topics = [declaration for declaration in declarations if isinstance(declaration.value, Topic)]
    pipelines = [pipeline for pipeline, _ in _pipelines(declarations)]
    workers = [
        declaration
        for declaration in declarations
        if isinstance(declaration.value, Worker) and worker_rules.is_typed(declaration.value)
    ]
    mirrors = [
        declaration
        for declaration in declarations
        if isinstance(declaration.value, Mirror) and mirror_rules.is_typed(declaration.value)
    ]
    mergers = [
        declaration
        for declaration in declarations
        if isinstance(declaration.value, Merger) and merger_rules.is_typed(declaration.value)
    ]
    dispatchers = [
        declaration
        for declaration in declarations
        if isinstance(declaration.value, Dispatcher)
        and dispatcher_rules.is_typed(declaration.value)
    ]
    queries = [
        declaration
        for declaration in declarations
        if isinstance(declaration.value, StandingQueries) and is_a(declaration.value.name, str)
    ]
    # What has parts of wrong types is left out: it has been reported, and the rules below
    # rely on types.
    readers = [*pipelines, *workers, *mirrors, *mergers, *dispatchers]
    yield from _same_names(topics)
    yield from _same_names(readers)
    yield from _same_names(queries)
    yield from _same_groups(readers)
    yield from _compacted_without_key(topics, pipelines)
    yield from _colliding_topics(topics)
    yield from _colliding_query_topics(topics, queries)
    yield from _undeclared_queries(pipelines, queries)
    yield from _undeclared_topics(topics, readers)
    yield from _dead_letter_topics(topics, readers)
    yield from _shared_targets(pipelines, settings)
    yield from _matched_twice(pipelines)
    yield from _written_beside_mergers(readers)
    yield from _dispatched_twice(dispatchers)


def _same_names(declarations: list[Declaration]) -> Iterator[tuple[Declaration, Fault]]:
    """A pipeline and a worker of one name would be one consumer group, and lines of one log."""
    first: dict[str, Declaration] = {}
    for declaration in declarations:
        value = declaration.value
        earlier = first.setdefault(value.name, declaration)
        if earlier is not declaration:
            other = _kind(earlier.value)
            as_other = "" if other == _kind(value) else f" as a {other}"
            message = f"{_kind(value)} {value.name!r} is already declared{as_other}"
            yield declaration, Fault(message, f"at {earlier.file}:{earlier.line}")


def _same_groups(readers: list[Declaration]) -> Iterator[tuple[Declaration, Fault]]:
    """Readers of one consumer group would share the partitions, and each see a part of them."""
    first: dict[str, tuple[Declaration, Reader]] = {}
    for declaration, reader in _readers(readers):
        earlier, owner = first.setdefault(reader.consumer_group, (declaration, reader))
        if owner.name != reader.name:
            message = f"{reader.name!r} has the consumer group of {owner.name!r}"
            yield declaration, Fault(message, f"at {earlier.file}:{earlier.line}")


def _kind(value: Declared) -> str:
    if isinstance(value, StandingQueries):
        return "standing queries"
    return "worker" if isinstance(value, Worker) else type(value).__name__.lower()


def _compacted_without_key(
    topics: list[Declaration], pipelines: list[Declaration]
) -> Iterator[tuple[Declaration, Fault]]:
    """What looks values up by record keys needs no field that holds them."""
    references = {
        topic.name
        for _, pipeline in _pipelines(pipelines)
        for topic in pipeline.references
        if is_a(topic, Topic)
    }
    for declaration in topics:
        topic = declaration.value
        if not isinstance(topic, Topic) or topic.event is None or topic.name in references:
            continue
        if topic.is_keyed_elsewhere:
            message = f"topic {topic.name!r}: compaction without a key"
            yield declaration, Fault(message, "name a field as key; a reference needs none")


def _colliding_topics(topics: list[Declaration]) -> Iterator[tuple[Declaration, Fault]]:
    first: dict[str, Declaration] = {}
    for declaration in topics:
        name = declaration.value.name
        # A name may be any value here: what is no text has been reported as no topic name.
        earlier = first.setdefault(str(name).replace(".", "_"), declaration)
        if earlier.value.name != name:
            message = f"topic {name!r} collides with {earlier.value.name!r}"
            yield declaration, Fault(message, "Kafka takes '.' and '_' for the same in names")


def _colliding_query_topics(
    topics: list[Declaration], queries: list[Declaration]
) -> Iterator[tuple[Declaration, Fault]]:
    """Topics of standing queries are theirs alone, and are not declared beside them."""
    first = {str(topic.value.name).replace(".", "_"): topic for topic in topics}
    for declaration in queries:
        value = declaration.value
        for name in value.topics if isinstance(value, StandingQueries) else ():
            earlier = first.setdefault(name.replace(".", "_"), declaration)
            if earlier.value.name != value.name or isinstance(earlier.value, Topic):
                other = f"{_kind(earlier.value)} {earlier.value.name!r}"
                message = f"topic {name!r} of standing queries {value.name!r} collides with {other}"
                yield declaration, Fault(message, f"at {earlier.file}:{earlier.line}")


def _undeclared_queries(
    pipelines: list[Declaration], queries: list[Declaration]
) -> Iterator[tuple[Declaration, Fault]]:
    declared = [declaration.value for declaration in queries]
    for declaration, pipeline in _pipelines(pipelines):
        for matched in queries_matched_by(pipeline):
            if matched not in declared:
                message = (
                    f"pipeline {pipeline.name!r} matches {matched.name!r}, which is not declared"
                )
                yield (
                    declaration,
                    Fault(message, "assign the StandingQueries to a name in a module"),
                )


def _undeclared_topics(
    topics: list[Declaration], readers: list[Declaration]
) -> Iterator[tuple[Declaration, Fault]]:
    declared = {declaration.value.name: declaration.value for declaration in topics}
    for declaration, reader in _readers(readers):
        who = f"{_kind(reader)} {reader.name!r}"
        for does, topic in (*_looked_at(reader), *written_topics(reader)):
            if topic.name not in declared:
                message = f"{who} {does} {topic.name!r}, which no module declares"
                yield declaration, Fault(message, "assign the Topic to a name in a module")
            elif declared[topic.name] != topic:
                message = f"{who} {does} another {topic.name!r} than is declared"
                yield declaration, Fault(message, "use the one declared Topic")


def _looked_at(reader: Reader) -> Iterator[tuple[str, Topic]]:
    yield from (("reads", topic) for topic in _read(reader))
    references = reader.references if isinstance(reader, Pipeline) else ()
    yield from (("looks values up in", topic) for topic in references if is_a(topic, Topic))


def written_topics(reader: Reader) -> Iterator[tuple[str, Topic]]:
    """Yields the topics that a reader writes, each with a word for that.

    A pipeline writes those of its sinks, and none where the sink's own rules say that it has none;
    a mirror the copies, a merger the sorted topic and the late one.
    """
    if isinstance(reader, Mirror):
        yield from (("copies to", topic) for topic in reader.topics.values())
    if isinstance(reader, Merger):
        yield from (("writes to", topic) for topic in (reader.target, reader.late))
    if isinstance(reader, Pipeline):
        topics = (topic for sink in reader.sinks for topic in sink.topics)
        yield from (("writes to", topic) for topic in topics if is_a(topic, Topic))


def _dead_letter_topics(
    topics: list[Declaration], readers: list[Declaration]
) -> Iterator[tuple[Declaration, Fault]]:
    dead = {
        topic.dead_letters: topic.name
        for _, reader in _readers(readers)
        if isinstance(reader, Pipeline)
        or (isinstance(reader, Worker) and sends_dead_letters(reader))
        for topic in _read(reader)
    }
    for declaration in topics:
        topic = declaration.value
        origin = dead.get(topic.name)
        if origin is not None and isinstance(topic, Topic) and topic.event is not None:
            message = f"topic {topic.name!r} takes the dead letters of {origin!r}: raw bytes"
            yield declaration, Fault(message, "leave its event out, or the whole declaration")


def _target_of(sink: Sink, settings: Settings) -> tuple[str, str]:
    return sink.kind, sink.resolved_target(settings.sinks.get(sink.kind, {}))


def _shared_targets(
    pipelines: list[Declaration], settings: Settings
) -> Iterator[tuple[Declaration, Fault]]:
    """Faults of pipelines that write to one target, each beside the first one it does not fit."""
    writers: defaultdict[tuple[str, str], list[tuple[Declaration, str, Sink]]] = defaultdict(list)
    for declaration, pipeline in _pipelines(pipelines):
        for sink in pipeline.sinks:
            earlier = writers[_target_of(sink, settings)]
            for place, owner, other in earlier:
                faults = list(sink.faults_beside(other))
                for fault in faults:
                    message = f"{fault.message} in pipeline {owner!r}"
                    yield declaration, Fault(message, f"see {place.file}:{place.line}")
                if faults:
                    break
            earlier.append((declaration, pipeline.name, sink))


def _written_beside_mergers(
    readers: list[Declaration],
) -> Iterator[tuple[Declaration, Fault]]:
    """What a merger writes is sorted only where nothing else writes it."""
    merged: dict[str, Declaration] = {}
    for declaration, reader in _readers(readers):
        if isinstance(reader, Merger):
            merged.setdefault(reader.target.name, declaration)
    for declaration, reader in _readers(readers):
        for _, topic in written_topics(reader):
            earlier = merged.get(topic.name, declaration)
            if earlier is not declaration:
                who = f"{_kind(reader)} {reader.name!r}"
                message = f"{who} writes to {topic.name!r}, the target of {earlier.value.name!r}"
                yield declaration, Fault(message, f"see {earlier.file}:{earlier.line}")


def _matched_twice(pipelines: list[Declaration]) -> Iterator[tuple[Declaration, Fault]]:
    """Events of a topic that two pipelines match with the same queries would count twice."""
    first: dict[tuple[str, str], tuple[Declaration, Pipeline]] = {}
    for declaration, pipeline in _pipelines(pipelines):
        for queries in queries_matched_by(pipeline):
            for source in pipeline.sources:
                place = queries.name, source.topic.name
                earlier, owner = first.setdefault(place, (declaration, pipeline))
                if earlier is not declaration:
                    message = (
                        f"pipeline {pipeline.name!r} matches {source.topic.name!r} with "
                        f"{queries.name!r}, as {owner.name!r} does: events would count twice"
                    )
                    yield declaration, Fault(message, f"see {earlier.file}:{earlier.line}")


def _dispatched_twice(
    dispatchers: list[Declaration],
) -> Iterator[tuple[Declaration, Fault]]:
    """A dispatcher goes on after the last record of its source at the target: it must be its."""
    first: dict[tuple[str, str, str], Declaration] = {}
    for declaration in dispatchers:
        dispatcher = declaration.value
        if not isinstance(dispatcher, Dispatcher):
            continue
        for site, topic in dispatcher.targets.items():
            earlier = first.setdefault((dispatcher.source.name, site, topic), declaration)
            if earlier is not declaration:
                message = (
                    f"dispatcher {dispatcher.name!r} sends {dispatcher.source.name!r} to {topic!r} "
                    f"at {site!r}, as {earlier.value.name!r} does"
                )
                yield declaration, Fault(message, f"see {earlier.file}:{earlier.line}")


def _pipelines(declarations: list[Declaration]) -> Iterator[tuple[Declaration, Pipeline]]:
    """Gives the pipelines whose parts have the types that the model says."""
    for declaration in declarations:
        if isinstance(declaration.value, Pipeline) and is_typed(declaration.value):
            yield declaration, declaration.value


def _readers(declarations: list[Declaration]) -> Iterator[tuple[Declaration, Reader]]:
    for declaration in declarations:
        if isinstance(declaration.value, Reader):
            yield declaration, declaration.value


def _read(reader: Reader) -> tuple[Topic, ...]:
    if isinstance(reader, Pipeline):
        return tuple(source.topic for source in reader.sources)
    if isinstance(reader, Merger):
        return tuple(reader.sources)
    if isinstance(reader, Dispatcher):
        return (reader.source,)
    return reader.topics if isinstance(reader, Worker) else ()
