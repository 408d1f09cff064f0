"""The table with the keys of all events that a table of statistics has counted, beside it."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from headrace.errors import TableMismatchError
from headrace.events.times import earlier
from headrace.sinks.postgres.connection import execute_numbered, find_table, quoted
from headrace.sinks.postgres.identifiers import own_identifier, table_identifier
from headrace.sinks.postgres.positions import LOCK
from headrace.sinks.postgres.recorded_table import has_rows

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from headrace.sinks.postgres.connection import Connection

SUFFIX = "_keys"
# The schema of a table whose name has none, as the search path finds it.
_SCHEMA = """
SELECT nspname FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s) AND strpos(nspname, '.') = 0
"""
_COLUMNS = {
    "key_hash": "bigint",
    "values_hash": "bigint",
    "event_time": "timestamp with time zone",
}
_CREATE = """
CREATE TABLE {} (key_hash bigint, values_hash bigint NOT NULL, event_time timestamptz,
PRIMARY KEY (key_hash, event_time))
"""
# The row of key 0, which no event has, says since when no key is missing, and in place of a hash
# by which `within` the earlier ones were forgotten, in microseconds; 0: none was.
_BEGIN = "DELETE FROM {0}; INSERT INTO {0} VALUES (0, 0, '-infinity')"
_IS_BEGUN = "SELECT EXISTS (SELECT FROM {} WHERE key_hash = 0)"
_NUMBER = """
CREATE UNLOGGED TABLE {} AS
SELECT *, row_number() OVER (ORDER BY task, place) AS number FROM ({}) AS staged
"""
_OF_TASK = "SELECT {} AS task, place, key_hash, values_hash, event_time FROM {}"
_TAKE_KNOWN = """
WITH known AS (
    SELECT number, bool_or(counted.values_hash = undecided.values_hash) AS is_same
    FROM {undecided} AS undecided JOIN {keys} AS counted USING (key_hash)
    WHERE {near}
    GROUP BY number
)
DELETE FROM {undecided} AS undecided USING known WHERE undecided.number = known.number
RETURNING task, place, is_same
"""
_NEAR = """
counted.event_time
    BETWEEN undecided.event_time - $1 AND undecided.event_time + $1
