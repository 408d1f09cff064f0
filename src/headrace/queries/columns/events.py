"""Records of a topic as events, in functions that Spark knows.

A value is an event where :class:`~headrace.pipelines.source.decode.json_events.JsonDecoder` takes
it for one, and has the same values. There are no reasons for those that are none, and bounds of the
event time are not looked at. What is different:

===================================================================== ========= ===============
value                                                                 here      in the decoder
===================================================================== ========= ===============
one that goes on with a comma and members: ``{"a":1},"b":2``          taken     trailing-data
half of a surrogate pair in a field of type ``Any``, or not declared  taken     lone-surrogate
a number beyond a double within a field of type ``Any``               taken     out-of-range
a repeated field, of which the last value alone is right              taken     by its reason
a decimal of too many digits, if its nearest double stays the same    taken     out-of-range
a decimal as a text with an exponent of more than three digits        rejected  taken
bytes that are not UTF-8 in a name, or a field that is not declared   rejected  taken
a time with an offset of more than 18 hours                           rejected  taken
a number of more than 1,000 characters, a name of more than 50,000, a rejected  taken
text of more than 20 million
nested between some 950 and 1,000 levels                              taken     too-deep
===================================================================== ========= ===============
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.events.parser import slots
from headrace.model.event import EventSchema
from headrace.queries.columns.parsing import document_of, is_object
from headrace.queries.columns.texts import are_texts, may_be_others
from headrace.queries.columns.validity import is_valid
from headrace.queries.columns.values import values_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DOCUMENT, _VALUES, _WITH_VARIANTS = "parsed_document", "values_of_event", "parsed_with_variants"


def with_event(records: DataFrame, schema: EventSchema) -> DataFrame:
    """Returns records of a JSON topic with the column ``event``, null where a value is no event.

    It is a struct of the fields that queries can use, of the types that
    :class:`~headrace.queries.language.functions.ValueType` lists. They are called f0, f1 ... by
    their place in the class: Spark does not tell names apart that differ in case alone.
    :func:`~headrace.queries.columns.column_of` reads them. Conditions on the event stay above it,
    so that a value is parsed once.

    Args:
        records: with the column ``value``, binary or string, and any others.
        schema: of the topic's events.
    """
    from pyspark.sql import functions as f

    value = f.col("value").cast("string")
    document, variants = f.col(_DOCUMENT), f.col(_WITH_VARIANTS)
    struct, values = document["event"], f.col(_VALUES)

    documents = records.select("*", document_of(value, schema, texts="string").alias(_DOCUMENT))
    read = documents.select(
        "*",
        _once(f.when(is_object(document), values_of(schema, struct))).alias(_VALUES),
        f.when(
            may_be_others(value, schema, struct), document_of(value, schema, texts="variant")
        ).alias(_WITH_VARIANTS),
    )
    has_texts = is_object(variants) & are_texts(schema, variants["event"])
    is_event = is_valid(schema, struct, values) & (variants.isNull() | has_texts)
    events = read.select("*", _once(f.when(is_event, values)).alias("event"))
    return events.drop(_DOCUMENT, _VALUES, _WITH_VARIANTS)


def _once(column: Column) -> Column:
    """Returns a column that Spark evaluates where it stands.

    Otherwise conditions on events move before the parser, and each parses the event once more.
    """
    from pyspark.sql import functions as f

    return f.when(f.spark_partition_id() >= 0, column)


def field_of(event: Column, schema: EventSchema, names: Sequence[str]) -> Column:
    """Returns the field at a path; null where a struct on the way is null.

    Args:
        event: as :func:`with_event` makes it.
        schema: of the events.
        names: of the path.
    """
    name, *rest = names
    slot, field = next(pair for pair in slots(schema).items() if pair[1].name == name)
    column = event.getField(slot)
    return column if field.schema is None else field_of(column, field.schema, rest)
