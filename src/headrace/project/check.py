"""Loads a project: its declarations, each checked alone and all against each other."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from headrace.errors import Problem, ProjectError
from headrace.model import Topic
from headrace.model.fault import Fault
from headrace.project.declarations import field_location, find_declarations
from headrace.project.kind import Declaration, DeclarationFault, Declarations
from headrace.project.kinds import kinds
from headrace.project.loaded import LoadedProject
from headrace.settings import PROJECT_FILE, Settings


def project_topics(project: LoadedProject) -> list[Topic]:
    """Returns the declared topics, those of headrace's own, and the dead-letter topics."""
    # Inside: it imports the client of Kafka, which a check does without.
    from headrace.kafka.admin.topics import with_dead_letters

    own = {**project.kept, **project.topics}
    return with_dead_letters(own.values(), project.dead_lettered.values())


def load_project(settings: Settings) -> LoadedProject:
    """Returns the project, valid as a whole. Starts nothing, connects to nothing, imports no Spark.

    Raises:
        ProjectError: if it is not valid: every problem of the modules and their declarations, with
            file and line.
    """
    declarations, problems = find_declarations(settings)
    problems += [
        _problem(declaration, fault)
        for declaration in declarations
        for fault in declaration.kind.own_faults(declaration.value, settings)
    ]
    # In the order of the kinds, which says of two with one name which of them is the first.
    typed = [
        declaration
        for kind in kinds()
        for declaration in declarations
        if declaration.kind is kind and not any(kind.type_faults(declaration.value))
    ]
    problems += [_problem(*pair) for pair in _faults_between(typed, settings)]
    problems += [problem for kind in kinds() for problem in kind.settings_faults(typed, settings)]
    problems += _clients_of_nothing(typed, settings)
    if not problems and not declarations:
        *others, last = (kind.type.__name__ for kind in kinds())
        modules = ", ".join(settings.modules)
        problems.append(
            Problem(
                str(settings.root / PROJECT_FILE),
                1,
                f"no {', '.join(others)} or {last} in {modules}",
                "give one to a variable there, or name in project.modules the module that does",
            )
        )
    if problems:
        # Each problem once: topics that share an event class find the same mistakes in it.
        # The sort is stable, so problems of one line stay in the order of their declarations.
        raise ProjectError(
            sorted(dict.fromkeys(problems), key=lambda problem: (problem.file, problem.line))
        )
    warnings = [
        _problem(declaration, fault)
        for declaration in declarations
        for fault in declaration.kind.warnings(declaration.value)
    ]
    values = tuple(declaration.value for declaration in declarations)
    return LoadedProject(settings, values, (*settings.unset, *warnings))


def name_problems(settings: Settings) -> list[Problem]:
    """Returns what is wrong with the names in settings that have other problems.

    The modules are imported for it. What declarations lack may be what those settings say wrongly,
    so nothing else is checked.
    """
    if not settings.clients or not settings.modules:
        return []
    declarations, problems = find_declarations(settings)
    return problems or [*_clients_of_nothing(declarations, settings)]


def _problem(declaration: Declaration[Any], fault: Fault) -> Problem:
    value, file, line = declaration.value, declaration.file, declaration.line
    if fault.field and isinstance(value, Topic) and isinstance(value.event, type):
        file, line = field_location(value.event, fault.field) or (file, line)
    return Problem(file, line, fault.message, fault.remedy)


def _clients_of_nothing(declarations: Declarations, settings: Settings) -> Iterator[Problem]:
    """Settings of Kafka clients that no declaration has."""
    for (plural, name), clients in settings.clients.items():
        kind = next(kind for kind in kinds() if kind.plural == plural)
        names = [known.value.name for known in declarations if known.kind is kind]
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            listed = f"declared: {', '.join(names) or 'none'}"
            yield Problem(
                str(settings.root / PROJECT_FILE),
                clients.line,
                f"{plural}.{name}: no {kind.label} {name!r} is declared",
                f"did you mean {close[0]!r}?" if close else listed,
            )


def _faults_between(declarations: Declarations, settings: Settings) -> Iterator[DeclarationFault]:
    yield from _same_names(declarations)
    yield from _same_groups(declarations)
    for kind in kinds():
        yield from kind.faults_between(declarations, settings)
    for shared_faults in dict.fromkeys(kind.shared_faults for kind in kinds()):
        yield from shared_faults(declarations, settings)


def _same_names(declarations: Declarations) -> Iterator[DeclarationFault]:
    """A pipeline and a worker of one name would be one consumer group, and lines of one log."""
    first: dict[tuple[object, str], Declaration[Any]] = {}
    for declaration in declarations:
        kind, name = declaration.kind, declaration.value.name
        sharing = kind.label if kind.consumer_group is None else None
        earlier = first.setdefault((sharing, name), declaration)
        if earlier is not declaration:
            as_other = "" if earlier.kind is kind else f" as a {earlier.kind.label}"
            message = f"{declaration} is already declared{as_other}"
            yield declaration, Fault(message, f"at {earlier.place}")


def _same_groups(declarations: Declarations) -> Iterator[DeclarationFault]:
    """Readers of one consumer group would share the partitions, and each see a part of them."""
    first: dict[str, Declaration[Any]] = {}
    for declaration in declarations:
        if (consumer_group := declaration.kind.consumer_group) is None:
            continue
        earlier = first.setdefault(consumer_group(declaration.value), declaration)
        if earlier.value.name != declaration.value.name:
            message = f"{declaration.value.name!r} has the consumer group of {earlier.value.name!r}"
            yield declaration, Fault(message, f"at {earlier.place}")
