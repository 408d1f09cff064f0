"""The live queries of a process stand at the position of each batch, whatever happened between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.unit.queries.match.clicks import CLICKS
from tests.unit.queries.pipeline import REGISTERED, registration

from headrace.kafka.table import topic_table as table
from headrace.kafka.table.topic_table import MAX_IDLE_SECONDS, TableRecreatedError
from headrace.queries.match.held import RegistryReader, milliseconds_since_1970
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.testing.memory import MemoryCluster

COUNT = "SELECT count(*) FROM clicks"
TOPIC = "queries"


@pytest.fixture
def read(monkeypatch):
    """Ranges of offsets that were read."""
    ranges_read = []
    original = MemoryCluster.read

    def noted(self, ranges):
        ranges_read.extend((range_.start, range_.end) for range_ in ranges)
        return original(self, ranges)

    monkeypatch.setattr(MemoryCluster, "read", noted)
    return ranges_read


@pytest.fixture
def cluster():
    cluster = MemoryCluster()
    cluster.create(TOPIC)
    return cluster


@pytest.fixture
def reader(cluster, request):
    return RegistryReader(request.node.name, TOPIC, "clicks", CLICKS, cluster)


def put(cluster, *query_ids):
    for query_id in query_ids:
        key, value = registration(query_id, COUNT, topic="clicks")
        cluster.append(TOPIC, 0, value, key)


def cancel(cluster, query_id):
    cluster.append(TOPIC, 0, None, query_id.encode())


def live_at(reader, point):
    return {rule.query_id for rule in reader.at(point).rules}


def test_only_what_is_new_is_read(cluster, reader, read):
    for number in range(3):
        put(cluster, f"q{number}")
        assert len(live_at(reader, reader.end())) == number + 1
        assert len(live_at(reader, reader.end())) == number + 1
    assert read == [(0, 1), (1, 2), (2, 3)]


def test_records_of_a_log_that_was_cut_and_has_grown_again_are_read(cluster, reader):
    put(cluster, "kept", "lost")
    assert live_at(reader, reader.end()) == {"kept", "lost"}
    cluster.truncate(TOPIC, 0, 1)
    put(cluster, "new", "newer")
    assert live_at(reader, reader.end()) == {"kept", "new", "newer"}


def test_a_cut_log_that_ends_where_it_did_is_noticed(cluster, reader):
    put(cluster, "kept", "lost")
    assert live_at(reader, reader.end()) == {"kept", "lost"}
    cluster.truncate(TOPIC, 0, 1)
    put(cluster, "new")
    assert live_at(reader, reader.end()) == {"kept", "new"}


def test_another_leader_that_has_all_records_leads_on(cluster, reader, read):
    put(cluster, "q1")
    assert live_at(reader, reader.end()) == {"q1"}
    cluster.truncate(TOPIC, 0, 1)
    put(cluster, "q2")
    assert live_at(reader, reader.end()) == {"q1", "q2"}
    assert read == [(0, 1), (1, 2)]


def test_a_batch_that_is_repeated_has_the_queries_that_it_had(cluster, reader):
    put(cluster, "q1")
    first = reader.end()
    cancel(cluster, "q1")
    put(cluster, "q2")
    assert live_at(reader, reader.end()) == {"q2"}
    assert live_at(reader, first) == {"q1"}


def test_a_batch_of_an_earlier_time_has_queries_that_have_expired_since(cluster, reader):
    ends = REGISTERED + timedelta(minutes=1)
    query = RegisteredQuery("q1", COUNT, "clicks", 1, REGISTERED, REGISTERED, ends)
    key, value = encode_query(query)
    cluster.append(TOPIC, 0, value, key)
    before = replace(reader.end(), at_ms=milliseconds_since_1970(REGISTERED))
    assert live_at(reader, replace(before, at_ms=milliseconds_since_1970(ends))) == set()
    assert live_at(reader, before) == {"q1"}


def test_tombstones_that_retention_deletes_bring_no_query_back(cluster, reader):
    put(cluster, "cancelled")
    assert live_at(reader, reader.end()) == {"cancelled"}
    cancel(cluster, "cancelled")
    put(cluster, "q2")
    cluster.delete_before(TOPIC, 0, 2)
    assert live_at(reader, reader.end()) == {"q2"}


def test_tombstones_that_compaction_removes_bring_no_query_back(cluster, reader, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(table, "time", clock)
    put(cluster, "cancelled")
    assert live_at(reader, reader.end()) == {"cancelled"}
    cancel(cluster, "cancelled")
    put(cluster, "q2")
    for offset in (0, 1):
        del cluster._topics[TOPIC].partitions[0][offset]
    clock.monotonic = lambda: 2 * MAX_IDLE_SECONDS
    assert live_at(reader, reader.end()) == {"q2"}


def test_a_topic_that_was_made_again_is_refused(cluster, reader):
    put(cluster, "q1")
    planned = reader.end()
    cluster.create(TOPIC)
    with pytest.raises(TableRecreatedError, match="was recreated"):
        reader.at(planned)
