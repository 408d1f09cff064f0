"""Lines become events: which are sent, which are rejected, and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError
from tests.avro_files import block, container
from tests.mock_brokers import PRODUCE, MockBrokers

from headrace import Merger, Mirror
from headrace.errors import (
    AccountMissingError,
    LinkTargetError,
    SpreadsUnknownError,
    TopicMissingError,
)
from headrace.ingest.events.validation import Accepted
from headrace.ingest.producing.produce import (
    ProduceOptions,
    ProduceProgress,
    ProduceResult,
    RejectedLine,
    produce_lines,
    read_lines,
)
from headrace.kafka.write.counting_producer import CountingProducer
from headrace.model import ByAccount, Topic
from headrace.project.loaded import LoadedProject
from headrace.settings import Settings


class View:
    event_id: str
    page: str


VIEWS = Topic("views", event=View, key="event_id", event_id="event_id")
BY_ACCOUNT = Topic(
    "by-account", event=View, partitions=2, partitioning=ByAccount(timedelta(days=1))
)
RAW = Topic("raw")
GOOD = b'{"event_id": "a", "page": "/"}\n'
BAD = b'{"event_id": "b", "page": 7}\n'


@pytest.fixture
def brokers(monkeypatch) -> MockBrokers:
    made = MockBrokers()
    made.create("views")
    made.create("raw", RAW.partitions)
    made.create("by-account", BY_ACCOUNT.partitions)
    monkeypatch.setattr("headrace.ingest.producing.produce.broker_config", lambda _: made.config)
    monkeypatch.setattr("headrace.ingest.producing.produce.describe", lambda _, names: names)
    return made


@pytest.fixture
def produce(brokers, tmp_path):
    """``produce(text, skip_invalid=True)``: the result, and what was observed."""
    settings = Settings(tmp_path, "p", ("flow",), "lake")
    project = LoadedProject(settings, (VIEWS, BY_ACCOUNT, RAW))

    def run(text: bytes, stop=None, topic="views", **options) -> tuple[ProduceResult, list]:
        observed = []
        file = tmp_path / "events.ndjson"
        file.write_bytes(text)
        descriptor = os.open(file, os.O_RDONLY)
        try:
            result = produce_lines(
                project,
                topic,
                descriptor,
                ProduceOptions(**options),
                observe=observed.append,
                stop=stop or threading.Event(),
            )
        finally:
            os.close(descriptor)
        return result, observed

    return run


@pytest.fixture
def sent(monkeypatch) -> list[bytes]:
    """The values that are handed to the Kafka client, in order."""
    values: list[bytes] = []
    send = CountingProducer.send

    def recorded(producer, topic, value, *rest, **options):
        values.append(value)
        send(producer, topic, value, *rest, **options)

    monkeypatch.setattr(CountingProducer, "send", recorded)
    return values


def test_every_line_is_sent_and_empty_ones_are_left_out(produce):
    result, _ = produce(GOOD * 3 + b"\n  \r\n" + GOOD.rstrip())
    assert (result.state, result.lines, result.sent, result.rejected) == ("finished", 6, 4, 0)


def test_a_line_that_is_not_valid_ends_it_behind_what_was_sent(produce):
    result, observed = produce(GOOD * 2 + BAD + GOOD)
    assert (result.state, result.lines, result.sent) == ("rejected", 3, 2)
    assert result.reasons == {"wrong-type": 1}
    [rejected] = [event for event in observed if isinstance(event, RejectedLine)]
    assert (rejected.line, rejected.reason) == (3, "wrong-type")
    assert rejected.detail == "field 'page' is an integer, expected a string"
    assert json.loads(rejected.text)["page"] == 7


def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it(produce, sent):
    result, _ = produce(b"\xef\xbb\xbf" + GOOD + GOOD)
    assert (result.state, result.sent) == ("finished", 2)
    assert sent == [GOOD.rstrip()] * 2


def test_lines_that_are_not_valid_can_be_left_out(produce):
    result, observed = produce(BAD + GOOD + b"{\n" + GOOD, skip_invalid=True)
    assert (result.state, result.lines, result.sent) == ("finished", 4, 2)
    assert result.reasons == {"wrong-type": 1, "not-json": 1}
    assert [event.line for event in observed if isinstance(event, RejectedLine)] == [1, 3]


def test_lines_of_white_space_are_records_where_lines_need_not_be_json(produce):
    result, _ = produce(b"  \r\n\n\x0b\n", unchecked=True)
    assert (result.lines, result.sent) == (3, 2)


@pytest.mark.parametrize("options", [{"topic": "raw"}, {"unchecked": True}])
def test_of_lines_that_need_not_be_json_nothing_but_the_newline_is_cut(produce, sent, options):
    produce(b"\x00\r\n\r\n\r", **options)
    assert sent == [b"\x00\r", b"\r", b"\r"]


def test_a_json_event_is_sent_without_the_carriage_return_of_its_line_end(produce, sent):
    produce(GOOD.rstrip() + b"\r\n" + GOOD.rstrip() + b"\r")
    assert sent == [GOOD.rstrip()] * 2


def test_a_topic_that_places_by_account_needs_one_unless_lines_are_unchecked(produce):
    with pytest.raises(AccountMissingError, match="--account"):
        produce(GOOD, topic="by-account")
    assert produce(GOOD, topic="by-account", account="acme")[0].sent == 1
    assert produce(GOOD, topic="by-account", unchecked=True)[0].sent == 1


def test_lines_before_one_whose_spreads_are_not_known_are_sent(produce, sent, monkeypatch):
    lines = iter((b"1", b"2", None))
    senders, poll = [], CountingProducer.poll

    def check(*_):
        line = next(lines)
        if line is None:
            raise SpreadsUnknownError("views", "it was not read")
        return Accepted(line, b"", "", -1)

    monkeypatch.setattr("headrace.ingest.producing.produce.TopicCheck", lambda *_: check)
    monkeypatch.setattr(
        CountingProducer, "poll", lambda sender, wait: senders.append(sender) or poll(sender, wait)
    )
    with pytest.raises(SpreadsUnknownError):
        produce(3 * GOOD)
    assert sent == [b"1", b"2"]
    assert senders[-1].acknowledged == {"views": 2}


@pytest.mark.parametrize(
    ("topic", "writer"),
    [("waw.raw", "mirror waw"), ("merged", "merger merge"), ("late", "merger merge")],
)
def test_nothing_is_sent_into_a_topic_that_a_mirror_or_merger_writes(tmp_path, topic, writer):
    copy, merged, late = Topic("waw.raw"), Topic("merged"), Topic("late")
    project = LoadedProject(
        Settings(tmp_path, "p", ("flow",), "lake"),
        (
            *(copy, RAW, merged, late),
            Mirror("waw", source="waw", topics={"raw": copy}),
            Merger("merge", [copy, RAW], merged, late),
        ),
    )
    with pytest.raises(LinkTargetError, match=writer):
        produce_lines(
            project, topic, 0, ProduceOptions(), observe=lambda _: None, stop=threading.Event()
        )


AVRO = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "event_id", "type": "string"},
        {"name": "page", "type": ["string", "long"]},
    ],
}


def avro_views(*pages):
    return [{"event_id": f"e-{number}", "page": page} for number, page in enumerate(pages)]


def test_records_of_an_avro_file_are_sent_as_events_of_the_topic(produce, sent):
    file = container(AVRO, avro_views("/", "/docs"), avro_views("/"), codec="deflate")
    result, _ = produce(file, is_avro=True)
    assert (result.state, result.lines, result.sent) == ("finished", 3, 3)
    assert [json.loads(value) for value in sent[:2]] == [
        {"event_id": "e-0", "page": "/"},
        {"event_id": "e-1", "page": "/docs"},
    ]


def test_a_record_and_a_block_that_can_not_be_read_are_rejected_with_their_place(produce):
    good = container(AVRO, avro_views("/"))
    file = good + block(AVRO, avro_views("/", "/"), count=3) + block(AVRO, avro_views("/", 7, "/"))
    result, observed = produce(file, is_avro=True, skip_invalid=True)
    damaged, unfit = (event for event in observed if isinstance(event, RejectedLine))
    assert (damaged.line, damaged.reason) == (2, "damaged-block")
    assert f"the block at byte {len(good)}, of 3 record(s)" in damaged.detail
    assert (unfit.line, unfit.reason) == (6, "wrong-type")
    assert (result.state, result.lines, result.sent, result.rejected) == ("finished", 7, 3, 4)
    assert result.reasons == {"damaged-block": 3, "wrong-type": 1}
    result, _ = produce(file, is_avro=True)
    assert (result.state, result.lines, result.sent) == ("rejected", 4, 1)


def test_unchecked_lines_are_sent_as_they_are(produce):
    result, _ = produce(BAD + b"\xff\n", unchecked=True)
    assert (result.state, result.sent, result.rejected) == ("finished", 2, 0)


def test_an_event_that_kafka_does_not_take_is_named_and_not_counted(produce, brokers):
    assert produce(GOOD)[0].sent == 1
    brokers.answer(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    result, observed = produce(GOOD)
    assert (result.state, result.sent, result.not_acknowledged) == ("failed", 0, 1)
    assert result.failed_lines == (1,)
    assert "allow WRITE on topic views" in result.failure
    assert observed[-1] == ProduceProgress(1, 0, 0)


def test_a_stop_leaves_the_rest_unread(produce):
    stop = threading.Event()
    stop.set()
    result, _ = produce(GOOD, stop=stop)
    assert (result.state, result.lines, result.sent) == ("interrupted", 0, 0)


def test_a_topic_that_is_not_there_is_not_made(produce, monkeypatch):
    monkeypatch.setattr("headrace.ingest.producing.produce.describe", lambda *_: {})
    with pytest.raises(TopicMissingError):
        produce(GOOD)


def test_a_long_line_is_shown_in_part(produce):
    _, observed = produce(b"x" * 1000)
    assert len(observed[0].text) == 203


def test_a_stream_is_read_as_it_comes_until_it_is_stopped():
    reader, writer = os.pipe()
    stop = threading.Event()
    lines = read_lines(reader, stop)
    os.write(writer, b"one\r\ntw")
    assert next(lines) == b"one\r"
    assert next(lines) is None
    os.write(writer, b"o\nthree")
    assert next(lines) == b"two"
    stop.set()
    assert list(lines) == []
    os.close(writer)
    os.close(reader)


def test_the_end_of_a_stream_ends_its_last_line():
    reader, writer = os.pipe()
    os.write(writer, b"one\n\ntwo")
    os.close(writer)
    assert list(read_lines(reader, threading.Event())) == [b"one", b"", b"two"]
    os.close(reader)


def test_a_stream_may_have_any_file_descriptor():
    """``select()`` takes those below 1,024 alone."""
    reader, writer = os.pipe()
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, 1_100)
    lines = read_lines(high, threading.Event())
    os.write(writer, b"one\ntwo")
    assert next(lines) == b"one"
    assert next(lines) is None
    os.close(writer)
    assert list(lines) == [b"two"]
    os.close(high)
    os.close(reader)


def test_a_line_may_come_in_any_number_of_pieces(tmp_path):
    long = b"x" * 1_000_000
    file = tmp_path / "lines"
    file.write_bytes(b"short\n" + long + b"\r\n\n" + long)
    with file.open("rb") as opened:
        lines = list(read_lines(opened.fileno(), threading.Event()))
    assert lines == [b"short", long + b"\r", b"", long]
