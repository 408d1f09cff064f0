"""The index of positions, as servers can't be brought to have it beside other tests."""

import json
from contextlib import contextmanager

import pytest
from tests.unit.sinks.opensearch.stand_in import FOREIGN, cluster

from headrace.errors import SinkError, SinkUnavailableError, TableMismatchError
from headrace.sinks.api import Transaction
from headrace.sinks.opensearch.positions import OpenSearchPositions

KEPT = {"type": "object", "enabled": False}
ACKNOWLEDGED = (200, {"acknowledged": True})
NO_INDEX = {"error": {"type": "index_not_found_exception", "reason": "no such index"}}


@contextmanager
def positions_of(answers):
    """Positions in a cluster with one answer to each method, and what they have sent."""
    with cluster(lambda method, *_: answers.get(method, ACKNOWLEDGED)) as (nodes, requests):
        positions = OpenSearchPositions(nodes, "clicks", "p")
        yield positions, requests
        positions.close()


def sent(requests):
    return [(path, json.loads(body)) for _, path, body in requests if body]


def mapped(properties):
    return {"GET": (200, {"headrace-positions": {"mappings": {"properties": properties}}})}


def test_an_index_with_fields_that_the_server_has_guessed_is_refused():
    guessed = {"versions": {"properties": {"app": {"type": "long"}}}}
    with positions_of(mapped(guessed)) as (positions, requests):
        with pytest.raises(SinkError, match="something else has created the index"):
            positions.create_index()
        assert sent(requests) == []


def test_an_index_gets_the_fields_that_it_lacks():
    with positions_of(mapped({"versions": KEPT})) as (positions, requests):
        positions.create_index()
    missing = {"properties": {"writer": KEPT, "index_uuids": KEPT}}
    assert sent(requests) == [("/headrace-positions/_mapping", missing)]


def test_nothing_is_recorded_where_the_server_would_have_to_guess_fields():
    with positions_of({"GET": (404, NO_INDEX)}) as (positions, requests):
        with pytest.raises(SinkError, match="the index was deleted; the next start creates it"):
            positions.record(Transaction({"app": 1}, {"app": None}))
        assert positions.versions(["app"]) == {}
        assert sent(requests) == []


NO_DOCUMENT = (404, {"_id": "clicks p", "found": False})


@pytest.mark.parametrize("answer", FOREIGN)
def test_what_something_else_answers_is_no_position_and_records_none(answer):
    with positions_of({"GET": answer}) as (positions, requests):
        for asked in (positions.create_index, positions.recorded, positions.uuids_of_index):
            with pytest.raises(SinkUnavailableError, match="this is no answer of a cluster"):
                asked()
        assert sent(requests) == []


@pytest.mark.parametrize("answer", FOREIGN[1:3])
def test_a_batch_is_recorded_once_the_cluster_says_so(answer):
    asked = []

    def answers(method, *_):
        asked.append(method)
        if method == "GET":
            return NO_DOCUMENT
        return (201, {"result": "created"}) if asked.count("PUT") > 1 else answer

    with cluster(answers) as (nodes, requests):
        positions = OpenSearchPositions(nodes, "clicks", "p")
        assert positions.record(Transaction({"app": 1}, {"app": None}))
        assert [body["versions"] for _, body in sent(requests)] == [{"app": 1}] * 2
        positions.close()


def test_the_index_of_earlier_batches_stays_recorded_where_none_is_compared():
    source = {"versions": {"app": 0}, "writer": "w", "index_uuids": "first"}
    stored = {"_seq_no": 1, "_primary_term": 1, "_source": source}
    answers = {"GET": (200, stored), "PUT": (200, {"result": "updated"})}
    with positions_of(answers) as (positions, requests):
        assert positions.record(Transaction({"app": 1}, {"app": 0}))
        [(_, document)] = sent(requests)
        assert document["index_uuids"] == "first"
        with pytest.raises(TableMismatchError, match="rows of earlier batches may be gone"):
            positions.record(Transaction({"app": 1}, {"app": 0}), "second")
