"""The folder of a pipeline's ledger in the lake: a file for each entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.errors import SinkError
from headrace.pipelines.ledger.entry import LedgerEntry, Span, merged, span_of
from headrace.runtime import storage
from headrace.runtime.storage import NO_OPTIONS, Options

_ATTEMPTS = 5


class LedgerFolder:
    """Reads and writes the entries of one pipeline below ``_headrace/ledger`` of the lake."""

    def __init__(self, lake: str, pipeline: str, options: Options = NO_OPTIONS) -> None:
        """Neither opens nor makes the folder.

        Args:
            lake: root URI of the lake.
            pipeline: its name.
            options: of the lake's storage.
        """
        self.uri = storage.join(lake, "_headrace", "ledger", pipeline)
        self._options = options

    def spans(self) -> list[Span]:
        """Returns the spans of all entries, without those that were merged into others."""
        names = storage.list_files(self.uri, self._options)
        spans = [span for span in map(span_of, names) if span is not None]
        merges = [span for span in spans if span.level]
        return sorted(span for span in spans if not any(merge.replaces(span) for merge in merges))

    def write(self, entry: LedgerEntry) -> None:
        """Writes an entry, or replaces it, atomically; it is durable when this returns."""
        uri = storage.join(self.uri, entry.span.name)
        storage.write_bytes_atomic(uri, entry.to_bytes(), self._options)

    def read(self, span: Span) -> LedgerEntry:
        """Reads one entry.

        Raises:
            FileNotFoundError: if it was merged into another one meanwhile.
            SinkError: if the file is none of an entry.
        """
        uri = storage.join(self.uri, span.name)
        content = storage.read_bytes(uri, self._options)
        try:
            return LedgerEntry.from_bytes(content)
        except ValueError as error:  # msgspec's errors are
            raise SinkError(uri, f"this entry of the ledger can't be read: {error}") from error

    def counted(self, done: Mapping[int, int]) -> list[LedgerEntry]:
        """Returns the entries that count.

        Args:
            done: by number of a checkpoint, the last batch of it that the sink holds.

        Raises:
            SinkError: if the entries can't be read.
        """
        for _ in range(_ATTEMPTS):
            spans = [span for span in self.spans() if span.last <= done.get(span.checkpoint, -1)]
            try:
                return [self.read(span) for span in spans]
            except FileNotFoundError:
                continue  # a driver has merged entries since they were listed
        raise SinkError(self.uri, "the entries of the ledger change faster than they are read")

    def merge(self, spans: Iterable[Span]) -> Span:
        """Merges entries of one checkpoint into an entry of the next level.

        The new entry is durable before the others are deleted. A crash in between leaves both, and
        readers pass over those that the new one replaces.
        """
        parts = sorted(spans)
        total = merged(self.read(span) for span in parts)
        level = max(span.level for span in parts) + 1
        entry = replace(total, level=level)
        self.write(entry)
        storage.delete_files(self.uri, [span.name for span in parts], self._options)
        return entry.span
