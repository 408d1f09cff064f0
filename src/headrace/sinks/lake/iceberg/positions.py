"""What an Iceberg table records of pipelines, in its properties and in summaries of snapshots."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Snapshot, ancestors_of

from headrace.errors import SinkError
from headrace.sinks.api import RestoredTarget, Transaction
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_VERSION = "headrace.version."
_LAST = "headrace.snapshot."
_POSITIONS = "headrace.positions"
_METADATA = "headrace.metadata"
MERGED = "headrace.merged-files"
"""In the summary of a snapshot that has the rows of the one before: pyiceberg says overwrite."""
_OFFSETS = "offsets"  # of each partition: as long as the positions, and said by them


@dataclass(frozen=True)
class Mark:
    """A snapshot, by what outlives it: its id and the table's sequence number."""

    snapshot_id: int
    sequence_number: int

    @classmethod
    def head(cls, metadata: TableMetadata) -> Mark | None:
        """Returns the newest snapshot; None: the table has none."""
        head = metadata.current_snapshot()
        return None if head is None else cls(head.snapshot_id, head.sequence_number or 0)

    @classmethod
    def last(cls, metadata: TableMetadata, pipeline: str) -> Mark | None:
        """Returns the last snapshot that a pipeline has made; None: it has made none."""
        text = metadata.properties.get(_LAST + pipeline)
        return None if text is None else cls(*map(int, text.split()))

    @classmethod
    def of_all(cls, metadata: TableMetadata) -> list[Mark]:
        """Returns the last snapshot of each pipeline."""
        names = (name for name in metadata.properties if name.startswith(_LAST))
        marks = (cls.last(metadata, name.removeprefix(_LAST)) for name in names)
        return [mark for mark in marks if mark is not None]

    def is_in(self, metadata: TableMetadata) -> bool:
        """Whether the table still has what it had at the snapshot: no rollback went before it.

        Where the snapshots that would show one have expired, none is assumed.
        """
        head = metadata.current_snapshot()
        for snapshot in ancestors_of(head, metadata):
            if snapshot.snapshot_id == self.snapshot_id:
                return True
            if (snapshot.sequence_number or 0) < self.sequence_number:
                return False
        return head is not None and metadata.snapshot_by_id(self.snapshot_id) is None


def recorded(metadata: TableMetadata, app_ids: Iterable[str]) -> dict[str, int]:
    """Returns what the table records of applications; those it does not know are left out."""
    known = {name: metadata.properties.get(_VERSION + name) for name in app_ids}
    return {name: int(text) for name, text in known.items() if text is not None}


def properties_of(transaction: Transaction, pipeline: str, mark: Mark) -> dict[str, str]:
    """Returns the properties that a commit sets."""
    last = f"{mark.snapshot_id} {mark.sequence_number}"
    return versions_of(transaction) | {_LAST + pipeline: last}


def versions_of(transaction: Transaction) -> dict[str, str]:
    """Returns the properties with the versions of applications that a commit sets."""
    return {_VERSION + name: str(at) for name, at in transaction.versions.items()}


def summary_of(transaction: Transaction) -> dict[str, str]:
    """Returns what the summary of a commit's snapshot shows.

    Partitions of a topic share all but the end of their application ids, which is stored once.
    """
    short: dict[str, dict[str, int]] = defaultdict(dict)
    for name, at in transaction.versions.items():
        prefix, _, last = name.rpartition("/")
        short[prefix][last] = at
    shown = {name: value for name, value in transaction.metadata.items() if name != _OFFSETS}
    return {
        _POSITIONS: json.dumps(short),
        _METADATA: json.dumps(shown, ensure_ascii=False),
    }


@dataclass(frozen=True)
class IcebergPositions:
    """What a table records now."""

    table: CatalogTable

    @property
    def uri(self) -> str:
        """See :attr:`PositionStore.uri`."""
        return self.table.uri

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """See :meth:`PositionStore.versions`."""
        table = self.table.load()
        return {} if table is None else recorded(table.metadata, app_ids)

    def restored(self, writer: Mapping[str, object]) -> RestoredTarget | None:
        """See :meth:`PositionStore.restored`: a rollback to an earlier snapshot, or a new table."""
        table = self.table.load()
        if table is None:
            return None
        last = Mark.last(table.metadata, str(writer.get("pipeline")))
        if last is None or last.is_in(table.metadata):
            return None
        return RestoredTarget(PositionsThen(self.uri, table, last), _PositionsNow(self.uri, table))


@dataclass(frozen=True)
class _PositionsNow:
    """What a table recorded when it was read."""

    uri: str
    table: Table

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        return recorded(self.table.metadata, app_ids)

    def restored(self, writer: Mapping[str, object]) -> None:
        """Returns None: it is asked of the table alone."""


@dataclass(frozen=True)
class PositionsThen:
    """What a table recorded when it had the rows that a rollback has brought back.

    Attributes:
        uri: of the table.
        table: as it was read.
        last: a snapshot that was rolled back.
    """

    uri: str
    table: Table
    last: Mark

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """See :meth:`PositionStore.versions`.

        Raises:
            SinkError: if the snapshots that show it have expired.
        """
        metadata = self.table.metadata
        kept = list(ancestors_of(metadata.current_snapshot(), metadata))
        ids = {snapshot.snapshot_id for snapshot in kept}
        rolled_back = [s for s in metadata.snapshots if s.snapshot_id not in ids]
        then = _newest(kept)
        moved_since = _newest(rolled_back)
        oldest = (kept[-1].sequence_number or 0) if kept else 0
        # A table that was replaced has no snapshot of before.
        is_whole = oldest <= 1 or oldest > self.last.sequence_number
        for name, at in recorded(metadata, app_ids).items():
            if name in then or is_whole:
                continue
            if name in moved_since:
                raise SinkError(self.uri, f"the snapshots that say where {name} was have expired")
            then[name] = at
        return {name: then[name] for name in app_ids if name in then}

    def restored(self, writer: Mapping[str, object]) -> None:
        """Returns None: it is asked of the table alone."""


def _newest(snapshots: Iterable[Snapshot]) -> dict[str, int]:
    """Returns the positions in the summaries of snapshots, newest first: the first counts."""
    positions: dict[str, int] = {}
    for snapshot in snapshots:
        text = None if snapshot.summary is None else snapshot.summary.get(_POSITIONS)
        for prefix, ends in json.loads(text or "{}").items():
            for last, at in ends.items():
                positions.setdefault(f"{prefix}/{last}" if prefix else last, at)
    return positions
