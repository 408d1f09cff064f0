"""The halves of an open index: tasks send documents, the driver records positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import SinkError, SinkUnavailableError
from headrace.runtime.retrying import exponential_backoff, retry
from headrace.sinks.api import (
    CommitResult,
    RejectedRow,
    SinkDriver,
    Transaction,
)
from headrace.sinks.opensearch.bulk import DELAYS_SECONDS, BulkLoader
from headrace.sinks.opensearch.client import NAME, Client, ClusterNodes
from headrace.sinks.opensearch.documents import DocumentSpec, documents_of
from headrace.sinks.opensearch.metrics import OLDER, REPEATED, RESENT
from headrace.sinks.opensearch.positions import OpenSearchPositions
from headrace.sinks.opensearch.provisioning import check_template

if TYPE_CHECKING:
    import pyarrow as pa


class SentRows(msgspec.Struct):
    """A piece: how many rows a task has sent, and what became of them.

    Attributes:
        rows: all but those that are rejected.
        conflicts: rows whose document existed, or was newer.
        resent: rows that were sent again.
    """

    rows: int = 0
    conflicts: int = 0
    resent: int = 0


_WRITTEN = msgspec.json.Decoder(SentRows)


class OpenSearchDriver(SinkDriver):
    """Records the positions of a batch, whose rows tasks have written.

    Args:
        positions: of the pipeline.
        writers: of tasks.

    Raises:
        SinkError: if the index is not there; the rows of the batches before may have been in it.
        SinkUnavailableError: if the cluster does not answer.
    """

    def __init__(self, positions: OpenSearchPositions, writers: DocumentWriters) -> None:
        self.positions: OpenSearchPositions = positions
        # An index of some time may be deleted when that is long ago.
        self._index_uuids = positions.uuids_of_index() if writers.spec.has_one_index else None
        if writers.spec.has_one_index and self._index_uuids is None:
            reason = "it was deleted while the pipeline started; the next start creates it"
            raise SinkError(f"{NAME}, index {writers.spec.index}", reason)
        self.writers: DocumentWriters = writers
        self._conflicts = REPEATED if writers.spec.newest_by is None else OLDER

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """Records the positions.

        Raises:
            SinkError: if another driver has recorded others, or the index was recreated or restored
                while tasks wrote.
            TableMismatchError: if the batches before went into another index, or it was restored.
            SinkUnavailableError: if it is not known whether they are recorded.
        """
        written = [_WRITTEN.decode(piece) for piece in pieces]
        figures = {
            self._conflicts: sum(piece.conflicts for piece in written),
            RESENT: sum(piece.resent for piece in written),
        }
        if self._index_uuids is not None and self.positions.uuids_of_index() != self._index_uuids:
            reason = "it was deleted, recreated, restored or replaced while rows were written"
            raise SinkError(f"{NAME}, index {self.writers.spec.index}", reason)
        is_new = self.positions.record(transaction, self._index_uuids)
        return CommitResult(is_new, sum(piece.rows for piece in written), figures)

    def discard(self, pieces: Sequence[str]) -> None:
        """Takes nothing back: the next attempt writes the same documents."""

    def close(self, max_wait_seconds: float) -> None:  # noqa: ARG002
        """Closes the connections."""
        self.positions.close()


@dataclass(frozen=True)
class DocumentWriters:
    """Opens the writers of tasks.

    Attributes:
        cluster: where to.
        spec: how rows become documents.
        schema: of the rows.
        max_wait_seconds: how long no row may be taken before a task fails.
    """

    cluster: ClusterNodes
    spec: DocumentSpec
    schema: pa.Schema
    max_wait_seconds: float = 20.0

    def __call__(self, task_id: str) -> DocumentWriter:  # noqa: ARG002
        """See :data:`~headrace.sinks.api.WriterFactory`."""
        return DocumentWriter(self)


class DocumentWriter:
    """Sends the rows of one task.

    Args:
        writers: say where to, and how rows become documents.
    """

    def __init__(self, writers: DocumentWriters) -> None:
        self._writers, self._written = writers, SentRows()
        self._checked: set[str] = set()
        # Certificates are read for the first rows: most tasks of a quiet topic have none.
        self._client: Client | None = None
        self._loader: BulkLoader | None = None

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Sends the rows, and returns those that are no documents of the index.

        Raises:
            SinkUnavailableError: if the cluster takes none for a while, with its reason, or does
                not say whether their indices exist.
            SinkError: if it refuses them for another reason than their values, or would have to
                guess the fields of an index.
        """
        writers = self._writers
        if self._client is None or self._loader is None:
            self._client = Client(writers.cluster)
            self._loader = BulkLoader(self._client, writers.schema, writers.max_wait_seconds)
        documents = documents_of(rows, writers.spec)
        if names := {*documents.indices} - self._checked:
            check = partial(check_template, self._client, writers.spec.index, names)
            delays = exponential_backoff(*DELAYS_SECONDS)
            retry(check, SinkUnavailableError, delays, writers.max_wait_seconds)
            self._checked |= names
        loaded = self._loader.load(documents)
        rejected = sorted([*documents.rejected, *loaded.rejected], key=lambda row: row.index)
        self._written.rows += rows.num_rows - len(rejected)
        self._written.conflicts += loaded.conflicts + documents.left_out
        self._written.resent += loaded.resent
        return rejected

    def close(self) -> list[str]:
        """Returns the counts, if there were rows."""
        self.abort()
        return [msgspec.json.encode(self._written).decode()] if self._written.rows else []

    def abort(self) -> None:
        """Closes the connections; what was sent stays: the next attempt writes it, too."""
        if self._client is not None:
            self._client.close()
