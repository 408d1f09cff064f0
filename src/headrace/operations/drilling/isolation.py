"""A copy of the project, whose addresses all lead to the servers of the drill."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.errors import DrillError
from headrace.model import Json, Topic
from headrace.operations.drilling.events import id_field
from headrace.pipelines.declaration import Pipeline
from headrace.project.loaded import LoadedProject
from headrace.settings import PROJECT_FILE, STATE_FOLDER, environment, load_settings
from headrace.sinks.api import Sink
from headrace.sinks.kafka.declaration import Kafka
from headrace.sinks.lake.declaration import Lake
from headrace.sinks.lake.delta.declaration import Delta
from headrace.sinks.postgres.declaration import Postgres
from headrace.sinks.postgres.servers.by_server import ByServer
from headrace.sinks.postgres.servers.names import url_key
from headrace.sinks.postgres.stats.declaration import Stats
from headrace.workers.declaration import Worker

REPLICATION = 3

_LEFT_OUT = frozenset({PROJECT_FILE, STATE_FOLDER, "__pycache__", ".git"})
_SERVERS = frozenset({"ingest", "s3"})
_NOBODY = "http://127.0.0.1:1"  # no server has this port
# Faults come far more often than in a year of operation.
_RESTART = {"budget": 1000, "first_delay_seconds": 0.5, "max_delay_seconds": 2.0}


def drilled_project(
    project: LoadedProject, folder: Path, bootstrap: str, sinks: Mapping[str, Mapping[str, str]]
) -> LoadedProject:
    """Writes a copy of the project into ``folder``, and returns it.

    Its code is that of the project, by links. Its lake, its checkpoints and what headrace keeps are
    in the folder.

    Args:
        project: as declared.
        folder: does not exist yet.
        bootstrap: addresses of the drill's brokers.
        sinks: settings of ``[sinks.KIND]`` for the drill, by kind.
    """
    folder.mkdir()
    for entry in project.settings.root.iterdir():
        if entry.name not in _LEFT_OUT:
            (folder / entry.name).symlink_to(entry)
    declared = tomllib.loads((project.settings.root / PROJECT_FILE).read_text(encoding="utf-8"))
    isolated = _isolated(declared, bootstrap, _in_files(sinks, folder))
    (folder / PROJECT_FILE).write_text(_toml(isolated), encoding="utf-8")
    settings = load_settings(folder, environment())
    values = tuple(
        replace(value, replication=REPLICATION) if isinstance(value, Topic) else value
        for value in project.values
    )
    return LoadedProject(settings, values, project.warnings)


def _in_files(
    sinks: Mapping[str, Mapping[str, str]], folder: Path
) -> dict[str, dict[str, dict[str, str]]]:
    """Writes settings into files, as they may be secrets, and returns where they are."""
    placed: dict[str, dict[str, dict[str, str]]] = {}
    for kind, settings in sinks.items():
        for name, value in settings.items():
            file = folder / f".sink.{kind}.{name}"
            file.touch(mode=0o600)
            file.write_text(value, encoding="utf-8")
            placed.setdefault(kind, {})[name] = {"file": file.name}
    return placed


def _isolated(
    declared: Mapping[str, Any], bootstrap: str, sinks: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    kept = {name: table for name, table in declared.items() if name not in _SERVERS}
    project = {name: value for name, value in declared["project"].items() if name != "checkpoints"}
    kafka = {
        name: value
        for name, value in declared.get("kafka", {}).items()
        if name in {"client", "consumer", "producer"}
    }
    spark = {"config": declared.get("spark", {}).get("config", {}), "master": "local[2]"}
    # Without bootstrap_servers, a site has an embedded cluster, which is never started.
    sites: dict[str, Any] = {name: {} for name in declared.get("sites", {})}
    settings = declared.get("sinks", {})
    for kind, own in sinks.items():
        settings = {**settings, kind: _with(settings.get(kind, {}), own)}
    return {
        **kept,
        "project": {**project, "lake": f"{STATE_FOLDER}/lake"},
        "kafka": {**kafka, "bootstrap_servers": bootstrap},
        "spark": spark,
        "restart": _RESTART,
        "sinks": {kind: table for kind, table in settings.items() if kind != Lake.kind},
        "sites": sites,
    } | ({"schema_registry": {"url": _NOBODY}} if "schema_registry" in declared else {})


def _with(table: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a table with further settings; those of a table within it have dotted names."""
    changed = dict(table)
    for name, value in settings.items():
        place, dot, key = name.partition(".")
        inside = changed.get(place, {})
        inside = inside if isinstance(inside, dict) else {}
        changed[place] = _with(inside, {key: value}) if dot else value
    return changed


