"""Shows what commands return to people: a module for each module of commands.

A view prints a value on a :class:`~headrace.cli.screen.Screen`; it is registered for the value's
type. Programs get the same value as JSON, without a view.
"""

from __future__ import annotations

from functools import singledispatch

from headrace.cli.screen import Screen


@singledispatch
def view(result: object, screen: Screen) -> None:  # noqa: ARG001 - of the implementations
    """Prints what a command returned.

    Raises:
        TypeError: if no view is registered for the type.
    """
    raise TypeError(f"there is no view of {type(result).__name__}")
