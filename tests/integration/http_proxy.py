"""A proxy in front of any HTTP server: it loses answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class FaultyProxy:
    """In front of a server: carries requests out and may lose their answers.

    ``lose_answer`` is called with the method and path of each request before it is carried out.
    Where it is true, the client's connection is closed once the server has answered.
    ``condition_failed`` is the status for writes whose condition does not hold.
    ``turn``: entered for each request, of a server whose conditions are not atomic.
    """

    def __init__(
        self,
        server: str,
        lose_answer: Callable[[str, str], bool],
        turn: AbstractContextManager[object] | None = None,
    ) -> None:
        self.lose_answer = lose_answer
        self._turn = turn or nullcontext()
        self.lost: list[str] = []
        self.condition_failed = 412
        target = server.removeprefix("http://")
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _carry(self) -> None:
                proxy._carry(self, target)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = _carry  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"
        Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _carry(self, request: BaseHTTPRequestHandler, target: str) -> None:
        lose = self.lose_answer(request.command, request.path)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._turn:
            upstream = HTTPConnection(target, timeout=60)
            upstream.putrequest(
                request.command, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            content = answer.read()
            upstream.close()
        if lose:
            self.lost.append(f"{request.command} {request.path} {answer.status}")
            request.close_connection = True
            return
        request.send_response(self.condition_failed if answer.status == 412 else answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                request.send_header(name, value)
        if answer.status == 412:
            request.send_header("ETag", '"0"')
        if answer.getheader("Content-Length") is None:
            request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)
