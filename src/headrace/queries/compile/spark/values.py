"""Converts the fields that Spark has parsed into values of an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.events import MILLIS_RANGE
from headrace.events.parsing.parser import slots
from headrace.model.event import EventField, EventSchema, FieldType

if TYPE_CHECKING:
    from pyspark.sql import Column

_TIME = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])\z"
)
# Exponents have at most three digits, as Spark would write out a number of that many digits.
_NUMBER = r"\A-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?\z"


def values_of(schema: EventSchema, struct: Column) -> Column:
    """Returns a struct of the values that queries can use; null where a value can't be read.

    Args:
        schema: schema of the struct.
        struct: the parsed struct.
    """
    from pyspark.sql import functions as f

    values = {slot: value_of(field, struct[slot]) for slot, field in slots(schema).items()}
    return f.struct(*(value.alias(slot) for slot, value in values.items() if value is not None))


def value_of(field: EventField, parsed: Column) -> Column | None:
    """Returns the value of a field; ``None`` if queries can't use the field."""
    from pyspark.sql import functions as f

    match field.type:
        case FieldType.STRING | FieldType.LONG | FieldType.DOUBLE | FieldType.BOOLEAN:
            return parsed
        case FieldType.DECIMAL:
            from pyspark.sql import functions as f

            text = parsed.try_cast("string")
            is_number = (f.schema_of_variant(parsed) != "STRING") | text.rlike(_NUMBER)
            return f.when(is_number, text.try_cast("double"))
        case FieldType.TIMESTAMP:
            # Times have no other letters. At its first call, ``upper`` of Spark takes a second.
            time = f.translate(parsed, "tz", "TZ").try_cast("timestamp")
            return f.when(parsed.rlike(_TIME), time)
        case FieldType.MILLIS:
            is_time = parsed.between(*map(bigint, MILLIS_RANGE))
            return f.when(is_time, f.timestamp_millis(parsed))
        case FieldType.STRUCT if field.schema is not None:
            return f.when(parsed.isNotNull(), values_of(field.schema, parsed))
    return None


def bigint(number: int) -> Column:
    """Returns a constant column of type bigint."""
    from pyspark.sql import functions as f

    return f.lit(number).cast("bigint")
