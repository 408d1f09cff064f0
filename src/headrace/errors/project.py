"""What a user wrote does not fit: the project, a name, an event, a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Never

from headrace.errors.base import FactsError, HeadraceError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a project file: where, what, and its remedy."""

    file: str
    line: int
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.message}"
        return f"{text} ({self.remedy})" if self.remedy else text


class ProjectError(HeadraceError):
    """The project is not valid."""

    # What the user wrote is wrong: nothing was started, and trying again changes nothing.
    exit_code = 2

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


@dataclass(eq=False)
class NotDeclaredError(FactsError):
    """The project declares no such thing."""

    exit_code = 2
    kind: str
    name: str
    declared: str


@dataclass(eq=False)
class UnknownFormatError(FactsError):
    """The topic's format is none that headrace can read.

    Raised where a choice among all formats ends. There, no format is left for mypy, so it reports
    a choice that leaves one out: an argument of type ``Never`` can't be it.
    """

    exit_code = 2
    format: Never

    @property
    def remedy(self) -> str:
        return "Json(), Avro(), JsonSchema(), Protobuf() and Raw() are the formats of topics."


@dataclass(eq=False)
class EventRejectedError(FactsError):
    """The event does not fit its topic.

    ``reason`` is a stable code such as ``wrong-type``; ``detail`` names the field, what it holds
    and what was expected.
    """

    exit_code = 2
    topic: str
    reason: str
    detail: str

    @property
    def remedy(self) -> str:
        return "It was not sent: correct it, or the event class of the topic."


@dataclass(eq=False)
class AccountMissingError(FactsError):
    """The topic places events by their account, and none is named."""

    exit_code = 2
    topic: str

    @property
    def remedy(self) -> str:
        return "Name it: `headrace produce --account NAME`, `Project.producer(account=...)`."


@dataclass(eq=False)
class LinkTargetError(FactsError):
    """The topic takes the records of a link, and no others."""

    exit_code = 2
    code = "TransferTargetError"
    topic: str
    written_by: str

    @property
    def remedy(self) -> str:
        return "Send events at the site that they come from, to the topic that is read there."


@dataclass(eq=False)
class EnvelopeTopicError(FactsError):
    """The records of the topic are envelopes of many events, and a single event is none."""

    exit_code = 2
    topic: str

    @property
    def remedy(self) -> str:
        return "`headrace produce --unchecked` sends each line as it is, as an envelope."


@dataclass(eq=False)
class RecordKeyMissingError(FactsError):
    """The topic is compacted by keys of records, and its events hold none."""

    exit_code = 2
    topic: str

    @property
    def remedy(self) -> str:
        return (
            "Send records with their keys by a Kafka client, or declare a field as the topic's key."
        )


@dataclass(eq=False)
class SampleError(FactsError):
    """There are no events to measure with."""

    exit_code = 2
    sample: str
    reason: str

    @property
    def remedy(self) -> str:
        return "--sample FILE.ndjson gives events, one JSON document a line."


@dataclass(eq=False)
class MeasurementError(FactsError):
    """A declaration can't be measured."""

    exit_code = 2
    name: str
    reason: str


@dataclass(eq=False)
class DrillError(FactsError):
    """Something can't be drilled."""

    exit_code = 2
    reason: str
