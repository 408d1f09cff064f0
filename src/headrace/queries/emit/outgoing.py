"""Matched events as Spark columns without Python functions: real-time mode runs no Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from headrace.kafka.origin import ORIGIN
from headrace.model.event import EventSchema
from headrace.queries.compile.spark import ConstantLayout, column_of, with_event
from headrace.queries.emit.matched_event import REGISTRY_OFFSET, REVISION
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.rules import (
    EVERY_EVENT,
    EmittingRules,
    Lookup,
    ShapeRules,
)
from headrace.queries.emit.sent import SentOfEvent
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Path
from headrace.queries.match.held import QueryIdentity
from headrace.spark.header_columns import header, headers_or_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from headrace.model import TopicPartition


@dataclass(frozen=True)
class RuleColumns:
    """The Spark columns of rules. Making them is the slowest part of a start.

    Attributes:
        rules: the rules that are matched.
        keys: an event's keys for the lookup of rules.
        is_met: whether an event meets the conditions of the rule in the same row.
    """

    rules: EmittingRules
    keys: tuple[Column, ...]
    is_met: Column

    @classmethod
    def of(cls, rules: EmittingRules, schema: EventSchema) -> RuleColumns:
        """Returns the columns of rules. Needs a Spark session."""
        from pyspark.sql import functions as f

        keys = [_key(lookup, schema) for lookup in rules.lookups]
        if rules.looks_at_every_event:
            keys.append(f.xxhash64(f.lit(EVERY_EVENT)))
        return cls(rules, tuple(keys), _is_met(rules.shapes, schema))


def outgoing_rows(
    records: DataFrame,
    matched: EmitterPlan,
    columns: RuleColumns,
    sent: Mapping[TopicPartition, SentOfEvent],
) -> DataFrame:
    """Returns the matched events, as rows for Spark's Kafka sink.

    Args:
        records: records of Spark's Kafka source, with headers.
        matched: the topic of events, and the topic that matched events are sent to.
        columns: columns of the rules that are matched.
        sent: events whose records for these queries are not sent again, by partition of events.

    Returns:
        Rows ``topic``, ``partition``, ``key``, ``value``, ``headers``, one for each event and query
        that match.
    """
    from pyspark.sql import functions as f

    rules, schema, event_time = columns.rules, matched.schema, matched.topic.event_time or ""
    events = with_event(records, schema)
    time = column_of(Path((event_time,)), schema, f.col("event"))
    events = events.where(time.isNotNull())
    candidates = events.withColumn("lookup", f.explode(f.array(*columns.keys)))
    pairs = candidates.join(f.broadcast(_table(records, rules)), "lookup")
    has_begun = f.col("begins").isNull() | (
        f.col("offset") >= f.coalesce(f.get("begins", f.col("partition")), f.lit(0))
    )
    met = pairs.where(has_begun & columns.is_met & _is_new(sent))
    return met.select(
        f.lit(matched.queries.matched_events_topic).alias("topic"),
        f.pmod("partition", f.lit(matched.queries.partitions)).alias("partition"),
        f.col("query").alias("key"),
        "value",
        _headers(matched, rules).alias("headers"),
    )


def _key(lookup: Lookup, schema: EventSchema) -> Column:
    """Returns the hash of an event's lookup key, which equals that of :meth:`Lookup.key`."""
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
    columns = t.StructType.fromDDL(
        "lookup string, query string, revision bigint, shape int, begins array<bigint>"
    )
    names = columns.names[:-1]
    values = [
        (*(row[name] for name in names), _begins(rules, row["identity"]), row["constants"])
        for row in rules.rows
    ]
    table = records.sparkSession.createDataFrame(values, columns.add(constants))
    return table.withColumn("lookup", f.xxhash64("lookup"))


def _begins(rules: EmittingRules, identity: QueryIdentity) -> list[int] | None:
    """Returns the offset at which a query begins, by partition; ``None`` if at the first read."""
    begins = rules.begins.get(identity)
    return [begins.get(p, 0) for p in range(max(begins) + 1)] if begins else None


def _is_met(shapes: tuple[ShapeRules, ...], schema: EventSchema) -> Column:
    """Returns the column that says whether an event meets the conditions of the row's rule."""
    from pyspark.sql import functions as f

    met = f.lit(False)
    for number, rules in enumerate(shapes):
        constants = rules.layout.columns(f.col("constants"))
        conditions = []
        for condition, operand in zip(rules.conditions, rules.shape.operands, strict=True):
            # Constants are in the order of operands: each operand takes its own from the front.
            own, constants = (
                constants[: len(operand.constant_types)],
                constants[len(operand.constant_types) :],
            )
            conditions.append(column_of(condition, schema, f.col("event"), own))
        met = f.when(
            f.col("shape") == number,
            reduce(lambda left, right: left & right, conditions, f.lit(True)),
        ).otherwise(met)
    return met


def _is_new(sent: Mapping[TopicPartition, SentOfEvent]) -> Column:
    """Returns the column that says whether a matched event was not sent before."""
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


def _headers(matched: EmitterPlan, rules: EmittingRules) -> Column:
    from pyspark.sql import functions as f

    place = f.concat_ws("/", f.lit(matched.site), "topic", "partition", "offset")
    added = f.array(
        header(REVISION, f.col("revision").cast("string")),
        header(REGISTRY_OFFSET, f.lit(str(rules.registry.offset))),
        header(ORIGIN, place),
    )
    return f.concat(headers_or_empty(f.col("headers")), added)
