"""Counts the rows of a table by window, to compare them with the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import SinkError
from headrace.events.event_hash import hash_texts
from headrace.ledger.sums import HASH_MODULUS, Sums
from headrace.pipelines.ledger.counting.table_columns import comparable_columns, hash_record_ids
from headrace.pipelines.ledger.counting.tally import POSITION, LedgerRule
from headrace.runtime.extras import require_extra
from headrace.sinks.api import Snapshot, WindowCounts

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECONDS = 1_000_000
_COUNT = """
SELECT {window}, count(*), (sum(({hash})::HUGEINT) % {modulus})::UBIGINT, count({id})
FROM {rows} GROUP BY 1
"""
# No column has the name.
_ROWS = "_headrace_rows"


@dataclass(frozen=True)
class Recount:
    """Rows that a table holds.

    Attributes:
        sums: by start of the window, in seconds since 1970; None: rows without an event time.
            Bytes are 0, as rows have none.
        has_ids: whether the rows have the ids that the ledger counts.
        without_ids: windows with rows that do not, where others do.
        failure: why there is none, as a sentence; empty: there is one.
    """

    sums: Mapping[int | None, Sums] = field(default_factory=dict)
    has_ids: bool = True
    failure: str = ""
    without_ids: frozenset[int | None] = frozenset()

    def compares_ids(self, start: int | None) -> bool:
        """Returns whether all rows of a window have their ids."""
        return self.has_ids and start not in self.without_ids


def recount(snapshot: Snapshot, rule: LedgerRule, changed: Collection[str] = ()) -> Recount:
    """Returns the sums of the rows of a table, as DuckDB counts them.

    DuckDB groups the rows by window and adds up, without the code by which tasks do that; only the
    hash of an id is the ledger's own. It holds a part of the rows in memory at a time.

    Where events have no id, topic, partition and offset are what the ledger has hashed. If the
    table has no columns of ids as they were read, such as ids in a column of numbers, rows are
    counted, and their ids are not compared. So it is in windows with rows from before the columns
    of topic, partition and offset.

    Args:
        snapshot: of the table.
        rule: what the ledger has counted events by.
        changed: columns that steps have changed or dropped.

    Raises:
        ExtraMissingError: if DuckDB is not installed.
        SinkError: if the rows can't be read.
    """
    require_extra("recount")
    if rule.event_time in changed:
        return _changed_times(rule)
    named = [name for name in rule.columns if name in {*snapshot.column_names} - {*changed}]
    # Rows are counted by any column where the ledger's own are not in the table.
    columns = named or snapshot.column_names[:1]
    if not columns:
        return Recount(failure="the table has no column whose values can be read as they were")
    batches = snapshot.batches(columns)
    first = next(batches, None)
    if first is None:
        return Recount()
    known = comparable_columns(rule, first.schema) & {*named}
    if rule.event_time is not None and rule.event_time not in known:
        reason = f"the table has no column {rule.event_time!r} of a type of times"
        return Recount(failure=f"{reason}, which decides the window")
    has_ids = {*rule.id_columns} <= known
    statement = _COUNT.format(
        window=_window(rule),
        hash=_hash(rule) if has_ids else "0",
        modulus=HASH_MODULUS,
        id=_column(POSITION[-1]) if has_ids and rule.event_id is None else "*",
        rows=_ROWS,
    )
    rows = _Rows(first, batches).query(statement)
    sums = {start: Sums(number, 0, hash_) for start, number, hash_, _ in rows}
    without_ids = frozenset(start for start, number, _, ids in rows if ids < number)
    return Recount(sums, has_ids=has_ids, without_ids=without_ids)


class _Rows:
    """Rows that DuckDB reads as table ``_ROWS``, once."""

    def __init__(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
        self._first, self._others = first, others
        self._failure: SinkError | None = None

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Returns the result of a query.

        Raises:
            SinkError: if the rows can't be read.
        """
        import duckdb
        import pyarrow as pa

        # Without extensions: it must not look for any on the network.
        database = duckdb.connect(config={"autoinstall_known_extensions": False})
        _add_hashes(database)
        try:
            reader = pa.RecordBatchReader.from_batches(self._first.schema, self._noting_failure())
            database.register(_ROWS, reader)
            return database.execute(statement).fetchall()
        except duckdb.Error as error:
            # DuckDB passes on the text of what its input has raised.
            raise (error if self._failure is None else self._failure) from None
        finally:
            for name in _HASHES:
                database.remove_function(name)  # else it says at the end that they were leaked
            database.close()

    def _noting_failure(self) -> Iterator[pa.RecordBatch]:
        yield self._first
        try:
            yield from self._others
        except SinkError as error:
            self._failure = error
            raise


def _add_hashes(database: Any) -> None:
    for name, (function, types) in _HASHES.items():
        database.create_function(
            name, function, types, "UBIGINT", type="arrow", null_handling="special"
        )


# DuckDB resolves annotations where `pa` is not known, so they are none of Arrow's.
def _id_hash(ids: Any) -> Any:
    import pyarrow as pa

    return pa.array(hash_texts(ids))


def _place_hash(topics: Any, partitions: Any, offsets: Any) -> Any:
    import pyarrow as pa

    return pa.array(hash_record_ids(topics, partitions, offsets))


_HASHES = {
    "id_hash": (_id_hash, ["VARCHAR"]),
    "place_hash": (_place_hash, ["VARCHAR", "INTEGER", "BIGINT"]),
}


def _window(rule: LedgerRule) -> str:
    """The start of a row's window, in seconds since 1970; also of times before that."""
    if rule.event_time is None:
        return "NULL"
    at, length = f"epoch_us({_column(rule.event_time)})", rule.window_seconds * _MICROSECONDS
    return f"({at} - (({at} % {length}) + {length}) % {length}) // {_MICROSECONDS}"


def _hash(rule: LedgerRule) -> str:
    if rule.event_id is None:
        topic, partition, offset = map(_column, POSITION)
        # PostgreSQL may keep them as any integers; DuckDB makes none smaller unasked.
        hash_ = f"place_hash({topic}, {partition}::INTEGER, {offset}::BIGINT)"
        return f"CASE WHEN {offset} IS NULL THEN 0 ELSE {hash_} END"
    return f"id_hash({_column(*rule.event_id.split('.'))})"


def _column(*path: str) -> str:
    escaped = (name.replace('"', '""') for name in path)
    return ".".join([_ROWS, *(f'"{name}"' for name in escaped)])


def added_counts(counts: WindowCounts, rule: LedgerRule, changed: Collection[str] = ()) -> Recount:
    """Returns counts that a target keeps, added up by the ledger's windows.

    Args:
        counts: of windows whose length divides that of the ledger's.
        rule: what the ledger has counted events by.
        changed: columns that steps have changed or dropped.
    """
    if counts.event_time != rule.event_time:
        return Recount(failure=f"it counts by {counts.event_time!r}, not by the topic's event time")
    if rule.event_time in changed:
        return _changed_times(rule)
    sums: dict[int | None, Sums] = {}
    for start, number in counts.events.items():
        window = start - start % rule.window_seconds
        sums[window] = sums.get(window, Sums()) + Sums(number)
    return Recount(sums, has_ids=False)


def _changed_times(rule: LedgerRule) -> Recount:
    return Recount(failure=f"steps change or drop {rule.event_time!r}, which decides the window")
