"""When an HDFS takes files, by what its NameNode says of itself."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headrace.runtime.servers.hdfs import HdfsPorts, takes_files


@pytest.fixture
def said():
    """``said(text)``: whether an HDFS takes files whose NameNode answers so."""

    class NameNode(BaseHTTPRequestHandler):
        text = ""

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.text.encode())

        def log_message(self, *_):
            """Nothing is logged."""

    def asked(text):
        NameNode.text = text
        return takes_files(HdfsPorts(0, server.server_port, 0, 0, 0))

    with ThreadingHTTPServer(("127.0.0.1", 0), NameNode) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield asked
        server.shutdown()


@pytest.mark.parametrize(
    ("beans", "takes"),
    [
        ([], False),  # it has begun to listen
        ([{"FSState": "safeMode", "NumLiveDataNodes": 1, "CapacityTotal": 9}], False),
        ([{"FSState": "Operational", "NumLiveDataNodes": 0, "CapacityTotal": 0}], False),
        ([{"FSState": "Operational", "NumLiveDataNodes": 1, "CapacityTotal": 0}], False),
        ([{"FSState": "Operational", "NumLiveDataNodes": 1, "CapacityTotal": 9}], True),
    ],
)
def test_it_takes_files_once_a_data_node_has_said_what_storage_it_has(said, beans, takes):
    assert said(json.dumps({"beans": beans})) is takes


def test_a_name_node_that_does_not_answer_is_neither(said):
    assert said("") is None
