"""The folder of a pipeline's ledger in the lake: a file for each entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from headrace.errors import SinkError
from headrace.pipelines.ledger.entry import (
    LedgerEntry,
    Span,
    merged,
    parts_from_bytes,
    parts_to_bytes,
    span_of,
)
from headrace.storage import files as storage
from headrace.storage.files import NO_OPTIONS, Options

# A driver merges once in 64 batches, so that one repeat is rare, and several are a defect.
_ATTEMPTS = 5
_Content = TypeVar("_Content")


def read_entry(uri: str, decoded: Callable[[bytes], _Content], options: Options) -> _Content:
    """Reads a file of the ledger.

    Raises:
        FileNotFoundError: if there is none.
        SinkError: if the file is none of an entry.
    """
    content = storage.read_bytes(uri, options)
    try:
        return decoded(content)
    except ValueError as error:  # msgspec's errors are
        raise SinkError(uri, f"this entry of the ledger can't be read: {error}") from error


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
        spans = self._all_spans()
        merges = [span for span in spans if span.level]
        return sorted(span for span in spans if not any(merge.replaces(span) for merge in merges))

    def write(self, entry: LedgerEntry) -> None:
        """Writes an entry, or replaces it, atomically; it is durable when this returns."""
        storage.write_bytes_atomic(self._at(entry.span.name), entry.to_bytes(), self._options)

    def read(self, span: Span) -> LedgerEntry:
        """Reads one entry.

        Raises:
            FileNotFoundError: if it was merged into another one meanwhile.
            SinkError: if the file is none of an entry.
        """
        return read_entry(self._at(span.name), LedgerEntry.from_bytes, self._options)

    def counted(self, done: Mapping[int, int]) -> list[LedgerEntry]:
        """Returns the entries that count: those of batches that the sink holds.

        One that was merged from entries of batches before and after the last one is divided. Those
        that it was merged from are kept until it is merged itself; in an older one, up to
        ``MERGED_AT_ONCE - 1`` batches before the last one can't be separated from those after it,
        and are left out.

        Args:
            done: by number of a checkpoint, the last batch of it that the sink holds.

        Raises:
            SinkError: if the entries can't be read.
        """
        for _ in range(_ATTEMPTS):
            spans = [span for span in self.spans() if span.first <= done.get(span.checkpoint, -1)]
            try:
                return [
                    entry for span in spans for entry in self._up_to(span, done[span.checkpoint])
                ]
            except FileNotFoundError:
                continue  # a driver has merged entries since they were listed
        raise SinkError(self.uri, "the entries of the ledger change faster than they are read")

    def merge(self, spans: Iterable[Span]) -> Span:
        """Merges entries of one checkpoint into an entry of the next level.

        The new entry is durable before the others are deleted. A crash in between leaves both, and
        readers skip those that the new one replaces. It can be divided into the others again,
        though not further.
        """
        parts = [self.read(span) for span in sorted(spans)]
        entry = replace(merged(parts), level=max(part.level for part in parts) + 1)
        parts_uri = self._at(entry.span.parts_name)
        storage.write_bytes_atomic(parts_uri, parts_to_bytes(parts), self._options)
        self.write(entry)
        self._delete(part.span for part in parts)
        return entry.span

    def cut(self, checkpoint: int, batch_id: int) -> None:
        """Forgets what was written of the batches after one that is about to be committed.

        They are of a history that was ended by putting an older copy of the sink in place.
        """
        # The batch replaces an entry of its own, but none that was merged from others, too.
        ended = [
            span
            for span in self._all_spans()
            if span.checkpoint == checkpoint
            and (span.last > batch_id or (span.last == batch_id and span.level))
        ]
        for span in ended:
            # What was merged of batches before the cut still counts, as entries of their own.
            for part in self._parts(span) if span.first <= batch_id and span.level else ():
                if part.last < batch_id or part.first == batch_id == part.last:
                    self.write(part)
        self._delete(ended)

    def _all_spans(self) -> list[Span]:
        names = storage.list_files(self.uri, self._options)
        return [span for span in map(span_of, names) if span is not None]

    def _up_to(self, span: Span, batch_id: int) -> list[LedgerEntry]:
        if span.last <= batch_id:
            return [self.read(span)]
        return [part for part in self._parts(span) if part.last <= batch_id]

    def _parts(self, span: Span) -> tuple[LedgerEntry, ...]:
        """Returns what an entry was merged from, or nothing if that is not kept.

        Raises:
            FileNotFoundError: if the entry was merged into another one meanwhile.
        """
        try:
            return read_entry(self._at(span.parts_name), parts_from_bytes, self._options)
        except FileNotFoundError:
            if span not in self._all_spans():
                raise
            return ()

    def _delete(self, spans: Iterable[Span]) -> None:
        # The parts last: a crash in between must not leave an entry that can't be divided.
        deleted = list(spans)
        storage.delete_files(self.uri, [span.name for span in deleted], self._options)
        parts = [span.parts_name for span in deleted if span.level]
        storage.delete_files(self.uri, parts, self._options)

    def _at(self, name: str) -> str:
        return storage.join(self.uri, name)
