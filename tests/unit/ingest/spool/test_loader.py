"""The loader: in order, at least once, one at a time."""

import base64
import contextlib
import errno
import json
import logging
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ingest.spool.kafka import taking

from headrace.errors import SpoolError
from headrace.ingest.spool.loader import Loader, NotSentError, SendResult
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits


def test_what_send_rejects_is_sent_again_and_nothing_is_removed(open_spool, record, texts):
    spool = open_spool()
    spool.append([record(n) for n in range(5)])
    failures, sent = [TimeoutError("Kafka is away")], []

    def send(records):
        if failures:
            raise failures.pop()
        sent.extend(records)

    loader = Loader(spool, taking(send))
    with pytest.raises(TimeoutError, match="away"):
        loader.run_once()
    assert spool.pending
    assert loader.run_once().records == 5
    assert texts(sent) == list("01234")


def test_batches_hold_a_thousand_records_at_most(open_spool, record, texts):
    spool = open_spool(segment_bytes=200_000)
    for start in range(0, 3000, 500):
        spool.append([record(start + n) for n in range(500)])
    sizes, sent = [], []

    def send(records):
        sizes.append(len(records))
        sent.extend(records)

    report = Loader(spool, taking(send)).run_once()
    assert max(sizes) == 1000
    assert texts(sent) == [str(n) for n in range(3000)]
    assert report.records == 3000


def test_a_record_larger_than_the_window_is_one_like_others(open_spool, record, texts):
    spool = open_spool()
    large = "x" * 5_000_000
    spool.append([record("a"), record(large), record("b")])
    sent = []
    Loader(spool, taking(sent.extend)).run_once()
    assert texts(sent) == ["a", large, "b"]


def test_a_second_loader_stands_by_and_takes_over(open_spool, record, texts):
    first_spool, second_spool = open_spool(), open_spool()
    first_sent, second_sent = [], []
    first, second = (
        Loader(first_spool, taking(first_sent.extend)),
        Loader(second_spool, taking(second_sent.extend)),
    )
    first_spool.append([record(1)])
    assert first.run_once().records == 1
    second_spool.append([record(2)])
    assert second.run_once().standby
    first.close()
    assert second.run_once().records == 1
    assert (texts(first_sent), texts(second_sent)) == (["1"], ["2"])
    second.close()


def test_with_kafka_away_the_lock_is_not_held_while_sending(open_spool, record):
    spool, other = open_spool(), open_spool()
    spool.append([record(1)])

    def send(_):
        other.append([record("meanwhile")])  # would never return if the lock were held
        raise ConnectionError("still away")

    with pytest.raises(ConnectionError):
        Loader(spool, taking(send)).run_once()
    assert spool.waiting == 2


def test_while_requests_wait_for_the_lock_sending_has_little_time(open_spool, record):
    spool, given = open_spool(), []
    spool.append([record("first")])

    def send(_, seconds):
        if not given:
            spool.append([record("while sending")])
        given.append(seconds)
        return SendResult()

    Loader(spool, send).run_once()
    without_lock, with_lock = given
    assert with_lock < 5 < without_lock


def test_run_goes_on_after_failures_until_it_is_stopped(open_spool, record, texts, caplog):
    spool, sent, stop = open_spool(), [], threading.Event()
    failures = [RuntimeError("once")]

    def send(records):
        if failures:
            raise failures.pop()
        sent.extend(records)
        stop.set()

    spool.append([record(1)])
    loader = Loader(spool, taking(send))
    with caplog.at_level(logging.ERROR):
        loader.run(stop)
    loader.close()
    assert texts(sent) == ["1"]
    assert "Replaying the spool failed" in caplog.text


def rejecting(sent, *rejected):
    """Takes all but the ``rejected`` texts."""

    def send(records, _):
        places = {
            place: "too large"
            for place, one in enumerate(records)
            if one.value.decode() in rejected
        }
        sent.extend(one for place, one in enumerate(records) if place not in places)
        return SendResult(places)

    return send


