"""How a cluster is asked: addresses, credentials, and what is trusted."""

import base64
import json
import os
import re
import ssl
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import msgspec
import pytest
from tests.integration.certificates import make_certificate

from headrace.errors import SinkError, SinkUnavailableError
from headrace.settings import Secret
from headrace.sinks.opensearch.answers import ACKNOWLEDGED
from headrace.sinks.opensearch.client import Client, ClusterNodes, ServerAnswer, settings_faults
from headrace.sinks.opensearch.signing import AwsSigner

AWS = {"aws_region": "eu-west-1", "aws_access_key_id": "AKID", "aws_secret_access_key": "secret"}

ANY = msgspec.json.Decoder(dict)


def settings(**values):
    return {"url": Secret("https://127.0.0.1:9200")} | {k: Secret(v) for k, v in values.items()}


@contextmanager
def server(certificates=None):
    """A server that answers with the headers of the request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({k.lower(): v for k, v in self.headers.items()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "ca.pem", certificates / "key.pem")
        http.socket = context.wrap_socket(http.socket, server_side=True)
    Thread(target=http.serve_forever, daemon=True).start()
    scheme = "http" if certificates is None else "https"
    yield f"{scheme}://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def headers_sent(**values):
    with (
        server() as url,
        closing(Client(ClusterNodes.of(settings(**values) | {"url": Secret(url)}))) as c,
    ):
        return c.ask("GET", "clicks/_mapping").decoded(ANY)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        (
            {"user": "app", "password": "pä:ss"},
            f"Basic {base64.b64encode('app:pä:ss'.encode()).decode()}",
        ),
        ({"api_key": "a2V5"}, "ApiKey a2V5"),
    ],
)
def test_requests_say_who_asks(values, expected):
    assert headers_sent(**values).get("authorization") == expected


def test_requests_to_amazon_are_signed():
    sent = headers_sent(**AWS, aws_session_token="token")
    names = "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"
    day = sent["x-amz-date"][:8]
    scope = f"AWS4-HMAC-SHA256 Credential=AKID/{day}/eu-west-1/es/aws4_request, {names}"
    assert sent["authorization"].startswith(scope)
    assert sent["x-amz-security-token"] == "token"


def test_a_signature_is_that_of_the_client_of_amazon():
    # Computed by botocore 1.44.8 for the same request.
    signer = AwsSigner("us-east-1", "es", "AKIDEXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG+bPxRfi"))
    url = "https://search.example.com/headrace-positions/_doc/clicks%20p%2Fq?a=1%2C2&b=%2A"
    body, at = b'{"a": 1}\n', datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC)
    more = {"content-type": "application/json"}
    signed = signer.headers("PUT", url, body, at, more)["authorization"]
    assert signed.endswith(
        "Signature=ac8db6af36fab0c867809d38e4ff79777d70e860702b773f9498ad1013a916e5"
    )


def test_only_certificates_that_are_trusted_are_talked_to(tmp_path):
    make_certificate(tmp_path)
    with server(tmp_path) as url:
        trusted = settings(ca_file=str(tmp_path / "ca.pem")) | {"url": Secret(url)}
        with closing(Client(ClusterNodes.of(trusted))) as client:
            assert client.ask("GET", "").status == 200
        refused = pytest.raises(SinkUnavailableError, match="CERTIFICATE_VERIFY_FAILED")
        with closing(Client(ClusterNodes((url,)))) as client, refused:
            client.ask("GET", "")
    with pytest.raises(SinkError, match="ca_file /nowhere"):
        Client(ClusterNodes((url,), ca_file="/nowhere"))


def test_clients_of_a_process_read_certificates_once_until_they_change(tmp_path):
    make_certificate(tmp_path)
    ca_file = tmp_path / "ca.pem"
    nodes = ClusterNodes(("https://127.0.0.1:1",), ca_file=str(ca_file))
    with closing(Client(nodes)):
        content, changed = ca_file.read_text(), ca_file.stat().st_mtime_ns
        ca_file.write_text("none")
        os.utime(ca_file, ns=(changed, changed))
        with closing(Client(nodes)):
            os.utime(ca_file, ns=(changed + 10**9, changed + 10**9))
    with pytest.raises(SinkError, match="ca_file"):
        Client(nodes)
    ca_file.write_text(content)
    Client(nodes).close()


def test_each_client_begins_at_any_of_the_nodes():
    with server() as a, server() as b:
        nodes = ClusterNodes((a, b))
        asked = set()
        while len(asked) < 2:
            with closing(Client(nodes)) as client:
                asked.add(client.ask("GET", "").decoded(ANY)["host"])
    assert asked == {url.removeprefix("http://") for url in (a, b)}


def test_what_is_missing_is_known_from_the_cluster_alone():
    no_index = {"error": {"type": "index_not_found_exception", "reason": "none"}, "status": 404}
    for absence in (no_index, {"_index": "clicks", "_id": "1", "found": False}):
        assert ServerAnswer(404, json.dumps(absence).encode()).is_missing()
    assert not ServerAnswer(200, b"{}").is_missing()
    assert not ServerAnswer(503, b"").is_missing()
    # Of a gateway, of Elastic Cloud, and of Spring.
    foreign = [
        b"default backend - 404",
        b'{"ok": false, "message": "Unknown resource."}',
        b'{"status": 404, "error": "Not Found", "path": "/clicks"}',
    ]
    for body in foreign:
        with pytest.raises(SinkUnavailableError, match="this is no answer of a cluster"):
            ServerAnswer(404, body).is_missing()


def test_an_answer_is_an_error_with_the_servers_own_words():
    error = {"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403}
    with pytest.raises(SinkUnavailableError, match="403 security_exception: no permissions"):
        ServerAnswer(403, json.dumps(error).encode()).decoded(ANY)
    with pytest.raises(SinkUnavailableError, match="200: this is no answer of a cluster"):
        ServerAnswer(200, b"").decoded(ANY)
    many = {"type": "illegal_argument_exception", "reason": "Limit of total fields [1000]"}
    reason = {"type": "illegal_argument_exception", "reason": "invalid", "caused_by": many}
    with pytest.raises(SinkError, match=re.escape("invalid: Limit of total fields [1000]")):
        ServerAnswer(400, json.dumps({"error": reason}).encode()).decoded(ANY)


@pytest.mark.parametrize("status", [408, 429, 500, 507, 520, 529])
def test_what_stands_before_a_cluster_is_waited_for(status):
    with pytest.raises(SinkUnavailableError, match=f"{status} <html>"):
        ServerAnswer(status, b"<html>").decoded(ANY)


@pytest.mark.parametrize("status", [200, 204, 301, 302, 400, 404, 405, 407, 410, 421, 431])
@pytest.mark.parametrize("body", [b"<html>", b"", b'{"message": "no route"}', b"[" * 9999])
def test_what_something_else_answers_is_waited_for(status, body):
    with pytest.raises(SinkUnavailableError, match="this is no answer of a cluster"):
        ServerAnswer(status, body).decoded(ACKNOWLEDGED)


@pytest.mark.parametrize("error", [None, 1, [], {}, {"type": "a", "reason": "b", "caused_by": 1}])
def test_an_error_of_another_form_is_shown_as_it_is(error):
    body = json.dumps({"error": error, "more": "as it came"})
    assert ServerAnswer(400, body.encode()).reason in (f"400 {body}", f"400 {error}")


def test_what_some_nodes_lack_is_waited_for():
    ServerAnswer(200, b'{"acknowledged": true}').check_acknowledged()
    with pytest.raises(SinkUnavailableError, match="not all nodes have got it yet"):
        ServerAnswer(200, b'{"acknowledged": false}').check_acknowledged()


def test_a_value_that_can_not_be_sent_is_in_no_message():
    nodes = ClusterNodes(("http://127.0.0.1:1",), authorization=Secret("ApiKey secret\n"))
    with closing(Client(nodes)) as client, pytest.raises(SinkError) as caught:
        client.ask("GET", "")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ""),
        ({"user": "a", "password": "b", "ca_file": "c"}, ""),
        (AWS, ""),
        ({"url": "http://a:9200, https://b"}, ""),
        ({"url": "a:9200"}, "url is not one of"),
        ({"url": "https://user:s3cret@a"}, "url is not one of"),
        ({"url": " , "}, "url is not one of"),
        ({"url": "https://a/?token=s3cret"}, "url is not one of"),
        ({"url": "https://a#s3cret"}, "url is not one of"),
        ({"url": "https://a:port"}, "url is not one of"),
        ({"url": "http://[::1"}, "url is not one of"),
        ({"api_key": "s3cret\n"}, "api_key has a line end"),
        (AWS | {"aws_session_token": "s3cret…"}, "aws_session_token has a line end"),
        ({"pasword": "s3cret"}, "unknown key 'pasword'"),
        ({"user": "a", "api_key": "s3cret"}, "has user and api_key"),
        ({"aws_region": "eu-west-1"}, "needs aws_access_key_id and aws_secret_access_key"),
    ],
)
def test_settings_that_do_not_fit_are_named_without_their_values(values, expected):
    texts = [f"{fault.message} {fault.remedy}" for fault in settings_faults(settings(**values))]
    assert len(texts) == bool(expected)
    assert all(expected in text and "s3cret" not in text for text in texts)
