"""What answers to a bulk mean, also those of servers that tests can't have."""

import json
import re

import pyarrow as pa
import pytest

from headrace.errors import SinkUnavailableError
from headrace.sinks.opensearch.bulk import BulkLoader
from headrace.sinks.opensearch.client import ServerAnswer
from headrace.sinks.opensearch.documents import DocumentSpec, documents_of

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.string())])
# The sentences are those of Elasticsearch 8.19 and 8.18 in ThePrez/Manzan#261 and
# tubearchivist/tubearchivist#1051; of 429 that of 8.x in exercism/website#5667.
FIELD_OF_ELASTICSEARCH = {
    "type": "document_parsing_exception",
    "reason": "[1:426] failed to parse field [n] of type [long] in document with id '1'. "
    "Preview of field's value: '12598335192425652225'",
    "caused_by": {"type": "illegal_argument_exception", "reason": 'For input string: "x"'},
}
FULL_OF_ELASTICSEARCH = {
    "error": {
        "type": "rejected_execution_exception",
        "reason": "rejected execution of coordinating operation [shard_detail=[clicks][1][C]]",
    },
    "status": 429,
}
ILLEGAL = "illegal_argument_exception"
STRICT = {
    "type": "strict_dynamic_mapping_exception",
    "reason": "[1:8] mapping set to strict, dynamic introduction of [n] within [_doc] is not "
    "allowed",
}
BLOCKED = {"type": "cluster_block_exception", "reason": "index [clicks] blocked by: [FORBIDDEN/8]"}
CONFLICT = {"type": "illegal_state_exception", "reason": "a snapshot is being restored"}
SHARDS = {"type": "validation_exception", "reason": "this cluster has [1000] maximum shards open"}


class Server:
    """Answers bulks as it is told, in order, and takes the others."""

    def __init__(self, *answers):
        self.answers, self.bulks = list(answers), []

    def ask(self, method, path, body, kind):
        assert (method, kind, path.partition("?")[0]) == ("POST", "x-ndjson", "_bulk")
        lines = [json.loads(line) for line in body.decode().splitlines()]
        ids = [line["create"]["_id"] for line in lines[::2]]
        self.bulks.append(ids)
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ServerAnswer):
            return answer
        items = [{"create": answer.get(id_, {"status": 201})} for id_ in ids]
        errors = any("error" in item["create"] for item in items)
        return ServerAnswer(200, json.dumps({"errors": errors, "items": items}).encode())


def loaded(server, ids=range(4), max_wait_seconds=600.0, text="x"):
    rows = pa.Table.from_pylist([{"id": id_, "n": text} for id_ in ids], SCHEMA)
    documents = documents_of(rows, DocumentSpec("clicks", None, None, ("id",), None))
    return BulkLoader(server, SCHEMA, max_wait_seconds).load(documents)


def test_only_what_was_not_taken_is_sent_again():
    busy = {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "full"}}
    failed = {"status": 503, "error": {"type": "unavailable_shards_exception", "reason": "none"}}
    there = {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": ""}}
    server = Server({"0": busy, "1": failed, "2": there}, {"1": failed})
    done = loaded(server)
    assert server.bulks == [["0", "1", "2", "3"], ["0", "1"], ["1"]]
    assert (done.conflicts, done.resent, done.rejected) == (1, 3, [])


@pytest.mark.parametrize(
    "refusal",
    [
        ServerAnswer(429, json.dumps(FULL_OF_ELASTICSEARCH).encode()),
        ServerAnswer(503, b"<html>no upstream</html>"),
        ServerAnswer(302, b"<a href=/login>"),
        ServerAnswer(404, b"<html>no ingress</html>"),
        ServerAnswer(200, b'{"status": "starting"}'),
        ServerAnswer(200, b'{"errors": true, "items": [{}]}'),
        SinkUnavailableError("OpenSearch", "http://127.0.0.1: timed out"),
    ],
)
def test_a_bulk_that_is_refused_or_has_no_answer_comes_again_in_halves(refusal):
    server = Server(refusal)
    done = loaded(server, text="x" * 40_000)
    first, *halves = server.bulks
    assert first == ["0", "1", "2", "3"]
    assert halves == [["0", "1"], ["2", "3"]]
    assert (done.resent, done.rejected) == (4, [])


def test_a_document_that_is_too_large_is_rejected_alone():
    too_large = ServerAnswer(413, b"")
    server = Server(too_large, too_large, too_large)
    done = loaded(server)
    assert [(row.index, row.reason) for row in done.rejected] == [(2, "row-too-large")]
    assert server.bulks == [["0", "1", "2", "3"], ["0", "1"], ["2"], ["3"], ["0"], ["1"]]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            FIELD_OF_ELASTICSEARCH,
            ("wrong-value", "field 'n' is long, and the row has string: For input string: \"x\""),
        ),
        (
            {
                "type": ILLEGAL,
                "reason": 'DocValuesField "n" is too large, must be <= 32766',
            },
            ("wrong-value", 'DocValuesField "n" is too large, must be <= 32766'),
        ),
        (
            {
                "type": "document_parsing_exception",
                "reason": "failed to parse",
                "caused_by": {
                    "type": "illegal_argument_exception",
                    "reason": 'Document contains at least one immense term in field="n" (whose '
                    "UTF8 encoding is longer than the max length 32766), all of which were skipped",
                },
            },
            ("value-too-long", "field 'n' has more than the 32766 bytes of a term"),
        ),
    ],
)
def test_a_document_that_is_none_of_its_index_is_named_with_the_servers_reason(error, expected):
    done = loaded(Server({"2": {"status": 400, "error": error}}))
    assert [(row.index, row.reason, row.detail) for row in done.rejected] == [(2, *expected)]


@pytest.mark.parametrize(
    "error",
    [
        STRICT,
        {"type": ILLEGAL, "reason": "no write index is defined for alias [clicks]. The write"},
        {"type": ILLEGAL, "reason": "pipeline with id [geo] does not exist"},
        {"type": ILLEGAL, "reason": "Limit of total fields [1000] has been exceeded"},
    ],
)
def test_what_the_index_lacks_is_no_fault_of_the_rows(error):
    refused = {"status": 400, "error": error}
    server = Server({"1": refused, "2": refused})
    assert loaded(server).rejected == []
    assert server.bulks[1:] == [["1", "2"]]
    with pytest.raises(SinkUnavailableError, match=re.escape(error["reason"])):
        loaded(Server({"2": refused}, {"2": refused}), max_wait_seconds=0.0)


def test_what_is_no_fault_of_a_document_rejects_none():
    full = {"status": 400, "error": SHARDS}
    with pytest.raises(SinkUnavailableError, match=re.escape("400 validation_exception: this")):
        loaded(Server({"2": full}, {"2": full}), max_wait_seconds=0.0)
    conflict = {"status": 409, "error": CONFLICT}
    with pytest.raises(SinkUnavailableError, match="409 illegal_state_exception: a snapshot"):
        loaded(Server({"2": conflict}, {"2": conflict}), max_wait_seconds=0.0)
    blocked = {"status": 403, "error": BLOCKED}
    with pytest.raises(SinkUnavailableError, match=re.escape("403 cluster_block_exception: index")):
        loaded(Server({"2": blocked}, {"2": blocked}), max_wait_seconds=0.0)
    missing = {"error": {"type": "security_exception", "reason": "missing credentials"}}
    unauthorized = ServerAnswer(401, json.dumps(missing).encode())
    with pytest.raises(SinkUnavailableError, match="401 security_exception: missing credentials"):
        loaded(Server(unauthorized), max_wait_seconds=0.0)
