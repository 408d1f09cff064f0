"""Views that several commands share: paused partitions, and stopping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rich.markup import escape

from headrace.cli.screen import Screen
from headrace.cli.view import view


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
def _paused(paused: PausedPartitions, screen: Screen) -> None:
    names = ", ".join(paused.partitions) or "none"
    screen.out.print(f"{escape(paused.name)}, paused partitions: {escape(names)}", highlight=False)


@view.register
def _stopping(_stopping: Stopping, screen: Screen) -> None:
    screen.err.print(
        "Stopping after in-flight work completes. Press Ctrl-C again to stop immediately."
    )
