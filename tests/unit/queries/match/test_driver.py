"""Where what a batch adds to windows is sent."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec

from headrace.kafka.write.record import ProducerRecord
from headrace.model.partitioning import partition_of_key
from headrace.queries.declaration import StandingQueries
from headrace.queries.match.driver import MatchDriver
from headrace.queries.match.writer import MatchPiece
from headrace.sinks import batch_transactions
from headrace.sinks.api import Transaction
from headrace.sinks.topic_positions import TopicPositions


def _opened(monkeypatch, partitions):
    """A driver without brokers, and what it sends."""
    sent = []
    producer = SimpleNamespace(send=sent.extend, renew=lambda: False)
    monkeypatch.setattr(batch_transactions, "TransactionalProducer", lambda *_: producer)
    monkeypatch.setattr(TopicPositions, "versions", lambda *_: {})
    writers = SimpleNamespace(reader=SimpleNamespace(topic="clicks"))
    return MatchDriver(
        "match-clicks", {}, StandingQueries("ads", partitions=partitions), writers
    ), sent


def test_records_are_in_the_declared_partition_of_their_key_whatever_the_topic_has(monkeypatch):
    driver, sent = _opened(monkeypatch, partitions=3)
    names = [f"q{number}/0" for number in range(20)]
    piece = MatchPiece(20, 0, [(name, msgspec.Raw(b"{}")) for name in names], {}, "")
    driver.commit([msgspec.json.encode(piece).decode()], Transaction({}, {}), 0)
    assert [(record.key.decode(), record.partition) for record in sent] == [
        (name, partition_of_key(name.encode(), 3)) for name in names
    ]


def test_positions_are_recorded_behind_the_records_in_the_form_of_all_such_topics(monkeypatch):
    driver, sent = _opened(monkeypatch, partitions=1)
    piece = MatchPiece(1, 0, [("q/0", msgspec.Raw(b"{}"))], {}, "")
    driver.commit([msgspec.json.encode(piece).decode()], Transaction({"p-0": 7}, {}), 0)
    assert sent[1:] == [ProducerRecord("ads.positions", b"p-0", b"7", (), 0)]
