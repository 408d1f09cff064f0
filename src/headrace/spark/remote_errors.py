"""Errors of ours in processes of Spark's, which passes on nothing but their text.

The planner and the tasks run in processes of Spark's. What they raise goes out as a
:class:`RemoteError`, whose text ends with a line of JSON; the driver recreates the error from it,
of its class and with its facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

from headrace import errors
from headrace.errors import HeadraceError

_MARK = "HEADRACE_ERROR "


class RemoteError(Exception):
    """An error whose text is that of ``error``, and from which ``error`` can be recreated."""

    def __init__(self, error: HeadraceError) -> None:
        super().__init__(f"{error}\n{_MARK}{_encoded(error)}")


@contextmanager
def raising_remote_errors() -> Iterator[None]:
    """Raises errors of ours as :class:`RemoteError`; for the outermost call of a process.

    Raises:
        RemoteError: if an error of ours was raised.
    """
    try:
        yield
    except HeadraceError as error:
        raise RemoteError(error) from error


def original_error(text: str) -> HeadraceError | None:
    """Returns the last error of ours in a text of Spark's; None if there is none."""
    _, mark, rest = text.rpartition(_MARK)
    if not mark:
        return None
    encoded, _ = json.JSONDecoder().raw_decode(rest)
    kind: type[HeadraceError] | None = getattr(errors, encoded["error"], None)
    return kind(**encoded["facts"]) if kind else HeadraceError(encoded["message"])


def _encoded(error: HeadraceError) -> str:
    facts: dict[str, object] = {}
    name = type(error).__name__ if is_dataclass(type(error)) else ""
    if name:
        facts = {fact.name: getattr(error, fact.name) for fact in fields(error)}  # type: ignore[arg-type]
    return json.dumps({"error": name, "facts": facts, "message": str(error)})
