"""What is measured of the rows of a group: how many, a sum, how many values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from headrace.model import FieldType
from headrace.model.fault import Fault, is_a
from headrace.sinks.postgres.sketches import DEFAULT_LG_K

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = frozenset({FieldType.LONG, FieldType.DOUBLE, FieldType.DECIMAL})
_COUNTABLE = frozenset({FieldType.LONG, FieldType.STRING})
_MIN_LG_K, _MAX_LG_K = 4, 18


@dataclass(frozen=True)
class Count:
    """Measure of :class:`~headrace.Stats`: how many rows a group has."""

    meaning: ClassVar[str] = "Count()"

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:  # noqa: ARG002
        """Yields nothing: any rows can be counted."""
        yield from ()

    def unfit(self, schema: pa.Schema) -> str:  # noqa: ARG002
        """Returns an empty text: rows of every schema can be counted."""
        return ""

    def sql_type(self, schema: pa.Schema) -> str:  # noqa: ARG002
        """Returns the type of its column."""
        return "bigint"


@dataclass(frozen=True)
class Sum:
    """Measure of :class:`~headrace.Stats`: the sum of a column's numbers; null adds nothing.

    Integers and decimals are added exactly. Doubles are added as doubles, whose last digits depend
    on the order; declare money as ``Decimal``.

    Attributes:
        column: an integer, a decimal or a double.
    """

    column: str

    @property
    def meaning(self) -> str:
        """Returns what a value of its column is."""
        return f"Sum({self.column!r})"

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for a column that is not there, or is no number."""
        yield from _column_faults(self, self.column, columns, _NUMBERS)

    def unfit(self, schema: pa.Schema) -> str:
        """Returns why rows of the schema can't be added up, or an empty text."""
        from pyarrow import types

        checks = (types.is_integer, types.is_decimal, types.is_floating)
        if any(is_number(schema.field(self.column).type) for is_number in checks):
            return ""
        return f"Sum of {self.column!r}, which is {schema.field(self.column).type}: no number"

    def sql_type(self, schema: pa.Schema) -> str:
        """Returns the type of its column: one that no sum of integers or decimals leaves."""
        from pyarrow import types

        is_double = types.is_floating(schema.field(self.column).type)
        return "double precision" if is_double else "numeric"


@dataclass(frozen=True)
class Distinct:
    """Measure of :class:`~headrace.Stats`: how many values a column has, as an estimate.

    Null and the empty text are not counted. The relative standard error is
    ``1.04 / sqrt(2**lg_k)`` (Flajolet et al., "HyperLogLog", AofA 2007), 1.6% for 12: two estimates
    in three are within it, and all but a few in a thousand within three times of it. Up to
    ``2**lg_k / 20`` values the estimate is practically exact. A sketch has at most
    ``2**lg_k / 2 + 40`` bytes.

    Estimates of windows can't be added up; their sketches can be merged, by Apache DataSketches in
    many languages and by Spark's ``hll_union_agg``.

    Attributes:
        column: a text or an integer.
        lg_k: binary logarithm of the number of registers, from 4 to 18. Where it is changed, groups
            that exist keep the smaller one.
    """

    column: str
    lg_k: int = DEFAULT_LG_K

    @property
    def meaning(self) -> str:
        """Returns what a value of its column is, in whatever precision."""
        return f"Distinct({self.column!r})"

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for a column that is not there, or can't be hashed, and for ``lg_k``."""
        yield from _column_faults(self, self.column, columns, _COUNTABLE)
        if type(self.lg_k) is not int or not _MIN_LG_K <= self.lg_k <= _MAX_LG_K:
            limits = f"a whole number from {_MIN_LG_K} to {_MAX_LG_K}"
            yield Fault(f"Distinct.lg_k is {self.lg_k!r}", limits)

    def unfit(self, schema: pa.Schema) -> str:
        """Returns why values of the schema can't be counted, or an empty text."""
        from pyarrow import types

        kind = schema.field(self.column).type
        checks = (types.is_string, types.is_large_string, types.is_signed_integer)
        if any(is_countable(kind) for is_countable in checks):
            return ""
        return f"Distinct of {self.column!r}, which is {kind}: neither text nor integer"

    def sql_type(self, schema: pa.Schema) -> str:  # noqa: ARG002
        """Returns the type of its column."""
        return "bigint"


Measure: TypeAlias = Count | Sum | Distinct


def _column_faults(
    measure: Sum | Distinct,
    column: object,
    columns: Mapping[str, FieldType] | None,
    types: frozenset[FieldType],
) -> Iterator[Fault]:
    name = type(measure).__name__
    if not is_a(column, str):
        yield Fault(f"{name}.column is {column!r}", f'{name}("price")')
    elif columns is not None and column not in columns:
        message = f"{name}.column: {column!r} is no column of the rows"
        yield Fault(message, f"columns: {', '.join(columns)}")
    elif columns is not None and columns[str(column)] not in types:
        allowed = ", ".join(sorted(type_.value for type_ in types))
        message = f"{name}.column: {column!r} is {columns[str(column)].value}"
        yield Fault(message, f"one of: {allowed}; a step can make it so")
