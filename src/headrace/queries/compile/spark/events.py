"""Parses records of a topic into events with Spark's built-in functions.

A record is an event if :class:`~headrace.pipelines.source.decode.json_events.JsonDecoder` accepts
it, and its fields have the same values. Rejected records have no reason, and bounds of the event
time are not checked. These values are treated differently:

===================================================================== ========= ===============
value                                                                 here      in the decoder
===================================================================== ========= ===============
an object that a comma and members follow: ``{"a":1},"b":2``          taken     trailing-data
half of a surrogate pair in a field of type ``Any``, or not declared  taken     lone-surrogate
a number beyond a double within a field of type ``Any``               taken     out-of-range
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

from headrace.events.parsing.parser import slots
from headrace.model.event import EventSchema
from headrace.queries.compile.spark.parsing import document_of, is_object
from headrace.queries.compile.spark.texts import are_texts, may_be_others
from headrace.queries.compile.spark.validity import is_valid
from headrace.queries.compile.spark.values import values_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DOCUMENT, _VALUES, _WITH_VARIANTS = "parsed_document", "values_of_event", "parsed_with_variants"


def with_event(records: DataFrame, schema: EventSchema) -> DataFrame:
    """Returns records of a JSON topic with the column ``event``, null if a record is no event.

    The column is a struct of the fields that queries can use, of the types that
    :class:`~headrace.queries.language.functions.ValueType` lists. Fields are called f0, f1 ... by
    their place in the class, as Spark does not distinguish upper and lower case in names.
    :func:`~headrace.queries.compile.spark.column_of` reads the fields. Conditions on the event are
    not pushed down below the parser, so each record is parsed only once.

    Args:
        records: records with the column ``value``, binary or string, and any other columns.
        schema: schema of the topic's events.
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
    """Returns a column that Spark does not inline into other expressions.

    Otherwise conditions on events are pushed down below the parser, and each parses the event
    again.
    """
    from pyspark.sql import functions as f

    return f.when(f.spark_partition_id() >= 0, column)


def field_of(event: Column, schema: EventSchema, names: Sequence[str]) -> Column:
    """Returns the field at a path; null if a struct on the path is null.

    Args:
        event: the column that :func:`with_event` makes.
        schema: schema of the events.
        names: names of the path.
    """
    name, *rest = names
    slot, field = next(pair for pair in slots(schema).items() if pair[1].name == name)
    column = event.getField(slot)
    return column if field.schema is None else field_of(column, field.schema, rest)
