from types import SimpleNamespace

import pytest

from headrace import Lake, Pipeline
from headrace.model import DeadLetter, Topic, TopicPartition
from headrace.pipelines import dead_letter_writer
from headrace.pipelines.dead_letter_writer import DeadLetterWriter

CLICKS = TopicPartition("clicks", 0)
NOWHERE = TopicPartition("clicks", -1)


def letter(offset, partition=CLICKS):
    return DeadLetter(partition, offset, "not-json", "", None, b"x")


@pytest.fixture
def kafka(monkeypatch):
    """What the topic of dead letters holds, and how often it was looked through."""
    kafka = SimpleNamespace(letters=[], looks=0)

    def find(*_):
        kafka.looks += 1
        return [SimpleNamespace(letter=one) for one in kafka.letters]

    module = dead_letter_writer.dead_letters
    monkeypatch.setattr(module, "find_written", find)
    monkeypatch.setattr(
        module, "write_dead_letters", lambda _, letters, *__: kafka.letters.extend(letters)
    )
    return kafka


@pytest.fixture
def writer():
    return DeadLetterWriter(Pipeline("p", Topic("clicks"), Lake("clicks")), {})


def offsets(kafka):
    return [one.offset for one in kafka.letters]


def test_what_a_crash_or_a_reset_left_is_not_written_again_by_any_batch(kafka, writer):
    kafka.letters = [letter(at) for at in (3, 12, 25)]
    writer.write([letter(12)], {CLICKS: 10})
    writer.write([letter(25), letter(26)], {CLICKS: 20})
    assert offsets(kafka) == [3, 12, 25, 26]
    assert kafka.looks == 1


def test_without_bad_records_nothing_is_looked_through(kafka, writer):
    writer.write([], {CLICKS: 0})
    assert kafka.looks == 0


def test_a_letter_of_a_derived_row_is_always_written(kafka, writer):
    kafka.letters = [letter(-1, NOWHERE)]
    writer.write([letter(-1, NOWHERE)], {CLICKS: 0})
    assert offsets(kafka) == [-1, -1]
