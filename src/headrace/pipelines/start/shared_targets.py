"""Targets of sinks: which pipelines write to one, and which settings no sink has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from headrace.errors import Problem
from headrace.model.fault import Fault
from headrace.pipelines.declaration import Pipeline
from headrace.project.kind import Declaration, DeclarationFault, Declarations, declared
from headrace.project.loaded import LoadedProject
from headrace.settings import PROJECT_FILE, Settings
from headrace.sinks.api import Sink


def shared_targets(declarations: Declarations, settings: Settings) -> Iterator[DeclarationFault]:
    """Yields the faults of sinks of one target, beside the first one that each does not fit."""
    writers: defaultdict[tuple[str, str], list[tuple[Declaration[Pipeline], Sink]]]
    writers = defaultdict(list)
    for declaration in declared(declarations, Pipeline):
        for sink in declaration.value.sinks:
            earlier = writers[_target_of(sink, settings)]
            for writer, other in earlier:
                faults = list(sink.faults_beside(other))
                for fault in faults:
                    yield declaration, Fault(f"{fault.message} in {writer}", f"see {writer.place}")
                if faults:
                    break
            earlier.append((declaration, sink))


def writers_beside(project: LoadedProject, own_sink: Sink) -> list[str]:
    """Returns the names of pipelines that write to the target of a sink, too."""
    own = _target_of(own_sink, project.settings)
    return [
        pipeline.name
        for pipeline in project.declared(Pipeline).values()
        for sink in pipeline.sinks
        if _target_of(sink, project.settings) == own and sink is not own_sink
    ]


def unknown_sinks(declarations: Declarations, settings: Settings) -> Iterator[Problem]:
    """Yields the settings of sinks that are neither installed nor declared in a module."""
    in_modules = {
        sink.kind for pipeline in declared(declarations, Pipeline) for sink in pipeline.value.sinks
    }
    if settings.sinks.keys() <= in_modules:
        return
    # Which packages bring sinks stands in their metadata, which takes a while to read.
    from headrace.sinks.registry import installed_kinds

    kinds = installed_kinds() | in_modules
    for kind in settings.sinks.keys() - kinds:
        file, known = str(settings.root / PROJECT_FILE), ", ".join(sorted(kinds))
        yield Problem(file, 1, f"[sinks.{kind}]: no sink of this name is installed", known)


def _target_of(sink: Sink, settings: Settings) -> tuple[str, str]:
    return sink.kind, sink.resolved_target(settings.sinks.get(sink.kind, {}))
