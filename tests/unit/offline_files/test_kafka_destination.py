"""What a destination in Kafka says of lines that it has no topic for."""

import time

from headrace.ingest.events.json_limits import JsonLimits
from headrace.offline_files.entry import Entry, Line
from headrace.offline_files.kafka_destination import KafkaDestination


def test_a_table_without_a_topic_is_not_declared():
    destination = KafkaDestination({}, "host", {}, (JsonLimits(1, 1, 1), time.time), "0")
    rejected = destination._event(Entry(Line("f", 1, b"{}"), 1, "nowhere", {}, ""))
    assert (rejected.reason, rejected.detail) == (
        "unknown-table",
        "no topic is declared for table 'nowhere'",
    )
