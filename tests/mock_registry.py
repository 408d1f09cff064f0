"""A schema registry in this process, with as much of Confluent's API as headrace uses.

It says what it was asked, and fails as it is told. What the API of a real registry is like is
tested in tests/integration/test_avro.py.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.settings import SchemaRegistrySettings


class MockRegistry:
    """Schemas by id, from 1.

    Attributes:
        subjects: the text of version 1 of each subject.
        kinds: of the schemas of subjects that are not Avro.
        requests: method and path of each request, in order.
        authorization: of the last request.
        status: what every request is answered with instead; ``None``: what the API says.
        page: status and body of what another server at its address answers; ``None``: it is there.
        answers: cleared, every request waits until it is set.
    """

    def __init__(self) -> None:
        self.schemas: list[tuple[str, str]] = []
        self.subjects: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self._references: dict[str, list[dict]] = {}
        self.requests: list[str] = []
        self.authorization: str | None = None
        self.status: int | None = None
        self.page: tuple[int, str] | None = None
        self.answers = threading.Event()
        self.answers.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.settings = SchemaRegistrySettings(f"http://127.0.0.1:{self._server.server_port}")

    @contextmanager
    def running(self) -> Iterator[MockRegistry]:
        """The registry, answering."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def add(self, schema: object, kind: str = "AVRO", **references: str) -> int:
        """Registers a schema, which refers to names with their subjects; returns its id."""
        return self.add_text(json.dumps(schema), kind, **references)

    def add_text(self, text: str, kind: str = "AVRO", **references: str) -> int:
        """Registers what need not be a schema, which refers to names with their subjects."""
        entry = (text, kind)
        self._references[text] = [
            {"name": name, "subject": subject, "version": 1} for name, subject in references.items()
        ]
        if entry not in self.schemas:
            self.schemas.append(entry)
        return self.schemas.index(entry) + 1

    def guid(self, schema_id: int) -> uuid.UUID:
        """Returns the other name of a schema, as registries since Confluent's 8.0 have it."""
        return uuid.UUID(int=schema_id << 64)

    def answer(self, path: str, body: bytes) -> tuple[int, dict]:
        """Returns the status and the document for a request."""
        self.answers.wait()
        if self.status is not None:
            return self.status, {"error_code": self.status * 100, "message": "as it was told"}
        if body:
            document = json.loads(body)
            kind = document.get("schemaType", "AVRO")
            return 200, {"id": self.add_text(document["schema"], kind)}
        if path.startswith("/subjects/"):
            subject = path.split("/")[2]
            if subject not in self.subjects:
                return 404, {"error_code": 40401, "message": f"Subject {subject} not found"}
            document = self._document(self.subjects[subject])
            kind = self.kinds.get(subject, "AVRO")
            return 200, {"subject": subject, "version": 1, "schemaType": kind, **document}
        name = path.partition("?")[0].rpartition("/")[2]
        number = uuid.UUID(name).int >> 64 if "/guids/" in path else int(name)
        if not 0 < number <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        text, kind = self.schemas[number - 1]
        return 200, {**self._document(text), "schemaType": kind}

    def _document(self, text: str) -> dict:
        return {"schema": text, "references": self._references.get(text, [])}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.requests.append(f"{self.command} {self.path}")
                registry.authorization = self.headers.get("Authorization")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, document = registry.answer(self.path, body)
                text = json.dumps(document).encode()
                if registry.page is not None:
                    status, text = registry.page[0], registry.page[1].encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        return Handler
