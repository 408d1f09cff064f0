"""The index of positions, as servers can't be brought to have it beside other tests."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headrace.errors import SinkError
from headrace.sinks.api import Transaction
from headrace.sinks.opensearch.client import ClusterNodes
from headrace.sinks.opensearch.positions import OpenSearchPositions

KEPT = {"type": "object", "enabled": False}
NO_INDEX = {"error": {"type": "index_not_found_exception", "reason": "no such index"}}


@contextmanager
def positions_of(answers):
    """Positions in a cluster with one answer to each method, and what they have sent."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            size = int(self.headers.get("Content-Length") or 0)
            if size:
                sent.append((self.path, json.loads(self.rfile.read(size))))
            status, answer = answers.get(self.command, (200, {}))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=http.serve_forever, daemon=True).start()
    nodes = ClusterNodes((f"http://127.0.0.1:{http.server_port}",))
    positions = OpenSearchPositions(nodes, "clicks", "p")
    yield positions, sent
    positions.close()
    http.shutdown()
    http.server_close()


def mapped(properties):
    return {"GET": (200, {"headrace-positions": {"mappings": {"properties": properties}}})}


def test_an_index_with_fields_that_the_server_has_guessed_is_refused():
    guessed = {"versions": {"properties": {"app": {"type": "long"}}}}
    with positions_of(mapped(guessed)) as (positions, sent):
        with pytest.raises(SinkError, match="something else has created the index"):
            positions.create_index()
        assert sent == []


def test_an_index_gets_the_fields_that_it_lacks():
    with positions_of(mapped({"versions": KEPT})) as (positions, sent):
        positions.create_index()
    missing = {"properties": {"writer": KEPT, "index_uuids": KEPT}}
    assert sent == [("/headrace-positions/_mapping", missing)]


def test_nothing_is_recorded_where_the_server_would_have_to_guess_fields():
    with positions_of({"GET": (404, NO_INDEX)}) as (positions, sent):
        with pytest.raises(SinkError, match="the index was deleted; the next start creates it"):
            positions.record(Transaction({"app": 1}, {"app": None}))
        assert positions.versions(["app"]) == {}
        assert sent == []
