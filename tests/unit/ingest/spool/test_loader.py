"""The loader: in order, at least once, one at a time."""

import logging
import threading

import pytest
from tests.unit.ingest.spool.kafka import taking

from headrace.ingest.spool import Loader


def test_what_send_refuses_is_sent_again_and_nothing_is_removed(open_spool, record, texts):
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
    assert "replaying the spool failed" in caplog.text
