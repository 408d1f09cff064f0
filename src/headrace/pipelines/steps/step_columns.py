"""Columns of steps that no table takes: found in the schema of their rows, before anything runs.

Spark makes columns of types that Delta, PostgreSQL and JSON do not have, such as ``array<void>`` by
``array()``, or the interval between two timestamps. The types that are taken are listed, not the
others: a type that a later Spark adds is refused until it is known how its values are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_TAKEN = frozenset(
    {
        "BinaryType",
        "BooleanType",
        "ByteType",
        "DateType",
        "DecimalType",
        "DoubleType",
        "FloatType",
        "IntegerType",
        "LongType",
        "ShortType",
        "StringType",
        "TimestampNTZType",
        "TimestampType",
    }
)
_REMEDIES = {
    "NullType": "cast it to the type that its values would have, such as `CAST(NULL AS STRING)`",
    "VariantType": "make text of it, by `to_json`",
    "DayTimeIntervalType": "make a number of it, such as seconds",
    "YearMonthIntervalType": "make a number of it, such as months",
}


def untaken_columns(schema: StructType) -> dict[str, str]:
    """Returns what is wrong with columns that no table takes, by their names.

    The text ends a sentence about the step that makes the column, and has the remedy.
    """
    untaken = {
        field.name: f"it makes column {field.name!r} of type {field.dataType.simpleString()}, "
        f"which no table takes: {remedy}"
        for field in schema.fields
        if (remedy := _remedy(field.dataType))
    }
    untaken |= {
        name: f"it makes several columns of the name {name!r}, in any case: rename or drop all but "
        "one"
        for name in _repeated(schema.names)
    }
    unnamed = "it makes a column with an empty name, which no table takes: give it another name"
    return untaken | ({"": unnamed} if "" in schema.names else {})


def _repeated(names: Iterable[str]) -> list[str]:
    """Returns the names that differ from another one at most in case: tables take them for one."""
    counts = Counter(name.lower() for name in names)
    return [name for name, count in counts.items() if count > 1]


def _remedy(kind: DataType) -> str:
    """Returns what to do about a type, or about one in it; empty: a table takes it."""
    from pyspark.sql import types as T  # noqa: N812

    parts: list[DataType] = []
    match kind:
        case T.ArrayType():
            parts = [kind.elementType]
        case T.MapType():
            parts = [kind.keyType, kind.valueType]
        case T.StructType():
            if not kind.names or "" in kind.names or _repeated(kind.names):
                return "give it fields, each of a name of its own, in any case and not empty"
            parts = [field.dataType for field in kind.fields]
        case T.UserDefinedType():
            parts = [kind.sqlType()]
        case _ if type(kind).__name__ not in _TAKEN:
            return _REMEDIES.get(type(kind).__name__, "cast it to another type, or drop it")
    return next(filter(None, map(_remedy, parts)), "")
