"""Which rows of a batch the table does not take, where only its transaction can tell.

Staging tables have the table's types, CHECK and NOT NULL. Unique and foreign keys, limits of an
index, triggers, partitions and the sums of ADD are known to the table alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.errors import SinkError
from headrace.sinks.api import RejectedValues
from headrace.sinks.postgres import statements
from headrace.sinks.postgres.connection import error_message, is_of_row, row_reason
from headrace.sinks.postgres.statements import TargetSpec

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

    from headrace.sinks.postgres.connection import Connection

# More are the table's fault, not theirs: an operator puts it right, and nothing is given up.
MAX_REJECTED_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class _Place:
    number: int
    error: psycopg.Error


def remove_rejected(
    connection: Connection, spec: TargetSpec, staging: Sequence[str]
) -> tuple[list[RejectedValues], dict[str, int]]:
    """Removes the rows that the table does not take from the staging tables.

    It inserts the rows by halves, in a transaction that it takes back. Halves keep the meaning of
    each mode: rows are inserted in the order in which the batch has them. A deferred foreign key to
    a later row of the batch does not: such a row is rejected with the others.

    Returns:
        the rows, and how many of them each staging table had.

    Raises:
        SinkError: there are more than :data:`MAX_REJECTED_ROWS`.
    """
    tables = sorted(staging)
    rejected: list[RejectedValues] = []
    orders: dict[str, list[int]] = defaultdict(list)
    numbered = f"numbered_{uuid4().hex}"
    with connection.transaction(force_rollback=True):
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # deferred ones fail at the commit
        connection.execute(statements.number_rows(spec, tables, numbered))
        [(count,)] = connection.execute(statements.count_rows(numbered)).fetchall()
        statement = statements.insert_numbered(spec, numbered)
        for place in _rejected(connection, statement, 1, count):
            if len(rejected) == MAX_REJECTED_ROWS:
                reason = f"it takes none of more than {MAX_REJECTED_ROWS} rows of a batch, such as"
                raise SinkError(f"table {spec.table}", f"{reason}: {rejected[0].detail}")
            shown = connection.execute(statements.show_numbered(spec, numbered), (place.number,))
            [(task, order, values)] = shown.fetchall()
            reason = row_reason(place.error.sqlstate or "")
            rejected.append(RejectedValues(values, reason, error_message(place.error)))
            orders[tables[task]].append(order)
    with connection.transaction():
        for table, numbers in orders.items():
            connection.execute(statements.delete_staged(table), (numbers,))
    return rejected, {table: len(numbers) for table, numbers in orders.items()}


def _rejected(
    connection: Connection, statement: Composed, first: int, last: int
) -> Iterator[_Place]:
    """Inserts the rows ``first`` to ``last``; yields those that can't be."""
    import psycopg

    if first > last:
        return
    try:
        with connection.transaction():  # a savepoint
            connection.execute(statement, {"first": first, "last": last})
    except psycopg.Error as error:
        if not is_of_row(error.sqlstate or ""):
            raise
        if first == last:
            yield _Place(first, error)
            return
        middle = (first + last) // 2
        yield from _rejected(connection, statement, first, middle)
        yield from _rejected(connection, statement, middle + 1, last)
