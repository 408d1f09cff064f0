"""A project whose modules are imported and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.errors import Problem
from headrace.model import Topic
from headrace.model.declared import DeclaredValue
from headrace.project.kind import Kind, Value
from headrace.project.kinds import kinds
from headrace.settings import Settings


@dataclass(frozen=True)
class LoadedProject:
    """What is declared, in the order of the modules.

    Attributes:
        settings: the deployment.
        values: what is declared, of any kind.
        warnings: declarations that are valid and do not do what is expected of them, and what the
            HTTP service lacks.
    """

    settings: Settings
    values: Sequence[DeclaredValue] = ()
    warnings: tuple[Problem, ...] = ()

    def declared(self, type_: type[Value]) -> Mapping[str, Value]:
        """Returns the declarations of a type by name."""
        return {value.name: value for value in self.values if isinstance(value, type_)}

    @cached_property
    def topics(self) -> Mapping[str, Topic]:
        """The declared topics by name."""
        return self.declared(Topic)

    @cached_property
    def by_kind(self) -> Sequence[tuple[Kind[Any], Any]]:
        """What is declared, each with its kind and in the order of the kinds."""
        declared = ((kind, self.declared(kind.type).values()) for kind in kinds())
        return tuple((kind, value) for kind, values in declared for value in values)

    @property
    def dead_lettered(self) -> dict[str, Topic]:
        """Topics whose records may become dead letters, by name."""
        return {
            topic.name: topic for kind, value in self.by_kind for topic in kind.dead_lettered(value)
        }

    @property
    def kept(self) -> dict[str, Topic]:
        """Topics that `apply` makes beside those that are declared, by name."""
        return {topic.name: topic for kind, value in self.by_kind for topic in kind.keeps(value)}

    def writers(self, topic: str) -> list[tuple[Kind[Any], Any]]:
        """Returns what writes a topic, each with its kind."""
        return [
            (kind, value)
            for kind, value in self.by_kind
            if topic in (written.name for _, written in kind.writes(value))
        ]
