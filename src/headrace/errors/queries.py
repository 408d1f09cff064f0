"""A standing query cannot be registered."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError


@dataclass(eq=False)
class QueryTextError(FactsError):
    """The query is not valid.

    ``line`` and ``column`` are those of its text, from 1 on.
    """

    exit_code = 2
    line: int
    column: int
    reason: str
