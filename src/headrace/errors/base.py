"""The root of every error, errors made of facts, and refused starts."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar


class HeadraceError(Exception):
    """Something went wrong in headrace."""

    exit_code: ClassVar[int] = 1

    @property
    def remedy(self) -> str:
        """What the user can do about it; empty when the message says it."""
        return ""


class FactsError(HeadraceError):
    """An error whose message is its docstring and its fields."""

    def __str__(self) -> str:
        facts = ", ".join(
            f"{fact.name.replace('_', ' ')} {getattr(self, fact.name)!r}"
            for fact in fields(self)  # type: ignore[arg-type]
            if fact.repr and getattr(self, fact.name) != ""
        )
        headline = (self.__doc__ or "").splitlines()[0].rstrip(".")
        text = f"{headline}: {facts}" if facts else headline
        return f"{text}. {self.remedy}" if self.remedy else text


class RefusedError(FactsError):
    """Starting would lose or repeat data."""

    exit_code = 3
    code: ClassVar[str] = "REFUSED"
