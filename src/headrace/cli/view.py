"""Shows what commands return to people: a module for each module of commands.

A view prints a value on a :class:`~headrace.cli.screen.Screen`; it is registered for the value's
type. Programs get the same value as JSON, without a view. Here are the views of `version` and of
values that several commands show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Literal

from rich.markup import escape

from headrace.cli.screen import Screen


@singledispatch
def view(result: object, screen: Screen) -> None:  # noqa: ARG001 - of the implementations
    """Prints what a command returned.

    Raises:
        TypeError: if no view is registered for the type.
    """
    raise TypeError(f"there is no view of {type(result).__name__}")


@dataclass(frozen=True)
class Versions:
    """Versions by name."""

    versions: Mapping[str, str]

    def to_json(self) -> Mapping[str, str]:
        """Returns them by name."""
        return self.versions


@dataclass(frozen=True)
class PausedPartitions:
    """The paused partitions of a pipeline or a worker."""

    kind: Literal["pipeline", "worker"]
    name: str
    partitions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the partitions beside the name, under its kind."""
        return {self.kind: self.name, "paused_partitions": self.partitions}


@dataclass(frozen=True)
class Stopping:
    """The command received a signal to stop; ``worker`` is the worker that it runs."""

    worker: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns an event, with the state of the worker where there is one."""
        worker = {"worker": {"worker": self.worker, "state": "draining"}} if self.worker else {}
        return {"event": "stopping"} | worker


@view.register
def _versions(result: Versions, screen: Screen) -> None:
    for name, version in result.versions.items():
        screen.out.print(f"{name} {version}", highlight=False)


@view.register
def _paused(paused: PausedPartitions, screen: Screen) -> None:
    names = ", ".join(paused.partitions) or "none"
    screen.out.print(f"{escape(paused.name)}, paused partitions: {escape(names)}", highlight=False)


@view.register
def _stopping(_stopping: Stopping, screen: Screen) -> None:
    screen.err.print(
        "Stopping after in-flight work completes. Press Ctrl-C again to stop immediately."
    )
