"""Every codec that clients and topics may have: the log has it, and records are read back."""

import pytest
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS

from headrace.kafka.client.clients import client_config, connected_producer
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import OffsetRange, TopicPartition
from headrace.settings import PRODUCER_SETTINGS, KafkaSettings

CODECS = PRODUCER_SETTINGS["compression.type"].split("|")
NUMBERS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs by their numbers in the log."""
ATTRIBUTES = slice(21, 23)  # of a batch of records, format 2
VALUES = [b"a value that can be compressed " * 10] * 10


@pytest.mark.parametrize("codec", CODECS)
def test_records_have_the_codec_of_the_client_or_of_their_topic_and_are_read_back(
    broker, topic, codec
):
    of_client, of_topic = topic(), topic()
    setting = {"compression.type": "uncompressed" if codec == "none" else codec}
    for name, client, declared in ((of_client, codec, {}), (of_topic, "none", setting)):
        settings = KafkaSettings(client={"compression.type": client})
        config = client_config(settings, broker.bootstrap_servers)
        make_topic(config, name, 1, config=declared)
        producer = connected_producer(config)
        for value in VALUES:
            producer.produce(name, value)
        assert producer.flush(FLUSH_SECONDS) == 0
        assert codec_of(broker, name) == codec
        wanted = [OffsetRange(TopicPartition(name, 0), 0, len(VALUES))]
        chunks = KafkaCluster(config).read(wanted)
        assert [record.value() for chunk in chunks for record in chunk.records] == VALUES


def codec_of(broker, topic):
    """The codec of the first batch in the log of a topic."""
    [log] = (broker.folder / "kafka" / "node-1" / "data" / f"{topic}-0").glob("*.log")
    attributes = int.from_bytes(log.read_bytes()[ATTRIBUTES], "big")
    return NUMBERS[attributes & 7]
