"""headrace up waits for ingest until its tokens are known and Kafka answers, not for topics."""

import http.server
import json
import threading

import pytest

from headrace.project.services import _is_ready
from headrace.settings import IngestSettings


@pytest.fixture
def answering():
    """``answering(document)``: settings of a service that answers it to every request."""
    servers = []

    def serving(document):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(503)
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return IngestSettings(port=server.server_port)

    yield serving
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("tokens", "kafka", "topic", "is_ready"),
    [
        ("known", "answers", "ready", True),
        ("known", "answers", "missing", True),
        ("known", "answers", "spooling", True),
        ("unknown", "answers", "ready", False),
        ("known", "away", "spooling", False),
    ],
)
def test_topics_may_still_have_to_be_made(answering, tokens, kafka, topic, is_ready):
    document = {"tokens": tokens, "kafka": kafka, "topics": {"t": topic}}
    assert _is_ready(answering(json.dumps(document).encode())) is is_ready


def test_what_is_no_answer_of_ingest_is_not_ready(answering):
    assert not _is_ready(answering(b"<html>"))
    assert not _is_ready(IngestSettings(port=1))
