"""The HTTP service, its tokens and its spool; offline files."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError


@dataclass(eq=False)
class IngestFailedError(FactsError):
    """The workers of ingest can't start."""

    failed_starts: int
    reason: str


@dataclass(eq=False)
class IngestStateError(FactsError):
    """A file that the workers of ingest share can't be made."""

    file: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Give its disk room, or the service's user the right to write there."


@dataclass(eq=False)
class SpoolError(FactsError):
    """The spool's disk failed."""

    folder: str
    reason: str


@dataclass(eq=False)
class SpoolFullError(SpoolError):
    """The spool's disk budget is used up."""

    @property
    def remedy(self) -> str:
        return "It empties itself once Kafka is back; give it a larger budget for longer outages."


@dataclass(eq=False)
class TokenUnknownError(FactsError):
    """No access token that can be used."""

    public_id: str
    reason: str

    @property
    def remedy(self) -> str:
        return "`headrace tokens list` shows the ids."


@dataclass(eq=False)
class TokenInvalidError(FactsError):
    """The access token can't be made."""

    exit_code = 2

    field: str
    value: str
    reason: str


@dataclass(eq=False)
class TokenNotTakenError(FactsError):
    """The token was created, and the service does not accept it yet."""

    address: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Worker processes that reach Kafka accept it within five seconds."


@dataclass(eq=False)
class OfflineFilesError(FactsError):
    """Offline files can't be loaded."""

    source: str
    reason: str
