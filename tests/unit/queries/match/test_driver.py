"""Where what a batch adds to windows is sent."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec

from headrace.model.partitioning import partition_of_key
from headrace.queries.declaration import StandingQueries
from headrace.queries.match import driver as driver_module
from headrace.queries.match.driver import MatchDriver
from headrace.queries.match.writer import MatchPiece
from headrace.sinks.api import Transaction


def test_records_are_in_the_declared_partition_of_their_key_whatever_the_topic_has(monkeypatch):
    sent = []
    producer = SimpleNamespace(send=sent.extend)
    monkeypatch.setattr(driver_module, "TransactionalProducer", lambda *_: producer)
    positions = SimpleNamespace(versions=lambda _: {})
    monkeypatch.setattr(driver_module, "MatchPositions", lambda *_: positions)
    writers = SimpleNamespace(reader=SimpleNamespace(topic="clicks"))
    driver = MatchDriver("match-clicks", {}, StandingQueries("ads", partitions=3), writers)
    names = [f"q{number}/0" for number in range(20)]
    piece = MatchPiece(20, 0, [(name, msgspec.Raw(b"{}")) for name in names], {}, "")
    driver.commit([msgspec.json.encode(piece).decode()], Transaction({}, {}), 0)
    assert [(record.key.decode(), record.partition) for record in sent] == [
        (name, partition_of_key(name.encode(), 3)) for name in names
    ]
