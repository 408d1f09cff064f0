"""The interface that shows what commands return; console and JSON implement it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.screen import Screen

Observer = TypeVar("Observer")
PrintLine = Callable[[object], None]
"""Prints a value as one line of JSON."""


@dataclass(frozen=True)
class Live(Generic[Observer]):
    """Shows the progress of a command while it runs; each way is a context of an observer.

    Attributes:
        on_screen: for people.
        in_json: for programs; takes a function that prints a value as a line.
    """

    on_screen: Callable[[Screen], AbstractContextManager[Observer]]
    in_json: Callable[[PrintLine], AbstractContextManager[Observer]]


class Output(Protocol):
    """Commands never format: they return frozen values, which are shown here."""

    def show(self, result: object) -> None:
        """Shows what a command returned, or one of the values that it shows while it runs."""

    def live(self, progress: Live[Observer]) -> AbstractContextManager[Observer]:
        """Shows progress for as long as the context lasts."""

    def warn(self, text: str) -> None:
        """Shows a warning on stderr, beside the result."""

    def failed(self, error: HeadraceError) -> None:
        """Shows a known error, with its remedy."""

    def crashed(self, error: BaseException, log: Path) -> None:
        """Shows an unexpected error; the traceback is in ``log``."""
