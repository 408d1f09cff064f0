"""A project: the topics and pipelines that its modules declare, checked as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.control.declarations import Declaration, field_location, find_declarations
from headrace.control.durability import (
    pipeline_warnings,
    topic_contradictions,
    topic_warnings,
)
from headrace.control.pipeline_rules import is_typed, pipeline_faults
from headrace.control.topic_rules import Fault, topic_faults
from headrace.errors import Problem, ProjectError
from headrace.model import Pipeline, Topic
from headrace.settings import PROJECT_FILE, Settings

Named = TypeVar("Named", Topic, Pipeline)


@dataclass(frozen=True)
class Project:
    """What is declared, by name, in the order of the modules.

    Attributes:
        settings: the deployment.
        topics: every declared topic.
        pipelines: every declared pipeline.
        warnings: what is valid and does not do what is expected of it.
    """

    settings: Settings
    topics: Mapping[str, Topic]
    pipelines: Mapping[str, Pipeline]
    warnings: tuple[Problem, ...] = ()

    @property
    def sources(self) -> dict[str, Topic]:
        """Topics that some pipeline reads, by name."""
        return {
            source.topic.name: source.topic
            for pipeline in self.pipelines.values()
            for source in pipeline.sources
        }


def load_project(settings: Settings) -> Project:
    """The project, valid as a whole. Starts nothing, connects to nothing, imports no Spark.

    Raises:
        ProjectError: every problem of the modules and their declarations, with file and line.
    """
    found, problems = find_declarations(settings)
    problems += _problems(found, settings)
    if not problems and not found:
        problems.append(_nothing_declared(settings))
    if problems:
        raise ProjectError(sorted(set(problems), key=lambda one: (one.file, one.line)))
    warnings = tuple(_warnings(found))
    return Project(settings, _by_name(found, Topic), _by_name(found, Pipeline), warnings)


def _by_name(found: Iterable[Declaration], kind: type[Named]) -> dict[str, Named]:
    return {one.value.name: one.value for one in found if isinstance(one.value, kind)}


def _nothing_declared(settings: Settings) -> Problem:
    modules = ", ".join(settings.modules)
    return Problem(
        str(settings.root / PROJECT_FILE), 1, f"no Topic and no Pipeline in {modules}", ""
    )


def _problems(found: list[Declaration], settings: Settings) -> list[Problem]:
    problems = []
    for one in found:
        faults = (
            _topic_faults(one.value, settings)
            if isinstance(one.value, Topic)
            else pipeline_faults(one.value)
        )
        problems += [_problem(one, fault) for fault in faults]
    for one, fault in _faults_between(found):
        problems.append(_problem(one, fault))
    return problems


def _topic_faults(topic: Topic, settings: Settings) -> list[Fault]:
    # Values are compared with each other only where each is what it must be.
    return list(topic_faults(topic, settings)) or list(topic_contradictions(topic))


def _warnings(found: list[Declaration]) -> Iterator[Problem]:
    for one in found:
        faults = (
            topic_warnings(one.value)
            if isinstance(one.value, Topic)
            else pipeline_warnings(one.value)
        )
        yield from (_problem(one, fault) for fault in faults)


def _problem(one: Declaration, fault: Fault) -> Problem:
    file, line = one.file, one.line
    if fault.field and isinstance(one.value, Topic) and isinstance(one.value.event, type):
        file, line = field_location(one.value.event, fault.field) or (file, line)
    return Problem(file, line, fault.message, fault.way_out)


def _faults_between(found: list[Declaration]) -> Iterator[tuple[Declaration, Fault]]:
    topics = [one for one in found if isinstance(one.value, Topic)]
    pipelines = [one for one in found if isinstance(one.value, Pipeline) and is_typed(one.value)]
    yield from _same_names(topics, "topic")
    yield from _same_names(pipelines, "pipeline")
    yield from _colliding_topics(topics)
    yield from _undeclared_sources(topics, pipelines)
    yield from _dead_letter_topics(topics, pipelines)
    yield from _shared_tables(pipelines)


def _same_names(found: list[Declaration], what: str) -> Iterator[tuple[Declaration, Fault]]:
    first: dict[str, Declaration] = {}
    for one in found:
        other = first.setdefault(one.value.name, one)
        if other is not one:
            message = f"{what} {one.value.name!r} is already declared"
            yield one, Fault(message, f"at {other.file}:{other.line}")


def _colliding_topics(topics: list[Declaration]) -> Iterator[tuple[Declaration, Fault]]:
    first: dict[str, Declaration] = {}
    for one in topics:
        other = first.setdefault(str(one.value.name).replace(".", "_"), one)
        if other.value.name != one.value.name:
            message = f"topic {one.value.name!r} collides with {other.value.name!r}"
            yield one, Fault(message, "Kafka takes '.' and '_' for the same in names")


def _undeclared_sources(
    topics: list[Declaration], pipelines: list[Declaration]
) -> Iterator[tuple[Declaration, Fault]]:
    declared = {one.value.name: one.value for one in topics}
    for one, pipeline in _pipelines(pipelines):
        for source in pipeline.sources:
            name = source.topic.name
            if name not in declared:
                message = f"pipeline {pipeline.name!r} reads {name!r}, which no module declares"
                yield one, Fault(message, "assign the Topic to a name in a module")
            elif declared[name] != source.topic:
                message = f"pipeline {pipeline.name!r} reads another {name!r} than is declared"
                yield one, Fault(message, "use the one declared Topic")


def _dead_letter_topics(
    topics: list[Declaration], pipelines: list[Declaration]
) -> Iterator[tuple[Declaration, Fault]]:
    dead = {
        source.topic.dead_letters: source.topic.name
        for _, pipeline in _pipelines(pipelines)
        for source in pipeline.sources
    }
    for one in topics:
        origin = dead.get(one.value.name)
        if origin is not None and isinstance(one.value, Topic) and one.value.event is not None:
            message = f"topic {one.value.name!r} takes the dead letters of {origin!r}: raw bytes"
            yield one, Fault(message, "leave its event out, or the whole declaration")


def _shared_tables(pipelines: list[Declaration]) -> Iterator[tuple[Declaration, Fault]]:
    first: dict[str, tuple[Declaration, Pipeline]] = {}
    for one, pipeline in _pipelines(pipelines):
        other, owner = first.setdefault(pipeline.sink.table, (one, pipeline))
        here, there = list(pipeline.sink.partition_by), list(owner.sink.partition_by)
        if here != there:
            message = (
                f"table {pipeline.sink.table!r} is partitioned by {here} here "
                f"and by {there} in pipeline {owner.name!r}"
            )
            yield one, Fault(message, f"see {other.file}:{other.line}")


def _pipelines(found: list[Declaration]) -> Iterator[tuple[Declaration, Pipeline]]:
    for one in found:
        if isinstance(one.value, Pipeline):
            yield one, one.value
