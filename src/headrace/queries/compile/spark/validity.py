"""Checks that the fields of an event are valid for its event class.

A condition that is null is not met, as its value can't be read.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from headrace.events import EARLIEST_US, LATEST_US
from headrace.events.parsing.parser import slots
from headrace.model.event import EventField, EventSchema, FieldType
from headrace.queries.compile.spark.values import bigint, value_of

if TYPE_CHECKING:
    from pyspark.sql import Column

_VARIANTS = {FieldType.DECIMAL, FieldType.BINARY}
_MAX_DOUBLE = 1.7976931348623157e308
_DATE = r"\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_BASE64 = r"\A(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"


def is_valid(schema: EventSchema, struct: Column, values: Column) -> Column:
    """Returns whether the fields of a struct are valid.

    Args:
        schema: schema of the struct.
        struct: the parsed struct.
        values: the struct that :func:`~headrace.queries.compile.spark.values.values_of` returns.
    """
    from pyspark.sql import functions as f

    fields = slots(schema).items()
    conditions = [_is_valid(field, struct[slot], values[slot]) for slot, field in fields]
    return reduce(
        and_, (condition for condition in conditions if condition is not None), f.lit(True)
    )


def _is_valid(field: EventField, parsed: Column, value: Column) -> Column | None:
    """Returns whether a field is valid; ``None`` if it always is."""
    condition = _condition(field, parsed, value)
    if not field.nullable:
        return parsed.isNotNull() if condition is None else parsed.isNotNull() & condition
    return None if condition is None else _is_null(field, parsed) | condition


def _is_null(field: EventField, parsed: Column) -> Column:
    from pyspark.sql import functions as f

    if field.type not in _VARIANTS:
        return parsed.isNull()
    return f.coalesce(f.schema_of_variant(parsed), f.lit("VOID")) == "VOID"


def _condition(field: EventField, parsed: Column, value: Column) -> Column | None:
    """Returns whether a value that is not null is valid; ``None`` if it always is."""
    from pyspark.sql import functions as f

    condition: Column | None = None
    match field.type:
        case FieldType.STRING if field.values:
            condition = value.isin(list(field.values))
        case FieldType.DOUBLE:
            condition = f.abs(value) <= f.lit(_MAX_DOUBLE)
        case FieldType.TIMESTAMP:
            condition = f.unix_micros(value).between(bigint(EARLIEST_US), bigint(LATEST_US))
        case FieldType.MILLIS:
            condition = value.isNotNull()
        case FieldType.DATE:
            condition = parsed.rlike(_DATE) & parsed.try_cast("date").isNotNull()
        case FieldType.DECIMAL:
            # Valid is a value that has the same nearest double as a decimal of the precision.
            text = parsed.try_cast("string")
            decimal = text.try_cast(f"decimal({field.precision.digits}, {field.precision.scale})")
            condition = f.when(
                value.isNotNull(), decimal.try_cast("string").try_cast("double") == value
            )
        case FieldType.BINARY:
            is_text = f.schema_of_variant(parsed) == "STRING"
            condition = is_text & parsed.try_cast("string").rlike(_BASE64)
        case FieldType.STRUCT if field.schema is not None:
            condition = is_valid(field.schema, parsed, value)
        case FieldType.LIST | FieldType.MAP:
            is_list = field.type is FieldType.LIST
            condition = _are_valid(field.item, parsed if is_list else f.map_values(parsed))
    return condition


def _are_valid(item: EventField, items: Column) -> Column | None:
    """Returns whether all items are valid; ``None`` if they always are."""
    from pyspark.sql import functions as f

    def is_valid_item(parsed: Column) -> Column | None:
        value = value_of(item, parsed)
        return _is_valid(item, parsed, parsed if value is None else value)

    return None if is_valid_item(f.get(items, f.lit(0))) is None else f.forall(items, is_valid_item)
