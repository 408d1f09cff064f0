"""Answers of S3 that the server of the integration tests never gives, from a stand-in."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headrace.errors import StorageAccessError, StorageUnavailableError
from headrace.settings import S3Settings, Secret
from headrace.storage import files as storage
from headrace.storage import s3

OBJECT = "s3://bucket/object"


class StandIn:
    """Gives the answers of a list in turn, and the last one again; keeps the methods it met."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []
        self.methods: list[str] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                stand_in.methods.append(self.command)
                answers = stand_in.answers
                status, code = answers.pop(0) if len(answers) > 1 else answers[0]
                body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
                self.send_response(status)
                self.send_header("ETag", '"0"')
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        Thread(target=self.http.serve_forever, daemon=True).start()
        settings = S3Settings(
            f"http://127.0.0.1:{self.http.server_port}",
            allow_http=True,
            access_key_id="a",
            secret_access_key=Secret("b"),
        )
        self.options = settings.options


@pytest.fixture
def server():
    stand_in = StandIn()
    yield stand_in
    stand_in.http.shutdown()
    stand_in.http.server_close()


def test_a_write_that_met_another_one_is_sent_again(server):
    server.answers = [(409, "ConditionalRequestConflict"), (404, "NoSuchKey"), (200, "")]
    storage.write_bytes_new(OBJECT, b"commit", server.options)
    assert server.methods == ["PUT", "GET", "PUT"]


def test_writes_that_always_meet_another_one_end_as_unavailable(server):
    server.answers = [(409, "ConditionalRequestConflict"), (404, "NoSuchKey")] * 5
    with pytest.raises(StorageUnavailableError, match="another write"):
        storage.write_bytes_new(OBJECT, b"commit", server.options)


def test_an_object_that_is_there_is_still_no_conflict(server):
    server.answers = [(412, "PreconditionFailed")]
    with pytest.raises(FileExistsError):
        s3.write_new(OBJECT, b"commit", server.options)


def test_an_expired_token_is_named_by_the_list_where_head_says_nothing(server):
    server.answers = [(400, "ExpiredToken")]
    with pytest.raises(StorageAccessError, match="ExpiredToken"):
        storage.exists(OBJECT, server.options)
    assert server.methods == ["HEAD", "GET"]
