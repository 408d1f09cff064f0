"""The root of every error, errors made of facts, and refused starts."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar

# Facts that are sentences, by precedence: beside a detail, a reason is a code.
_SENTENCES = ("detail", "problem", "reason")


class HeadraceError(Exception):
    """Something went wrong in headrace."""

    # The exit code of the command: by it, scripts and supervisors decide whether to try again.
    exit_code: ClassVar[int] = 1

    @property
    def remedy(self) -> str:
        """What the user can do about it; empty when the message says it."""
        return ""


# Its subclasses are dataclasses with eq=False: one that compares by value has no hash, and
# exceptions are put into sets and mappings. Their fields are plain values, since errors cross
# Spark's processes as JSON (spark/remote_errors.py).
class FactsError(HeadraceError):
    """An error whose message is its docstring and its fields.

    A field that is a sentence follows the others: ``Records can't be read (partition 'clicks[3]',
    offset 7): the checksum is wrong. <remedy>``
    """

    @property
    def message(self) -> str:
        """What happened, as a sentence: the first line of the docstring."""
        # What follows it explains the fields.
        return (self.__doc__ or "").splitlines()[0]

    def facts(self) -> dict[str, object]:
        """Returns the fields that the message shows, by their names in it."""
        return {
            fact.name.replace("_", " "): getattr(self, fact.name)
            for fact in fields(self)  # type: ignore[arg-type]
            # Without repr: what only the remedy needs. Empty: what the place that raised it did not
            # know.
            if fact.repr and getattr(self, fact.name) != ""
        }

    def __str__(self) -> str:
        facts = self.facts()
        sentence = next((str(facts.pop(name)) for name in _SENTENCES if name in facts), "")
        text = self.message.rstrip(".")
        listed = ", ".join(f"{name} {fact!r}" for name, fact in facts.items())
        if listed:
            text += f" ({listed})" if sentence else f": {listed}"
        if sentence:
            text += f": {sentence.rstrip('.')}"
        if not self.remedy:
            return text
        return f"{text} {self.remedy}" if text.endswith("?") else f"{text}. {self.remedy}"


class RefusedError(FactsError):
    """Starting would lose or repeat data."""

    # Its own: a supervisor should not restart what an operator has to decide.
    exit_code = 3
    code: str = "REFUSED"
    # Another process runs in its place: the status of that one stays.
    runs_elsewhere: ClassVar[bool] = False

    @classmethod
    def codes(cls) -> tuple[str, ...]:
        """Returns the codes that errors of this class have."""
        return (cls.code,)
