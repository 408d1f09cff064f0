"""Texts of dead letters: any characters, of a bounded length; one letter fails alone."""

import confluent_kafka
import pytest

from headrace.kafka.client.headers import header_text
from headrace.kafka.dead_letters.letters import dead_letter_record
from headrace.kafka.dead_letters.replayed import PartitionId, addressees
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.sending import send_each
from headrace.model import DeadLetter, TopicPartition

KIB = 1024


def test_any_text_can_be_written():
    assert header_text("caf\u00e9 \ud800") == "caf\u00e9 \\ud800".encode()
    assert header_text(7) == b"7"


def test_a_long_text_is_cut_between_characters():
    written = header_text("\u00e9" * 5000)
    assert len(written) <= 8 * KIB
    assert written.decode() == "\u00e9" * ((8 * KIB - 3) // 2) + "\u2026"
    assert header_text("x" * 8 * KIB) == b"x" * 8 * KIB


def test_a_letter_takes_reasons_and_details_of_any_kind():
    letter = DeadLetter(TopicPartition("t", 0), 1, "\ud800", "x" * KIB**2, None, b"v")
    written = dict(dead_letter_record(letter, "pipeline", "1", "id").headers)
    assert written["headrace-reason"] == b"\\ud800"
    assert len(written["headrace-detail"]) == 8 * KIB


def test_a_letter_counts_the_replays_to_its_place_and_no_others():
    origin, count = TopicPartition("t", 0), ("headrace-replays", b"2")
    for topic_id, kept in (("id", [count]), ("another", [])):
        readers = addressees(["pipeline"], PartitionId(origin, topic_id))
        letter = DeadLetter(origin, 1, "", "", None, b"v", (count, readers))
        headers = dead_letter_record(letter, "pipeline", "1", "id").headers
        assert [one for one in headers if one[0].startswith("headrace-replay")] == kept


@pytest.fixture
def config():
    cluster = confluent_kafka.Producer({"bootstrap.servers": "-", "test.mock.num.brokers": "1"})
    brokers = cluster.list_topics("t.dead", timeout=10).brokers.values()
    yield {"bootstrap.servers": ",".join(f"{one.host}:{one.port}" for one in brokers)}
    cluster.flush()


def test_a_record_that_kafka_cannot_take_fails_alone(config):
    names = ["fine", "\ud800", "fine too"]
    records = [ProducerRecord("t.dead", None, b"", ((name, b""),)) for name in names]
    [(index, error)] = send_each(config, records).items()
    assert index == 1
    assert "UnicodeEncodeError" in str(error)
