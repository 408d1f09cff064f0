"""The registry's records, in any order."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace.ingest.tokens.table import TokenTable, revocation
from headrace.ingest.tokens.token import Token

NOW = datetime(2026, 5, 1, tzinfo=UTC)
TOKEN = Token("abcdefgh-123", "web", "shop", "acme", ("clicks",), "0" * 64, NOW)
KEY = TOKEN.public_id.encode()


def table_of(*records):
    table = TokenTable()
    for key, value in records:
        table.take(key, value)
    return table


def test_a_revocation_is_final_in_whatever_order_records_are_read():
    rotated = replace(TOKEN, secret_sha256="1" * 64)
    records = [
        (KEY, TOKEN.encoded()),
        revocation(TOKEN.public_id, NOW),
        (KEY, rotated.encoded()),
        (KEY, None),
        (KEY, rotated.encoded()),
    ]
    for order in itertools.permutations(records):
        found = table_of(*order).get(TOKEN.public_id)
        assert found is None or found.revoked == NOW


def test_a_revocation_that_cannot_be_read_is_one():
    key, _ = revocation(TOKEN.public_id, NOW)
    for value in (None, b"", b"{}", b"\xff"):
        assert table_of((KEY, TOKEN.encoded()), (key, value)).get(TOKEN.public_id).revoked


@pytest.mark.parametrize("value", [b"", b"{}", b'{"public_id": 1}', b"[" * 100_000])
def test_a_record_that_cannot_be_read_is_no_token_and_hides_no_other(value):
    other = replace(TOKEN, public_id="other-456789")
    table = table_of((KEY, TOKEN.encoded()), (KEY, value), (b"other-456789", other.encoded()))
    assert table.get(TOKEN.public_id) is None
    assert dict(table.tokens()) == {"other-456789": other}
    assert table.unreadable == {TOKEN.public_id}
    table.take(KEY, TOKEN.encoded())
    assert table.unreadable == set()
    assert table.get(TOKEN.public_id) == TOKEN


def test_a_deleted_token_is_gone():
    assert table_of((KEY, TOKEN.encoded()), (KEY, None)).tokens() == {}
