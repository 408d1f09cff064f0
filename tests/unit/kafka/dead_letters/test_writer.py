"""A record has one dead letter of a pipeline, also where its batch is repeated."""

from types import SimpleNamespace

import pytest

from headrace.errors import RecordRejectedError
from headrace.kafka.dead_letters import writer as dead_letter_writer
from headrace.kafka.dead_letters.writer import DeadLetterWriter
from headrace.model import DeadLetter, TopicPartition

CLICKS = TopicPartition("clicks", 0)
DERIVED = TopicPartition("clicks", -1)


def letter(offset, partition=CLICKS, **facts):
    return DeadLetter(partition, offset, "not-json", "it is cut off", b"k", b"x", **facts)


def since(start):
    return lambda partition, offset: offset >= start


@pytest.fixture
def kafka(monkeypatch):
    """What the topic of dead letters holds, and how often it was read; no header is taken."""
    kafka = SimpleNamespace(letters=[], reads=0)

    def find_written(*_):
        kafka.reads += 1
        return [SimpleNamespace(letter=stored, written_ms=0) for stored in kafka.letters]

    def send_each(_, letters):
        kafka.letters += [sent for sent in letters if not sent.headers]
        return {
            at: RecordRejectedError("clicks.dead", "a bad header")
            for at, sent in enumerate(letters)
            if sent.headers
        }

    monkeypatch.setattr(dead_letter_writer, "find_written", find_written)
    monkeypatch.setattr(dead_letter_writer, "send_each", send_each)
    monkeypatch.setattr(dead_letter_writer, "topic_ids", lambda _, names: dict.fromkeys(names, ""))
    monkeypatch.setattr(dead_letter_writer, "dead_letter_record", lambda letter, *_: letter)
    return kafka


@pytest.fixture
def writer():
    return DeadLetterWriter({}, "p", "1")


def offsets(kafka):
    return [stored.offset for stored in kafka.letters]


def test_what_a_crash_or_a_reset_left_is_not_written_again_by_any_batch(kafka, writer):
    kafka.letters = [letter(offset) for offset in (3, 12, 25)]
    writer.write([letter(12)], since(10))
    writer.write([letter(25), letter(26)], since(20))
    assert offsets(kafka) == [3, 12, 25, 26]
    assert kafka.reads == 1


def test_without_letters_nothing_is_read(kafka, writer):
    writer.write([], since(0))
    assert kafka.reads == 0


def test_a_letter_of_a_derived_row_is_always_written(kafka, writer):
    kafka.letters = [letter(-1, DERIVED)]
    writer.write([letter(-1, DERIVED)], since(0))
    assert offsets(kafka) == [-1, -1]


def test_what_kafka_rejects_with_the_headers_of_the_record_is_written_without_them(kafka, writer):
    writer.write([letter(1), letter(2, headers=(("n", b"\xff"),)), letter(3)], since(0))
    assert offsets(kafka) == [1, 3, 2]
    plain = kafka.letters[-1]
    assert (plain.headers, plain.key, plain.value) == ((), b"k", b"x")
    assert "a bad header" in plain.detail


def test_what_is_rejected_without_headers_too_is_raised(kafka, writer, monkeypatch):
    def send_each(_, letters):
        return {at: RecordRejectedError("clicks.dead", "too large") for at in range(len(letters))}

    monkeypatch.setattr(dead_letter_writer, "send_each", send_each)
    with pytest.raises(RecordRejectedError, match="too large"):
        writer.write([letter(1)], since(0))
