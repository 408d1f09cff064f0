"""Which rows of a batch the table does not take, where only its transaction shows it.

Staging tables have the table's types, CHECK and NOT NULL. Unique and foreign keys, limits of an
index, triggers, partitions and the sums of ADD are known to the table alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from headrace.errors import SinkError
from headrace.sinks.api import RejectedValues
from headrace.sinks.postgres.connection import execute_numbered
from headrace.sinks.postgres.identifiers import ORDER, TASK, listed_names, own_identifier
from headrace.sinks.postgres.rows.insert import insert_selected, newest_first
from headrace.sinks.postgres.rows.staging import count_rows, delete_staged, drop_tables, staged_rows
from headrace.sinks.postgres.sqlstates import ServerError, is_of_row, may_be_of_row
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

    from headrace.sinks.postgres.connection import Connection

    Errors: TypeAlias = dict[int, psycopg.Error]

# More are the table's fault, not theirs: an operator corrects it, and no row is rejected.
MAX_REJECTED_ROWS = 1_000
CHECK_NOW = "SET CONSTRAINTS ALL IMMEDIATE"
_NUMBER = "_headrace_number"
_FOREIGN_KEY = "23503"


def remove_rejected(
    connection: Connection, spec: TargetSpec, staging: Sequence[str]
) -> tuple[list[RejectedValues], dict[str, int]]:
    """Removes the rows that the table does not take from the staging tables.

    It inserts the rows by halves, in a transaction that it takes back, in the order in which the
    batch has them. Rows that refer to later rows, or to each other, are kept with them, unless a
    deferred foreign key fails: then those that refer to each other in a circle are rejected too.

    Returns:
        the rows, and how many of them each staging table had.

    Raises:
        SinkError: if there are more than :data:`MAX_REJECTED_ROWS`.
    """
    tables = sorted(staging)
    rejected: list[RejectedValues] = []
    orders: dict[str, list[int]] = defaultdict(list)
    numbered = f"numbered_{uuid4().hex}"
    with connection.transaction(force_rollback=True):
        connection.execute(_number_rows(spec, tables, numbered))
        errors = _Isolation(connection, spec, numbered).errors()
        for number, error in sorted(errors.items()):
            shown = execute_numbered(connection, _show_numbered(spec, numbered), (number,))
            [(task, order, values)] = shown.fetchall()
            server_error = ServerError.of(error)
            rejected.append(RejectedValues(values, server_error.reason, server_error.message))
            orders[tables[task]].append(order)
    with connection.transaction():
        for table, numbers in orders.items():
            connection.execute(delete_staged(table), (numbers,))
    return rejected, {table: len(numbers) for table, numbers in orders.items()}


def insert_in_parts(connection: Connection, spec: TargetSpec, staging: Sequence[str]) -> None:
    """Inserts rows by halves, in their order, which the table does not take in one statement.

    That is needed where a value of another unique index moves from one key of a batch to another.

    Raises:
        psycopg.Error: if a row can't be inserted all the same.
    """
    numbered = f"numbered_{uuid4().hex}"
    connection.execute(_number_rows(spec, sorted(staging), numbered))
    for error in _Isolation(connection, spec, numbered).errors().values():
        raise error
    drop_tables(connection, [numbered])


class _Isolation:
    """Finds the rows of a numbered table that can't be inserted, inside the caller's transaction.

    What it inserts stays: rows that succeed are there for those that refer to them.
    """

    def __init__(self, connection: Connection, spec: TargetSpec, numbered: str) -> None:
        self._connection, self._spec, self._numbered = connection, spec, numbered
        self._statement = _insert_numbered(spec, numbered)
        [(count,)] = connection.execute(count_rows(numbered)).fetchall()
        self._all = range(1, count + 1)

    def errors(self) -> Errors:
        """Returns why each row can't be inserted, by its number.

        Constraints that are deferred stay so at first: they allow rows to refer to later ones.
        They name no row where they fail, so then each is checked by the statement it is due to.
        """
        import psycopg

        try:
            with self._connection.transaction():
                errors = self._in_rounds()
                self._connection.execute(CHECK_NOW)
                return errors
        except psycopg.Error as error:
            if not may_be_of_row(error):
                raise
        self._connection.execute(CHECK_NOW)
        return self._in_rounds()

    def _in_rounds(self) -> Errors:
        """Inserts rows again that need others, once those others are there.

        Of ADD, a number may only fit after another one.

        Where that clears every row, order matters to the table in a way that one statement for the
        whole batch does not meet, such as to a trigger: the errors of the first round count then.
        """
        errors = first = self._without_replaced(dict(self._errors(self._all)))
        while True:
            waiting = [
                number
                for number, error in errors.items()
                if error.sqlstate == _FOREIGN_KEY or self._spec.mode == "add"
            ]
            again = dict(self._errors(waiting))
            if len(again) == len(waiting):
                return errors or first
            kept = {n: e for n, e in errors.items() if n not in waiting}
            errors = self._without_replaced(kept | again)

    def _without_replaced(self, errors: Errors) -> Errors:
        """Leaves out rows of an upsert that an existing newer row of their key replaces."""
        if self._spec.mode != "upsert" or not errors:
            return errors
        statement = _select_newer(self._spec, self._numbered)
        rows = execute_numbered(self._connection, statement, (list(errors),)).fetchall()
        newer: dict[int, int | None] = dict(rows)

        def replacing(number: int) -> int | None:
            newer_number = newer[number]
            while newer_number in errors:
                newer_number = newer[newer_number]
            return newer_number

        return {number: error for number, error in errors.items() if replacing(number) is None}

    def _errors(self, numbers: Sequence[int]) -> Iterator[tuple[int, psycopg.Error]]:
        """Inserts rows by halves; yields the number of each that can't be, and why."""
        for count, (number, error) in enumerate(self._halved(numbers)):
            if count == MAX_REJECTED_ROWS:
                reason = f"it takes none of more than {MAX_REJECTED_ROWS} rows of a batch, such as"
                raise SinkError(
                    f"table {self._spec.table}", f"{reason}: {ServerError.of(error).message}"
                )
            yield number, error

    def _halved(self, numbers: Sequence[int]) -> Iterator[tuple[int, psycopg.Error]]:
        import psycopg

        if not numbers:
            return
        try:
            self._insert(numbers)
        except psycopg.Error as error:
            if not may_be_of_row(error):
                raise
            if len(numbers) == 1:
                if not is_of_row(error, self._fails_without_rows):
                    raise
                yield numbers[0], error
                return
            half = len(numbers) // 2
            yield from self._halved(numbers[:half])
            yield from self._halved(numbers[half:])

    def _insert(self, numbers: Sequence[int]) -> None:
        first, last = (numbers[0], numbers[-1]) if numbers else (1, 0)
        # A whole range needs no list: it may be of a million rows.
        among = None if isinstance(numbers, range) else list(numbers)
        with self._connection.transaction():  # a savepoint
            execute_numbered(self._connection, self._statement, (first, last, among))

    def _fails_without_rows(self) -> bool:
        import psycopg

        try:
            self._insert(())
        except psycopg.Error:
            return True
        return False