"""
# What was forgotten is known as far apart as the `within` of then; least() leaves nulls out.
_TAKE_OLD = """
DELETE FROM {undecided} WHERE event_time < (
    SELECT event_time + coalesce(
        least(nullif(values_hash, 0) * interval '1 microsecond', $1::interval), '0'
    )
    FROM {keys} WHERE key_hash = 0
) RETURNING task, place
"""
_COUNT_FIRST = """
WITH first AS (
    SELECT DISTINCT ON (key_hash) number FROM {undecided} ORDER BY key_hash, number
), counted AS (
    DELETE FROM {undecided} AS undecided USING first WHERE undecided.number = first.number
    RETURNING key_hash, values_hash, event_time
)
INSERT INTO {keys} SELECT * FROM counted
"""
_MOVE_BEGIN = """
UPDATE {keys} SET event_time = $1, values_hash = $2
WHERE key_hash = 0 AND event_time + $3 <= $1
"""
_FORGET = "DELETE FROM {keys} WHERE event_time < $1 AND key_hash <> 0"
# The table is searched for what it may forget when the time has moved by such a part of `within`.
_STEPS = 8


class UncountedReason(enum.Enum):
    """Why an event is not counted."""

    DUPLICATE = enum.auto()
    CONFLICT = enum.auto()
    TOO_OLD = enum.auto()


class JudgedEvent(NamedTuple):
    """An event that is not counted: its task by number, its place among the events of it."""

    task: int
    place: int
    reason: UncountedReason


def keys_name(table: str) -> str:
    """Returns the name of the table of keys of a table."""
    return f"{table}{SUFFIX}"


def lock_keys(connection: Connection, target: str) -> None:
    """Waits for the transactions of others that count events of a table, and makes them wait.

    Args:
        connection: in the transaction that ends the lock.
        target: the name by which the table is recorded.
    """
    connection.execute(LOCK, (f"{target} keys",))


def keys_creation(connection: Connection, table: str) -> Composed:
    """Returns the statement that makes the table of keys."""
    from psycopg import sql

    return sql.SQL(" ".join(_CREATE.split())).format(_keys(connection, table))


def has_keys(connection: Connection, table: str) -> bool:
    """Whether there is a table of keys.

    Raises:
        TableMismatchError: if another table has its name.
    """
    known = find_table(connection, _beside(connection, table))
    if known is not None and known.columns != _COLUMNS:
        reason = f"its name is that of the keys which Stats.unique of {table!r} needs: rename one"
        raise TableMismatchError(keys_name(table), reason)
    return known is not None


def make_keys(connection: Connection, table: str) -> None:
    """Makes the table of keys where there is none, inside the caller's transaction.

    Raises:
        TableMismatchError: if another table has its name, or as :func:`begin_keys`.
    """
    if not has_keys(connection, table):
        connection.execute(keys_creation(connection, table))
    begin_keys(connection, table)


def begin_keys(connection: Connection, table: str) -> None:
    """Looks whether the keys are those of the table's rows; an empty table has counted nothing.

    Raises:
        TableMismatchError: if the table has rows, and their keys were deleted.
    """
    from psycopg import sql

    if not has_rows(connection, table):
        connection.execute(sql.SQL(_BEGIN).format(_keys(connection, table)))
        return
    [(is_begun,)] = connection.execute(
        sql.SQL(_IS_BEGUN).format(_keys(connection, table))
    ).fetchall()
    if not is_begun:
        reason = (
            f"it has rows, and the keys of their events are not in {keys_name(table)!r}: restore"
            " both tables; or empty this one, and reset the checkpoints of its pipelines to the"
            " earliest record"
        )
        raise TableMismatchError(table, reason)


def count_new(
    connection: Connection, table: str, staged: Sequence[str], within: timedelta | None
) -> list[JudgedEvent]:
    """Adds the keys of staged events that must be counted, in the caller's transaction.

    Args:
        connection: that holds the lock of the keys.
        table: the table of statistics.
        staged: tables of :mod:`.staged_events` with the keys of each task, as tasks have read.
        within: of :class:`~headrace.Unique`.

    Returns:
        the other events. Where there are any, the transaction must be rolled back.
    """
    from psycopg import sql

    if not staged:
        return []
    undecided = own_identifier(f"undecided_{uuid4().hex}")
    tasks = sql.SQL(" UNION ALL ").join(
        sql.SQL(_OF_TASK).format(task, own_identifier(name)) for task, name in enumerate(staged)
    )
    connection.execute(sql.SQL(_NUMBER).format(undecided, tasks))
    names = {"undecided": undecided, "keys": _keys(connection, table)}
    parameters = () if within is None else (within,)
    near = sql.SQL("true" if within is None else _NEAR)
    take_known = sql.SQL(_TAKE_KNOWN).format(**names, near=near)
    take_old = sql.SQL(_TAKE_OLD).format(**names)
    count_first = sql.SQL(_COUNT_FIRST).format(**names)

    def rounds() -> Iterator[JudgedEvent]:
        """Judges events by those that were counted in the round before."""
        counted = -1
        while counted:
            for task, place, is_same in execute_numbered(connection, take_known, parameters):
                reason = UncountedReason.DUPLICATE if is_same else UncountedReason.CONFLICT
                yield JudgedEvent(task, place, reason)
            for task, place in execute_numbered(connection, take_old, (within,)):
                yield JudgedEvent(task, place, UncountedReason.TOO_OLD)
            counted = connection.execute(count_first).rowcount

    judged = list(rounds())
    connection.execute(sql.SQL("DROP TABLE {}").format(undecided))
    return judged


def forget(connection: Connection, table: str, reached: datetime, within: timedelta) -> None:
    """Forgets what no event can be near to that is at most ``within`` before ``reached``."""
    from psycopg import sql

    start = earlier(reached, 2 * within)
    move = sql.SQL(_MOVE_BEGIN).format(keys=_keys(connection, table))
    parameters = start, within // timedelta(microseconds=1), within / _STEPS
    if execute_numbered(connection, move, parameters).rowcount:
        execute_numbered(
            connection, sql.SQL(_FORGET).format(keys=_keys(connection, table)), (start,)
        )


def _beside(connection: Connection, table: str) -> str:
    """Returns the name of the table of keys, in the schema of the table."""
    name = keys_name(table)
    if "." in table:
        return name
    schemas = connection.execute(_SCHEMA, (quoted(connection, table),)).fetchall()
    return ".".join([*(schema for (schema,) in schemas), name])


def _keys(connection: Connection, table: str) -> Composed:
    from psycopg import sql

    return sql.Composed([table_identifier(_beside(connection, table))])
