"""Request ids: the client's if it is fit for a log line, a new one otherwise."""

import re

import pytest

from headrace.ingest.http.request import Request


def request_id_of(*headers):
    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": list(headers)}
    return Request(scope, None).id


@pytest.mark.parametrize("given", [b"abc", b"7d0b-4f", b"a" * 128, b"Root=1-67:x/y+z@h"])
def test_a_plain_id_is_taken(given):
    assert request_id_of((b"accept", b"*"), (b"x-request-id", given)) == given.decode()


@pytest.mark.parametrize("given", [b"", b"a" * 129, b"a b", b"a\nb", b"\xff", b'"', b"a\n"])
def test_anything_else_gets_a_new_one(given):
    assert re.fullmatch("[0-9a-f]{16}", request_id_of((b"x-request-id", given)))


def test_each_request_gets_another():
    assert request_id_of() != request_id_of()
