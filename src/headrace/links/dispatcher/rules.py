"""What must hold for a declared dispatcher before anything starts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

from headrace.links.dispatcher.declaration import Dispatcher, DispatchMode, Home
from headrace.model import Registered, Topic
from headrace.model.fault import Fault, duration, is_a
from headrace.project.kind import Declaration, DeclarationFault, Declarations, declared
from headrace.settings import Settings
from headrace.topics.envelope_rules import no_envelope
from headrace.topics.rules import name_faults, schema_of

MIN_COMMIT_EVERY = timedelta(seconds=5)
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_TARGETS = "names of sites, each with the name of its topic"
_RELATED = "names of sites, each with a list of the targets that want what came in there"
_SITES = "names of sites by values of the field"


def dispatcher_faults(dispatcher: Dispatcher, settings: Settings) -> Iterator[Fault]:
    """Yields what is wrong with one dispatcher by itself."""
    yield from _target_faults(dispatcher, settings)
    yield from _home_faults(dispatcher, settings)
    yield from _related_faults(dispatcher, settings)
    yield from _interval_faults(dispatcher)


def dispatched_twice(declarations: Declarations) -> Iterator[DeclarationFault]:
    """Yields dispatchers whose records another one sends to the same topic.

    A dispatcher continues after the last record of its source at the target, which must be its own.
    """
    first: dict[tuple[str, str, str], Declaration[Dispatcher]] = {}
    for declaration in declared(declarations, Dispatcher):
        dispatcher = declaration.value
        for site, topic in dispatcher.targets.items():
            earlier = first.setdefault((dispatcher.source.name, site, topic), declaration)
            if earlier is not declaration:
                message = (
                    f"{_label(dispatcher)} sends {dispatcher.source.name!r} to {topic!r} "
                    f"at {site!r}, as {earlier.value.name!r} does"
                )
                yield declaration, Fault(message, f"see {earlier.place}")


def dispatcher_type_faults(dispatcher: Dispatcher) -> Iterator[Fault]:
    """Yields which parts of a dispatcher are not what the model says."""
    label = _label(dispatcher)
    if not is_a(dispatcher.name, str):
        yield Fault(f"dispatcher {dispatcher.name!r}: name is {dispatcher.name!r}", "text")
    source: Any = dispatcher.source
    if not isinstance(source, Topic) or not is_a(source.name, str):
        yield Fault(f"{label}: source is {source!r}", "a declared Topic")
    if not _is_texts(dispatcher.targets):
        yield Fault(f"{label}: targets is {dispatcher.targets!r}", _TARGETS)
    related: Any = dispatcher.related
    if not isinstance(related, Mapping) or not all(map(_is_listed, related.values())):
        yield Fault(f"{label}: related is {related!r}", _RELATED)
    home: Any = dispatcher.home
    if home is not None and not isinstance(home, Home):
        yield Fault(f"{label}: home is {home!r}", "a Home, or None")
    elif home is not None and not (is_a(home.field, str) and _is_texts(home.sites)):
        yield Fault(f"{label}: home is {home!r}", f"the name of a field, and {_SITES}")
    if not is_a(dispatcher.mode, DispatchMode):
        known = ", ".join(f"DispatchMode.{mode.name}" for mode in DispatchMode)
        yield Fault(f"{label}: mode is {dispatcher.mode!r}", known)


def _is_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(part, str) for pair in value.items() for part in pair
    )


def _is_listed(value: object) -> bool:
    return (
        isinstance(value, Collection)
        and not isinstance(value, str)
        and all(isinstance(site, str) for site in value)
    )


def _target_faults(dispatcher: Dispatcher, settings: Settings) -> Iterator[Fault]:
    label = _label(dispatcher)
    if not dispatcher.targets:
        yield Fault(f"{label} has no targets", _TARGETS)
    for site, topic in dispatcher.targets.items():
        if site == settings.site:
            yield Fault(
                f"{label}: target {site!r} is the project's own site",
                "name other sites: records that are used here can be read from the source",
            )
        else:
            yield from _unknown_site(label, "targets", site, settings)
        for fault in name_faults(topic):
            yield Fault(f"{label}: {fault.message}", fault.remedy)
    if dispatcher.source.is_compacted:
        yield Fault(
            f"{label}: source {dispatcher.source.name!r} is compacted",
            "a record may be deleted before it is dispatched; mirror the topic instead",
        )


def _home_faults(dispatcher: Dispatcher, settings: Settings) -> Iterator[Fault]:
    home, label = dispatcher.home, _label(dispatcher)
    if home is None:
        return
    if not _PATH.fullmatch(home.field):
        yield Fault(
            f"{label}: home.field is {home.field!r}",
            "the name of a field, or a path such as 'user.country', of letters, digits and _",
        )
    if is_a(dispatcher.source.record_format, Registered):
        yield Fault(
            f"{label}: home is a field of JSON events, and {dispatcher.source.name!r} has "
            f"{dispatcher.source.record_format!r}",
            "route by related, or dispatch a JSON topic",
        )
    yield from no_envelope(dispatcher.source, f"{label}: home is a field of single events of")
    for site in dict.fromkeys(home.sites.values()):
        yield from _unknown_site(label, "home.sites", site, settings)
    if is_a(dispatcher.source.event, type):
        yield from _home_field_faults(dispatcher, home)


def _home_field_faults(dispatcher: Dispatcher, home: Home) -> Iterator[Fault]:
    """Yields a fault for a field that no event has: all records would go to all targets."""
    schema = schema_of(dispatcher.source)
    if schema is None:
        return  # the rules of topics say why
    for name in home.field.split("."):
        fields = {field.name: field for field in schema.fields} if schema else {}
        if name not in fields:
            reason = f"home.field is {home.field!r}, and events of {dispatcher.source.name!r}"
            yield Fault(f"{_label(dispatcher)}: {reason} have no such field", ", ".join(fields))
            return
        schema = fields[name].schema


def _related_faults(dispatcher: Dispatcher, settings: Settings) -> Iterator[Fault]:
    label = _label(dispatcher)
    for site, wanted_at in dispatcher.related.items():
        yield from _unknown_site(label, "related", site, settings)
        for target in wanted_at:
            if target not in dispatcher.targets:
                known = ", ".join(dispatcher.targets)
                yield Fault(f"{label}: related has {target!r}, which is no target", known)


def _unknown_site(label: str, attribute: str, site: str, settings: Settings) -> Iterator[Fault]:
    if site != settings.site and site not in settings.sites:
        known = ", ".join((settings.site, *settings.sites))
        yield Fault(
            f"{label}: {attribute} has {site!r}, which is no site; declared: {known}",
            f"add [sites.{site}.kafka] to headrace.toml",
        )


def _interval_faults(dispatcher: Dispatcher) -> Iterator[Fault]:
    wrong = list(duration(dispatcher, "commit_every", timedelta.resolution))
    yield from wrong
    if not wrong and dispatcher.commit_every < MIN_COMMIT_EVERY:
        yield Fault(
            f"{_label(dispatcher)}: commit_every is {dispatcher.commit_every}",
            f"at least {MIN_COMMIT_EVERY}: Spark's real-time mode has no shorter interval",
        )


def _label(dispatcher: Dispatcher) -> str:
    return f"dispatcher {dispatcher.name!r}"
