"""A stand-in for a cluster, with answers that tests can't get from a real one."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from headrace.sinks.opensearch.client import ClusterNodes

FOREIGN = [
    (200, b"<html>Log in</html>"),
    (200, {"status": "starting"}),
    (200, {"error": "maintenance", "code": 503}),
    (200, {"error": {"reason": "maintenance"}}),
    (200, ["clicks"]),
    (200, "OK"),
    (200, None),
    (302, b""),
    (400, b"<html>plain HTTP was sent to an HTTPS port</html>"),
    (404, b"default backend - 404"),
    (404, {"message": "no Route matched with those values"}),
]
"""What proxies, gateways and balancers answer in place of a cluster."""


@contextmanager
def cluster(answer):
    """The nodes of a cluster, and the requests that it got: method, path and body.

    Args:
        answer: called with method and path, and the number of requests before; returns status and
            body, JSON unless it is bytes.
    """
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            status, body = answer(self.command, self.path, len(requests))
            size = int(self.headers.get("Content-Length") or 0)
            requests.append((self.command, self.path, self.rfile.read(size)))
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    yield ClusterNodes((f"http://127.0.0.1:{http.server_port}",)), requests
    http.shutdown()
    http.server_close()
