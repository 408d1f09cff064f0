"""The structure of an event: what its walk costs, and what it says."""

import json

import pytest

from headrace.ingest.events import json_limits
from headrace.ingest.events.json_limits import JsonLimits, JsonLimitsCheck

LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=65_536)
MAX_DETAIL_CHARACTERS = 300
check = JsonLimitsCheck(LIMITS)


class CountedKey(str):
    """A key that counts how often it is written out."""

    __slots__ = ()
    written = 0

    def __format__(self, spec):
        CountedKey.written += 1
        return super().__format__(spec)

    def __str__(self):
        CountedKey.written += 1
        return super().__str__()

    def __getitem__(self, place):
        CountedKey.written += 1
        return super().__getitem__(place)

    def __radd__(self, other):
        CountedKey.written += 1
        return other + super().__str__()


def walked(value):
    CountedKey.written = 0
    members = json_limits._Members([(CountedKey("k" * 1000), value)])
    return json_limits._Walk(LIMITS).fault(members)


@pytest.mark.parametrize("elements", [10, 10_000])
def test_a_key_is_not_copied_for_the_elements_below_it(elements):
    assert walked([1] * elements) is None
    assert walked([[1]] * elements) is None
    assert walked(["text"] * elements) is None
    assert CountedKey.written == 0


@pytest.mark.parametrize("elements", [10, 10_000])
def test_a_fault_writes_its_path_once(elements):
    fault = walked([1] * elements + [2**63])
    assert fault is not None
    code, detail = fault.why()
    assert code == "out-of-range"
    assert detail.startswith("$.kkk")
    assert CountedKey.written <= 2


@pytest.mark.parametrize(
    "value",
    [
        '{"kkk": {"a": 1, "a": 2}}',
        '{"kkk": 1, "kkk": 2}',
        '{"kkk": {"\\u0000": 1}}',
        '{"kkk": 18446744073709551616}',
        '{"kkk": "\\u0000"}',
        '{"kkk": [[{"kkk": [0, {"a": "\\u0000"}]}]]}',
    ],
)
def test_what_is_said_of_a_fault_is_short_whatever_the_keys_are(value):
    for key in ("\x7f" * 60_000, "{path}" * 9_000, "}{" * 30_000):
        _, why = check(value.replace("kkk", key).encode())
        assert why is not None
        assert len(why[1]) < MAX_DETAIL_CHARACTERS


def test_a_path_names_the_members_and_elements_on_the_way():
    text = json.dumps({"a": [1, {"b": ["x", 2**63]}], "c": "y" * 70_000})
    _, why = check(text.encode())
    assert why == ("out-of-range", "$.a[1].b[1] is an integer beyond 64 bits")


@pytest.mark.parametrize(("key", "fits"), [("k" * 65_536, True), ("k" * 65_537, False)])
def test_a_key_may_be_as_long_as_a_text_and_no_longer(key, fits):
    _, why = check(json.dumps({key: 1}).encode())
    assert (why is None) is fits
    if why is not None:
        assert why[0] == "text-too-long"
        assert "a key in $ is a string of 65537 bytes" in why[1]
