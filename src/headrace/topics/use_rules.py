"""What must hold between topics, and between them and what reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.model import Topic
from headrace.model.fault import Fault
from headrace.project.kind import Declaration, DeclarationFault, Declarations, declared


def topic_use_faults(declarations: Declarations) -> Iterator[DeclarationFault]:
    """Yields what is wrong with topics of a project as its declarations use them."""
    topics = list(declared(declarations, Topic))
    yield from _compacted_without_key(topics, declarations)
    yield from _colliding_topics(topics)
    yield from _undeclared_topics(topics, declarations)
    yield from _dead_letter_topics(topics, declarations)


def _compacted_without_key(
    topics: list[Declaration[Topic]], declarations: Declarations
) -> Iterator[DeclarationFault]:
    """A lookup by record key needs no field that holds the key."""
    references = {topic.name for user in declarations for topic in user.kind.looks_up(user.value)}
    for declaration in topics:
        topic = declaration.value
        if topic.event is not None and topic.is_keyed_elsewhere and topic.name not in references:
            message = f"{declaration}: compaction without a key"
            yield declaration, Fault(message, "name a field as key; a reference needs none")


def _colliding_topics(topics: list[Declaration[Topic]]) -> Iterator[DeclarationFault]:
    first: dict[str, Declaration[Topic]] = {}
    for declaration in topics:
        name = declaration.value.name
        # Kafka names a topic's metrics so, and creates no topic that collides there.
        earlier = first.setdefault(name.replace(".", "_"), declaration)
        if earlier.value.name != name:
            message = f"{declaration} collides with {earlier.value.name!r}"
            yield declaration, Fault(message, "Kafka takes '.' and '_' for the same in names")


def _undeclared_topics(
    topics: list[Declaration[Topic]], declarations: Declarations
) -> Iterator[DeclarationFault]:
    known = {topic.value.name: topic.value for topic in topics}
    for declaration in declarations:
        for does, topic in _used(declaration):
            if topic.name not in known:
                message = f"{declaration} {does} {topic.name!r}, which no module declares"
                yield declaration, Fault(message, "assign the Topic to a name in a module")
            elif known[topic.name] != topic:
                message = f"{declaration} {does} another {topic.name!r} than is declared"
                yield declaration, Fault(message, "use the one declared Topic")


def _used(declaration: Declaration[Any]) -> Iterator[tuple[str, Topic]]:
    kind, value = declaration.kind, declaration.value
    yield from (("reads", topic) for topic in kind.reads(value))
    yield from (("looks values up in", topic) for topic in kind.looks_up(value))
    yield from kind.writes(value)


def _dead_letter_topics(
    topics: list[Declaration[Topic]], declarations: Declarations
) -> Iterator[DeclarationFault]:
    origins = {
        topic.dead_letters: topic.name
        for reader in declarations
        for topic in reader.kind.dead_lettered(reader.value)
    }
    for declaration in topics:
        origin = origins.get(declaration.value.name)
        if origin is not None and declaration.value.event is not None:
            message = f"{declaration} takes the dead letters of {origin!r}: raw bytes"
            yield declaration, Fault(message, "leave its event out, or the whole declaration")
