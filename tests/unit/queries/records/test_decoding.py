"""Records that others have written: they are no records, and end nothing."""

import pytest

from headrace.queries.records.ended import decode_ended
from headrace.queries.records.matched import decode_matched
from headrace.queries.records.result import decode_result
from headrace.queries.records.snapshots import Restored
from headrace.service.leases import read_claim

DEEP = b'{"kind":"tick","x":' + b"[" * 3_000 + b"]" * 3_000 + b"}"


@pytest.mark.parametrize("value", [DEEP, b"", b"{", b"null", b'{"kind":"other"}'])
@pytest.mark.parametrize(
    "decode", [decode_matched, lambda value: decode_ended(value, 1), decode_result]
)
def test_a_value_that_is_no_record_is_an_error_of_values(decode, value):
    with pytest.raises(ValueError, match=r"."):
        decode(value)


def test_a_snapshot_that_is_no_record_is_an_error_of_values():
    with pytest.raises(ValueError, match="too deep"):
        Restored().take([DEEP.replace(b"tick", b"position")])


@pytest.mark.parametrize(
    ("key", "value"), [(b"0", DEEP), (b"0", None), (None, b"{}"), (b"zero", b"{}"), (b"0", b"{}")]
)
def test_a_record_that_is_no_lease_is_an_error_of_values(key, value):
    with pytest.raises(ValueError, match=r"."):
        read_claim(key, value)