def _number_rows(spec: TargetSpec, staging: Sequence[str], numbered: str) -> Composed:
    """Copies the rows of all staging tables into a table, numbered in their order.

    The number is its key: rows are looked for by it twenty times and more for each that is wrong.
    """
    from psycopg import sql

    return sql.SQL(
        "CREATE UNLOGGED TABLE {table} AS"
        " SELECT *, row_number() OVER (ORDER BY {order}) AS {number} FROM ({rows}) AS rows;"
        " ALTER TABLE {table} ADD PRIMARY KEY ({number})"
    ).format(
        table=own_identifier(numbered),
        order=listed_names((TASK, ORDER)),
        number=sql.Identifier(_NUMBER),
        rows=staged_rows(spec, staging),
    )


def _insert_numbered(spec: TargetSpec, numbered: str) -> Composed:
    """Inserts the rows of :func:`_number_rows` from ``$1`` to ``$2``, of these those in ``$3``.

    ``$3`` is null for all rows between the two.
    """
    from psycopg import sql

    rows = sql.SQL(
        "SELECT * FROM {table} WHERE {number} BETWEEN $1 AND $2"
        " AND ($3::bigint[] IS NULL OR {number} = ANY($3::bigint[]))"
    ).format(table=own_identifier(numbered), number=sql.Identifier(_NUMBER))
    return insert_selected(spec, rows)


def _select_newer(spec: TargetSpec, numbered: str) -> Composed:
    """Selects number and number of the next newer row of its key, for the rows in ``$1``."""
    from psycopg import sql

    return sql.SQL(
        "SELECT {number}, _headrace_newer FROM (SELECT {number},"
        " lag({number}) OVER (PARTITION BY {key} ORDER BY {order}) AS _headrace_newer"
        " FROM {table}) AS rows WHERE {number} = ANY($1)"
    ).format(
        number=sql.Identifier(_NUMBER),
        key=listed_names(spec.key),
        order=newest_first(spec),
        table=own_identifier(numbered),
    )


def _show_numbered(spec: TargetSpec, numbered: str) -> Composed:
    """Selects task, order and JSON of one row of :func:`_number_rows`."""
    from psycopg import sql

    return sql.SQL(
        "SELECT {}, (SELECT row_to_json(shown)::text FROM (SELECT {}) AS shown)"
        " FROM {} WHERE {} = $1"
    ).format(
        listed_names((TASK, ORDER)),
        listed_names(spec.columns),
        own_identifier(numbered),
        sql.Identifier(_NUMBER),
    )
