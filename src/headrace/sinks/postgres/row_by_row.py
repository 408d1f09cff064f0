"""Rows one by one into a staging table, in the server: for the rows around one that is rejected.

``COPY`` takes all rows or none, so it would be called twice and more for each row that is wrong.
Here the rows travel once, and a function in PL/pgSQL converts and inserts each under its own
savepoint: what that costs depends on how many rows there are, not on how many are wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.sinks.api import RejectedRow
from headrace.sinks.postgres import statements
from headrace.sinks.postgres.copying import copyable
from headrace.sinks.postgres.sqlstates import Cause, ServerError
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sinks.postgres.connection import Connection


def insert_each(
    connection: Connection, spec: TargetSpec, staging: str, rows: pa.Table
) -> list[RejectedRow] | None:
    """Inserts those of a few hundred rows that the staging table takes, and returns the others.

    Returns:
        None, and nothing is inserted, where that can't be told: the error of a row may be the
        statement's, or the role may not use PL/pgSQL.

    Raises:
        psycopg.OperationalError: if the connection is lost.
    """
    import psycopg

    try:
        with connection.transaction():
            return _inserted(connection, spec, staging, rows)
    except (psycopg.ProgrammingError, _NotOfRowError):
        return None


class _NotOfRowError(Exception):
    """An error that is not certain to be a row's."""


def _inserted(
    connection: Connection, spec: TargetSpec, staging: str, rows: pa.Table
) -> list[RejectedRow]:
    import pyarrow as pa

    texts = (column.cast(pa.string()).to_pylist() for column in copyable(rows).columns)
    columns = [[None if text is None else text.encode() for text in column] for column in texts]
    function = f"insert_{uuid4().hex}"
    connection.execute(statements.create_insertion(spec, staging, function))
    errors = connection.execute(statements.call_insertion(spec, function), columns).fetchall()
    # In this transaction, so nothing is left of it where the server or the task dies.
    connection.execute(statements.drop_insertion(function))
    failures = {index: ServerError(*facts) for index, *facts in errors}
    if any(error.cause is not Cause.ROW for error in failures.values()):
        raise _NotOfRowError
    return [RejectedRow(index, error.reason, error.message) for index, error in failures.items()]