def rejected_texts(folder):
    files = sorted((folder / "quarantine").glob("*.rejected"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert {line["reason"] for line in lines} <= {"too large"}
    return [base64.b64decode(line["value"]).decode() for line in lines]


def test_what_is_rejected_for_ever_is_quarantined_and_the_rest_is_sent(
    open_spool, record, texts, folder
):
    spool, sent = open_spool(), []
    spool.append([record(n) for n in range(5)])
    report = Loader(spool, rejecting(sent, "0", "3")).run_once()
    assert (report.records, report.rejected, report.missing) == (3, 2, 0)
    assert texts(sent) == ["1", "2", "4"]
    assert rejected_texts(folder) == ["0", "3"]
    stats = spool.stats()
    assert (stats.records, stats.rejected, stats.missing, stats.quarantined) == (0, 2, 0, 1)


def test_a_line_of_what_is_quarantined_holds_the_whole_record(open_spool, record, folder):
    spool = open_spool()
    spool.append([record("a")])
    Loader(spool, rejecting([], "a")).run_once()
    (file,) = (folder / "quarantine").iterdir()
    assert json.loads(file.read_text()) == {
        "counter": 1,
        "reason": "too large",
        "topic": "events",
        "key": "a2V5",
        "value": "YQ==",
        "headers": [["h", "dg=="]],
        "timestamp_ms": 5,
        "partition": None,
    }


def test_of_a_batch_only_those_that_wait_are_sent_again(open_spool, record, texts, folder):
    spool, sent = open_spool(), []
    spool.append([record(n) for n in range(6)])
    outcomes = [
        SendResult({1: "too large"}, [2, 4, 5], "Kafka is away"),
        SendResult({2: "too large"}, [1], "Kafka is away"),
        SendResult(),
    ]

    def send(records, _):
        sent.append(texts(records))
        return outcomes.pop(0)

    loader = Loader(spool, send)
    for _ in range(2):
        with pytest.raises(NotSentError, match="away"):
            loader.run_once()
        assert spool.pending
    report = loader.run_once()
    assert sent == [list("012345"), list("245"), ["4"]]
    assert (report.records, report.rejected, report.missing) == (4, 2, 0)
    assert rejected_texts(folder) == ["1", "5"]


@settings(max_examples=100)
@given(
    appends=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    answers=st.lists(st.tuples(st.integers(0, 6), st.sets(st.integers(0, 5))), max_size=20),
)
def test_whatever_kafka_answers_each_record_is_taken_or_quarantined_once_and_in_order(
    tmp_path_factory, appends, answers
):
    folder = tmp_path_factory.mktemp("answers") / "spool"
    spool, taken = Spool(folder, SpoolLimits(segment_bytes=300)), []

    def send(records, _):
        """A record that waits holds back those behind it, as a sender must."""
        count, rejected = answers.pop() if answers else (len(records), ())
        settled = range(min(count, len(records)))
        taken.extend(int(records[n].value) for n in settled if n not in rejected)
        reasons = {n: "too large" for n in settled if n in rejected}
        return SendResult(reasons, range(len(settled), len(records)))

    loader, number = Loader(spool, send), 0
    while appends or spool.pending:
        count = appends.pop() if appends else 0
        spool.append([_made(str(number + n)) for n in range(count)])
        number += count
        with contextlib.suppress(NotSentError):
            loader.run_once()
    aside = [int(text) for text in rejected_texts(folder)]
    assert (taken, aside) == (sorted(taken), sorted(aside))
    assert sorted(taken + aside) == list(range(number))
    assert (spool.stats().rejected, spool.stats().missing) == (len(aside), 0)
    loader.close()
    spool.close()


def _made(text):
    return SpoolRecord("events", b"key", text.encode(), (), 0, None)


def test_where_there_is_no_room_the_segment_of_what_is_rejected_is_kept(
    open_spool, record, texts, folder, monkeypatch
):
    spool, sent = open_spool(), []
    spool.append([record(n) for n in range(3)])
    (segment,) = folder.glob("*.segment")
    content = segment.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headrace.ingest.spool.quarantine.write_durably", full)
    assert Loader(spool, rejecting(sent, "1")).run_once().rejected == 1
    assert texts(sent) == ["0", "2"]
    assert (folder / "quarantine" / segment.name).read_bytes() == content
    assert not spool.pending


def test_a_disk_that_fills_within_what_is_quarantined_leaves_no_half_of_it(
    open_spool, record, folder, monkeypatch
):
    spool = open_spool()
    spool.append([record(n) for n in range(3)])
    (segment,) = folder.glob("*.segment")
    write = os.pwrite

    def filling(file, content, at):
        if bytes(content).startswith(b'{"counter"'):
            return write(file, content[:20], at)
        if len(content) > 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content, at)

    monkeypatch.setattr(os, "pwrite", filling)
    assert Loader(spool, rejecting([], "1")).run_once().rejected == 1
    assert [one.name for one in (folder / "quarantine").iterdir()] == [segment.name]


def test_a_batch_that_was_sent_is_not_sent_again_when_the_disk_fails_behind_it(
    open_spool, record, texts, folder, monkeypatch
):
    spool, sent = open_spool(), []
    spool.append([record(n) for n in range(3)])
    loader = Loader(spool, rejecting(sent, "1"))

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", broken)
        patch.setattr(os, "link", broken)
        with pytest.raises(SpoolError):
            loader.run_once()
    spool.append([record("next")])
    report = loader.run_once()
    assert texts(sent) == ["0", "2", "next"]
    assert (report.records, report.rejected, report.missing) == (3, 1, 0)
    assert rejected_texts(folder) == ["1"]
