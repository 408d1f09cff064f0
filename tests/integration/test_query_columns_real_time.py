"""Spark's real-time mode takes events, constants of rules, and all that a condition may have."""

from __future__ import annotations

import confluent_kafka
import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as t
from tests.integration.visits import EVENT, compiled, condition, decoded, json_text, plain
from tests.kafka_topics import make_topic
from tests.unit.queries.compile.arrow.expressions import VISITS
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace.kafka.client.clients import client_config, connected_producer, consumer
from headrace.queries.compile.spark import ConstantLayout, column_of, with_event
from headrace.queries.language.tree import Path
from headrace.settings import KafkaSettings

CONDITIONS = [
    *("views + 1 > price OR -views * 2 < price - 1", "views / 0 = 1", "country IN ('PL', 'DE')"),
    *("title LIKE '_%a%_' OR title NOT LIKE 'a%'", "owner.name IS NULL", "seen IS NOT NULL"),
    *("views BETWEEN 1 AND 2.5", "at >= '2026-05-01T00:00:00Z'", "NOT is_new = TRUE"),
    *("cost IN (1, 2.5)", "lower(title) = 'a' AND upper(title) != 'É'", "length(title) = 1"),
    *("startsWith(title, 'a')", "endsWith(title, 'a')", "contains(title, 'a')"),
    *("abs(price) = 2.5", "floor(price) = 2", "ceil(price) = 3"),
]
EXPRESSIONS = [condition(text) for text in CONDITIONS]
LAYOUTS = [ConstantLayout(compiled(each).constant_types) for each in EXPRESSIONS]
WORDS = {True: "true", False: "false", None: "null"}


@pytest.mark.usefixtures("without_call_sites")
def test_real_time_mode_evaluates_all_of_the_language(spark, broker, topic, tmp_path):
    config = client_config(KafkaSettings(), broker.bootstrap_servers)
    source, target = topic("visits"), topic("evaluated")
    make_topic(config, source)
    make_topic(config, target)
    texts = [json_text(EVENT), json_text(EVENT | {"title": "é", "views": 2}), json_text(EVENT)]
    send(config, source, [b"no event", *texts])

    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    reader = spark.readStream.format("kafka").options(**kafka)
    records = reader.options(subscribe=source, startingOffsets="earliest").load()
    writer = evaluated(records, rules(spark)).writeStream.format("kafka").options(**kafka)
    writer = writer.options(topic=target, checkpointLocation=str(tmp_path)).outputMode("update")
    query = writer.trigger(realTime="5 seconds").start()
    try:
        received = take(config, target, len(texts))
    finally:
        query.stop()

    rows = decoded(texts)
    columns = [plain(compiled(each).evaluate(rows)) for each in EXPRESSIONS]
    assert received == [" ".join(map(WORDS.get, row)) for row in zip(*columns, strict=True)]


def rules(spark):
    """A table with one rule: the country of its events, and the constants of all conditions."""
    schema, row = t.StructType().add("rule_country", "string"), ["PL"]
    for number, (layout, expression) in enumerate(zip(LAYOUTS, EXPRESSIONS, strict=True)):
        schema = schema.add(f"constants{number}", ConstantLayout.struct_type())
        row.append(layout.values(compiled(expression).constants))
    return spark.createDataFrame([tuple(row)], schema)


def evaluated(records, table):
    """The values of all conditions, for each event that has a rule."""
    event = f.col("event")
    country = column_of(Path(("country",)), VISITS, event)
    pairs = with_event(records, VISITS).join(f.broadcast(table), country == f.col("rule_country"))
    values = [
        column_of(each, VISITS, event, layout.columns(f.col(f"constants{number}")))
        for number, (layout, each) in enumerate(zip(LAYOUTS, EXPRESSIONS, strict=True))
    ]
    words = [f.coalesce(value.cast("string"), f.lit("null")) for value in values]
    return pairs.select(f.concat_ws(" ", *words).alias("value"))


def send(config, topic, values):
    sender = connected_producer(config)
    for value in values:
        sender.produce(topic, value)
    assert sender.flush(FLUSH_SECONDS) == 0


def take(config, topic, count):
    """The values of the first records of a topic, as soon as they are there."""
    reader = consumer(config)
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    while len(values) < count:
        record = reader.poll(LIMIT_SECONDS)
        assert record is not None
        if record.error() is None:
            values.append(record.value().decode())
    reader.close()
    return values
