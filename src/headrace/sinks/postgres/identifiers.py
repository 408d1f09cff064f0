"""Names of tables and columns, as statements have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed, Identifier

SCHEMA = "headrace"
ORDER = "_headrace_order"
TASK = "_headrace_task"
EXACT = "headrace_exact_"
"""Prefix of the names of CHECKs that a column keeps a value: its number and name follow."""


def table_identifier(name: str) -> Identifier:
    """Returns the name of a table, with its schema where it has one, for a statement."""
    from psycopg import sql

    return sql.Identifier(*name.split(".", 1))


def own_identifier(name: str) -> Identifier:
    """Returns the name of a table or function in the schema of headrace."""
    from psycopg import sql

    return sql.Identifier(SCHEMA, name)


def listed_names(names: Sequence[str]) -> Composed:
    """Returns names of columns, with commas between them."""
    from psycopg import sql

    return listed(map(sql.Identifier, names))


def listed(items: Iterable[Composable]) -> Composed:
    """Returns items of a statement, with commas between them."""
    from psycopg import sql

    return sql.SQL(", ").join(items)
