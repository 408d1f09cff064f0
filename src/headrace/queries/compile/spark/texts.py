"""Checks that the texts of an event are strings in JSON, as Spark also converts 5 to ``'5'``."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from headrace.events.parsing.parser import slots
from headrace.model.event import EventField, EventSchema, FieldType

if TYPE_CHECKING:
    from pyspark.sql import Column

_Condition: TypeAlias = "Callable[[Column], Column]"
_FIRST_OF_OTHERS = tuple(map(ord, '"[{-0123456789tf'))
_OTHER_JSON = r'\A(?:[\[{"]|true\z|false\z|[-0-9][-+.0-9eE]*\z)'


def may_be_others(value: Column, schema: EventSchema, struct: Column) -> Column:
    """Returns whether a text may be no string in JSON; this holds for few events.

    Args:
        value: values of records, as strings.
        schema: schema of the struct.
        struct: the parsed struct, with texts as ``string``.
    """
    from pyspark.sql import functions as f

    def may_be_other(text: Column) -> Column:
        return f.ascii(text).isin(*_FIRST_OF_OTHERS) & text.rlike(_OTHER_JSON)

    # Half of a surrogate pair is no valid text, but Spark replaces it with a question mark.
    has_surrogate = value.contains(r"\ud") | value.contains(r"\uD")
    has_text = _any_text(schema, struct, lambda text: text.isNotNull())
    return _any_text(schema, struct, may_be_other) | (has_text & has_surrogate)


def are_texts(schema: EventSchema, struct: Column) -> Column:
    """Returns whether all texts are strings in JSON.

    Args:
        schema: schema of the struct.
        struct: the parsed struct, with texts as ``variant``.
    """
    from pyspark.sql import functions as f

    def is_other(text: Column) -> Column:
        return ~f.schema_of_variant(text).isin("STRING", "VOID")

    return ~_any_text(schema, struct, is_other)


def _any_text(schema: EventSchema, struct: Column, condition: _Condition) -> Column:
    """Returns whether any text in a struct, also within lists and maps, meets a condition."""
    from pyspark.sql import functions as f

    fields = slots(schema).items()
    conditions = [_in_field(field, struct[slot], condition) for slot, field in fields]
    return reduce(
        or_, (condition for condition in conditions if condition is not None), f.lit(False)
    )


def _in_field(field: EventField, parsed: Column, condition: _Condition) -> Column | None:
    """Returns whether any text of a field meets a condition; ``None`` if its type has no texts."""
    from pyspark.sql import functions as f

    if field.type is FieldType.STRING:
        return f.coalesce(condition(parsed), f.lit(False))
    if field.schema is not None:
        return _any_text(field.schema, parsed, condition)
    if field.element is None or _in_field(field.item, parsed, condition) is None:
        return None
    items = parsed if field.type is FieldType.LIST else f.map_values(parsed)
    is_met = f.exists(items, lambda item: _in_field(field.item, item, condition))
    return f.coalesce(is_met, f.lit(False))
