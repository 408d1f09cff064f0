"""Events that match, as columns of Spark's own functions: real-time mode runs no Python."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from headrace.model.event import EventSchema
from headrace.queries.columns import ConstantLayout, column_of, with_event
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Path
from headrace.queries.matched_events.positions import MatchedTopic
from headrace.queries.matched_events.rules import EVERY_EVENT, EmittingRules, Lookup, ShapeRules
from headrace.queries.matched_events.sent import SentOfEvent
from headrace.transfer.columns import header, headers_or_empty
from headrace.transfer.origin import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from headrace.model import TopicPartition

REVISION = "headrace-query-revision"
"""The name of the header with the revision of the query, a decimal number."""

REGISTRY_OFFSET = "headrace-registry-offset"
"""The name of the header with the offset of the topic of queries before which the queries are."""


def matched_events(
    records: DataFrame,
    matched: MatchedTopic,
    rules: EmittingRules,
    sent: Mapping[TopicPartition, SentOfEvent],
) -> DataFrame:
    """Returns the events that match, as rows for Spark's Kafka sink.

    Args:
        records: of Spark's Kafka source, with headers.
        matched: where they come from, and where they go.
        rules: that are matched.
        sent: what is not sent again, by partition of the source.

    Returns:
        Rows ``topic``, ``partition``, ``key``, ``value``, ``headers``, one for each event and query
        that match.
    """
    from pyspark.sql import functions as f

    schema, event_time = matched.schema, matched.topic.event_time or ""
    events = with_event(records, schema)
    time = column_of(Path((event_time,)), schema, f.col("event"))
    events = events.where(time.isNotNull())
    keys = [_key(lookup, schema) for lookup in rules.lookups]
    if rules.looks_at_every_event:
        keys.append(f.xxhash64(f.lit(EVERY_EVENT)))
    candidates = events.withColumn("lookup", f.explode(f.array(*keys)))
    pairs = candidates.join(f.broadcast(_table(records, rules)), "lookup")
    met = pairs.where(_is_met(rules.shapes, schema)).where(_is_new(sent))
    return met.select(
        f.lit(matched.queries.matched_events_topic).alias("topic"),
        f.pmod("partition", f.lit(matched.queries.partitions)).alias("partition"),
        f.col("query").alias("key"),
        "value",
        _headers(matched, rules).alias("headers"),
    )


def _key(lookup: Lookup, schema: EventSchema) -> Column:
    """The value of an expression, as :meth:`Lookup.key` has it."""
    from pyspark.sql import functions as f

    value = column_of(lookup.expression, schema, f.col("event"))
    if lookup.type is ValueType.NUMBER:
        value = f.floor(value)
    elif lookup.type is ValueType.TIME:
        value = f.unix_micros(value)
    return f.xxhash64(f.concat(f.lit(f"{lookup.number}:"), value.cast("string")))


def _table(records: DataFrame, rules: EmittingRules) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    constants = t.StructField("constants", ConstantLayout.struct_type())
    columns = t.StructType.fromDDL("lookup string, query string, revision bigint, shape int")
    names = [*columns.names, "constants"]
    values = [tuple(row[name] for name in names) for row in rules.rows]
    table = records.sparkSession.createDataFrame(values, columns.add(constants))
    return table.withColumn("lookup", f.xxhash64("lookup"))


def _is_met(shapes: tuple[ShapeRules, ...], schema: EventSchema) -> Column:
    """Whether an event meets the conditions of the rule beside it."""
    from pyspark.sql import functions as f

    met = f.lit(False)
    for number, rules in enumerate(shapes):
        met = f.when(f.col("shape") == number, _meets(rules, schema)).otherwise(met)
    return met


def _meets(rules: ShapeRules, schema: EventSchema) -> Column:
    from pyspark.sql import functions as f

    constants = rules.layout.columns(f.col("constants"))
    conditions = []
    for condition, operand in zip(rules.conditions, rules.shape.operands, strict=True):
        own, constants = (
            constants[: len(operand.constant_types)],
            constants[len(operand.constant_types) :],
        )
        conditions.append(column_of(condition, schema, f.col("event"), own))
    return reduce(lambda left, right: left & right, conditions, f.lit(True))


def _is_new(sent: Mapping[TopicPartition, SentOfEvent]) -> Column:
    """Whether a matched event was not sent before."""
    from pyspark.sql import functions as f

    new = f.lit(True)
    for source, event in sent.items():
        was_sent = (
            (f.col("partition") == source.partition)
            & (f.col("offset") == event.offset)
            & f.col("query").isin(*sorted(event.queries))
        )
        new = new & ~was_sent
    return new


def _headers(matched: MatchedTopic, rules: EmittingRules) -> Column:
    from pyspark.sql import functions as f

    place = f.concat_ws("/", f.lit(matched.site), "topic", "partition", "offset")
    added = f.array(
        header(REVISION, f.col("revision").cast("string")),
        header(REGISTRY_OFFSET, f.lit(str(rules.registry_offset))),
        header(ORIGIN, place),
    )
    return f.concat(headers_or_empty(f.col("headers")), added)
