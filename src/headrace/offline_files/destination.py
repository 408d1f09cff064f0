"""Where lines go: one interface, topics and tables behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.errors import SinkError
from headrace.offline_files.entry import Entry, RejectedEntry
from headrace.offline_files.progress import LoadProgress


class UnknownCommitStateError(Exception):
    """It is not known whether the batch was written; reopening the destination settles it.

    Attributes:
        reason: what happened, for people.
        rejected: what ``write`` would have returned.
    """

    def __init__(self, reason: str, rejected: Sequence[RejectedEntry] = ()) -> None:
        self.reason, self.rejected = reason, rejected
        super().__init__(reason)


class Destination(Protocol):
    """Called by one loader, on one thread: ``open``, ``write`` many times, ``close``.

    After :class:`UnknownCommitStateError`, ``open`` is called for each retry. A crash anywhere
    leaves whole batches and nothing of others.

    Attributes:
        name: for messages.
    """

    name: str

    def open(self) -> LoadProgress:
        """Connects, ends what an earlier loader left open, and excludes other loaders.

        Returns what is done, with every batch that was ever written.

        Raises:
            UnknownCommitStateError: if it may work later.
            HeadraceError: if it will not.
        """

    def write(
        self, batch: Sequence[Entry | RejectedEntry], progress: LoadProgress
    ) -> list[RejectedEntry]:
        """Writes the batch, its dead letters and ``progress``, which counts it: all or nothing.

        Returns every rejected line: those of the batch, and those that the destination rejects.

        Raises:
            UnknownCommitStateError: if all of it may be written, or nothing.
            LoaderRunningError: if another loader of the source has taken over.
            HeadraceError: if nothing of it was written, and a retry would fail too.
        """

    def close(self) -> None:
        """Releases what ``open`` took; what was not written is abandoned."""


UNKNOWN_TABLE = "unknown-table"


def require_known_table(
    name: str, batch: Sequence[Entry | RejectedEntry], rejected: Sequence[RejectedEntry]
) -> None:
    """Checks a source's first batch: without any destination, all lines would be dead letters.

    Raises:
        SinkError: if no line of the batch has one.
    """
    readable = sum(isinstance(line, Entry) for line in batch)
    unknown = [line for line in rejected if line.reason == UNKNOWN_TABLE]
    if unknown and len(unknown) == readable:
        reason = f"{unknown[0].detail}, and no other line has a destination either (--into)"
        raise SinkError(name, reason)
