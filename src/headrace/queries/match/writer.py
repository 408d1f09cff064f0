"""The task's half of a match stage: turns rows into what they add to windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import ReferenceRecreatedError
from headrace.kafka.table.topic_table import TableRecreatedError
from headrace.model.partitioning import partition_of_key
from headrace.pipelines.references.positions import announced, announced_ms
from headrace.queries.match.held import LiveQueries, RegistryReader
from headrace.queries.match.partials import AddedToWindow, RowPlaces, added_to_windows
from headrace.queries.records.matched import Group, WindowPartial, window_key
from headrace.sinks.api import RejectedRow, SelectiveWriters

if TYPE_CHECKING:
    from headrace.queries.match.index import NumberArray


class MatchPiece(msgspec.Struct, frozen=True):
    """The output of a task, which the driver sends when the batch ends.

    Attributes:
        matches: number of pairs of an event and a query that it matches.
        untimed: number of rows without an event time, which are in no window.
        records: keys and values of the records for the matched topic.
        events: matches that the records add to windows, by partition of the matched topic.
        rules: hash of the queries that the task had.
    """

    matches: int
    untimed: int
    records: list[tuple[str, msgspec.Raw]]
    events: dict[int, int]
    rules: str


@dataclass(frozen=True)
class MatchWriters(SelectiveWriters):
    """Opens the writers of tasks; picklable.

    Attributes:
        reader: reader of the live queries.
        event_time: name of the column with the event time.
        partitions: number of partitions of the matched topic.
    """

    reader: RegistryReader
    event_time: str
    partitions: int

    def __call__(self, task_id: str) -> MatchWriter:  # noqa: ARG002
        """Returns the writer of a task attempt."""
        return MatchWriter(self)

    def columns(self) -> Collection[str]:
        """Returns the names of the event time and of all fields that live queries use.

        Raises:
            ReferenceRecreatedError, BrokerUnreachableError: if the queries can't be read.
        """
        return {self.event_time, *self.live_queries().rules.columns}

    def live_queries(self) -> LiveQueries:
        """Returns the live queries at the batch's position. Called in a task."""
        reader = self.reader
        try:
            return reader.live(announced(reader.registry), announced_ms())
        except TableRecreatedError as error:
            ids = error.known_id, error.live_id
            raise ReferenceRecreatedError(error.topic, *ids, pipeline=reader.pipeline) from error


class MatchWriter:
    """Matches the rows of one task.

    Attributes:
        record_bytes: the size of the groups in a record, as JSON; a record may have a megabyte.
    """

    record_bytes = 512 * 2**10

    def __init__(self, spec: MatchWriters) -> None:
        self._spec = spec
        self._queries: LiveQueries | None = None
        self._matches = self._untimed = 0
        self._records: list[tuple[str, msgspec.Raw]] = []
        self._events: Counter[int] = Counter()

    def write(self, rows: pa.Table) -> Sequence[RejectedRow]:
        """Matches rows, and keeps what they add to windows; no row is rejected.

        Raises:
            ReferenceRecreatedError, BrokerUnreachableError: if the queries can't be read.
        """
        if self._queries is None:
            self._queries = self._spec.live_queries()
        queries = self._queries
        if not len(queries.rules):
            return []
        # If rows are in several chunks, Arrow joins whole columns each time that rows are taken.
        rows, places = self._timed(rows.combine_chunks())
        for matches in queries.rules.matches(rows):
            self._matches += len(matches.rows)
            for added in added_to_windows(rows, places, matches):
                self._keep(queries, added)
        return []

    def close(self) -> Sequence[str]:
        """Returns one piece, or none if there were no rows."""
        if self._queries is None:
            return []
        piece = MatchPiece(
            self._matches,
            self._untimed,
            self._records,
            dict(self._events),
            self._queries.hash,
        )
        return [msgspec.json.encode(piece).decode()]

    def abort(self) -> None:
        """Does nothing: only the driver sends records."""

    def _timed(self, rows: pa.Table) -> tuple[pa.Table, RowPlaces]:
        times = rows.column(self._spec.event_time).combine_chunks()
        if times.null_count:
            self._untimed += times.null_count
            rows = rows.filter(times.is_valid())
            times = times.drop_null()
        places = RowPlaces(
            times.cast(pa.int64()).to_numpy(),
            _integers(rows.column("_partition")),
            _integers(rows.column("_offset")),
        )
        return rows, places

    def _keep(self, queries: LiveQueries, added: AddedToWindow) -> None:
        rule = queries.rules.rule(added.slot)
        key = window_key(rule.query_id, added.begin_us)
        self._events[partition_of_key(key, self._spec.partitions)] += added.events
        query = queries.query(rule.query_id)
        parts = list(_divided(added.groups, self.record_bytes))
        for number, groups in enumerate(parts):
            is_last = number == len(parts) - 1
            partial = WindowPartial(
                rule.query_id,
                query.registered_ms,
                query.revision,
                query.text,
                self._spec.reader.topic,
                added.begin_us,
                added.events if is_last else 0,
                groups,
                added.other if is_last else None,
                rule.shape.key,
                rule.shape.types,
            )
            self._records.append((key.decode(), msgspec.Raw(msgspec.json.encode(partial))))


def _divided(groups: list[Group], max_bytes: int) -> list[list[Group]]:
    """Returns the groups in parts that fit into a record each."""
    parts: list[list[Group]] = [[]]
    size = 0
    for group in groups:
        length = len(msgspec.json.encode(group))
        if parts[-1] and size + length > max_bytes:
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += length
    return parts


def _integers(column: pa.ChunkedArray) -> NumberArray:
    values: NumberArray = column.combine_chunks().to_numpy().astype(np.int64)
    return values
