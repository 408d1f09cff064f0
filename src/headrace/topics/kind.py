"""Topics, as a kind of declarations."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model import Topic
from headrace.model.fault import Fault, is_a
from headrace.project.kind import Kind
from headrace.settings import Settings
from headrace.topics.durability import topic_contradictions, topic_warnings
from headrace.topics.rules import name_faults, topic_faults
from headrace.topics.use_rules import topic_use_faults


def _faults(topic: Topic, settings: Settings) -> Iterable[Fault]:
    # Values are compared with each other only where each is what it must be.
    return list(topic_faults(topic, settings)) or topic_contradictions(topic)


KIND = Kind(
    type=Topic,
    label="topic",
    plural="topics",
    hint="`headrace tail` shows its records",
    type_faults=lambda topic: () if is_a(topic.name, str) else name_faults(topic.name),
    faults=_faults,
    faults_between=lambda declarations, _: topic_use_faults(declarations),
    warnings=topic_warnings,
)