def refusals(
    project: LoadedProject,
    chosen: Sequence[Pipeline | Worker],
    sinks: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Yields why declarations can't be drilled, as sentences that name them."""
    written = _written(chosen)
    for declared in chosen:
        if isinstance(declared, Worker):
            if declared.site:
                yield (
                    f"worker {declared.name!r} reads at site {declared.site!r}; a drill has no "
                    "cluster of another site"
                )
            for topic in declared.topics:
                if topic.name in written:
                    yield (
                        f"worker {declared.name!r} reads topic {topic.name!r}, which a pipeline of "
                        "the drill writes, and a drill follows events that it sends itself: name "
                        "one of them, `headrace drill NAME`"
                    )
        else:
            yield from _of_pipeline(declared, sinks)
    for topic in topics_read(chosen):
        if reason := _unsuitable(topic):
            yield f"topic {topic.name!r}: {reason}"
    if not chosen:
        others = ", ".join(sorted({kind.label for kind, _ in project.by_kind}))
        yield f"no worker or pipeline is declared, only: {others}"


def _of_pipeline(pipeline: Pipeline, sinks: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    if pipeline.join is not None:
        yield (
            f"pipeline {pipeline.name!r} has a Join, whose events must fit together; those of a "
            "sample would not"
        )
    for sink in pipeline.sinks:
        if isinstance(sink, Kafka) or (isinstance(sink, Lake) and isinstance(sink.format, Delta)):
            continue
        needed = _addresses(sink)
        missing = [key for key in needed if key not in sinks.get(sink.kind, {})]
        if missing or not needed:
            remedy = "".join(f"; --sink {sink.kind}.{key}=... says where" for key in missing)
            yield (
                f"pipeline {pipeline.name!r} writes to {sink.label}, which a drill does not "
                f"have{remedy}"
            )


def _addresses(sink: Sink) -> tuple[str, ...]:
    """Returns the settings that say where a sink writes; none: it is not known."""
    if not isinstance(sink, Postgres | Stats):
        return sink.needed_settings
    servers = sink.server.names if isinstance(sink.server, ByServer) else (sink.server,)
    return tuple(map(url_key, servers))


def _unsuitable(topic: Topic) -> str:
    if topic.event is None or topic.envelope is not None:
        return "its records hold no single event, so an event can't be followed"
    if not isinstance(topic.record_format, Json):
        return f"a drill makes events in JSON, not in {type(topic.record_format).__name__}"
    if id_field(topic) is None:
        return (
            "an event is followed by its id, and neither `event_id` nor `key` of the topic is a "
            "field of any text"
        )
    return ""


def topics_read(chosen: Sequence[Pipeline | Worker]) -> list[Topic]:
    """Returns the topics that events are sent to: all that are read, without those written."""
    written = _written(chosen)
    read = (
        topic
        for declared in chosen
        for topic in (
            declared.topics
            if isinstance(declared, Worker)
            else [source.topic for source in declared.sources]
        )
    )
    return list({topic.name: topic for topic in read if topic.name not in written}.values())


def _written(chosen: Sequence[Pipeline | Worker]) -> set[str]:
    """Returns the topics that pipelines write."""
    return {
        topic.name
        for declared in chosen
        if isinstance(declared, Pipeline)
        for sink in declared.sinks
        for topic in sink.topics
    }


def topics_looked_up(declared: Pipeline | Worker) -> list[Topic]:
    """Returns the topics in which values are looked up."""
    if isinstance(declared, Worker):
        return [*declared.references.values()]
    return [*declared.references]


def require_drillable(
    project: LoadedProject,
    chosen: Sequence[Pipeline | Worker],
    sinks: Mapping[str, Mapping[str, str]],
) -> None:
    """Checks that what is chosen can be drilled, before anything is started.

    Raises:
        DrillError: if it can't: all reasons.
    """
    if reasons := list(dict.fromkeys(refusals(project, chosen, sinks))):
        raise DrillError("; ".join(reasons))


def _toml(document: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for name, table in document.items():
        lines.append(f"[{_text(name)}]")
        lines += [f"{_text(key)} = {_value(value)}" for key, value in table.items()]
    return "\n".join([*lines, ""])


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            members = (f"{_text(str(key))} = {_value(member)}" for key, member in value.items())
            return f"{{ {', '.join(members)} }}"
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    """Returns a basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
