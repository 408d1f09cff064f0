"""An event class, a good record of it, and every kind of bad record with its reason."""

import json
from datetime import datetime
from typing import Literal

from headrace.model import EpochMillis


class Impression:
    event_id: str
    event_time: EpochMillis
    category: str
    kind: Literal["view", "click"]
    item_id: int
    price: float
    paid: bool
    sent_at: datetime
    note: str | None
    score: float | None


GOOD = {
    "event_id": "a1",
    "event_time": 1574553617004,
    "category": "shoes",
    "kind": "view",
    "item_id": 7,
    "price": 1.5,
    "paid": True,
    "sent_at": "2019-11-24T00:00:17.004101Z",
    "note": None,
    "score": 2,
}


def good(number=0, **changes):
    return json.dumps(GOOD | {"item_id": number} | changes).encode()


def raw(field, json_text):
    """A good record but for one field's JSON text."""
    return good(**{field: "@@"}).replace(b'"@@"', json_text)


def without(field):
    return json.dumps({name: value for name, value in GOOD.items() if name != field}).encode()


POISON = {
    "tombstone": (None, "null-value"),
    "empty": (b"", "empty"),
    "white space": (b" \t\r\n ", "empty"),
    "text": (b"hello", "not-json"),
    "byte 0xff": (b"\xff", "not-utf8"),
    "utf-16": ('{"a":1}'.encode("utf-16"), "not-utf8"),
    "nul byte": (b"\x00", "not-json"),
    "bad utf-8 in a field": (raw("category", b'"\xff"'), "not-utf8"),
    "encoded surrogate": (raw("category", b'"\xed\xa0\x80"'), "not-utf8"),
    "overlong utf-8": (raw("category", b'"\xc0\x80"'), "not-utf8"),
    "byte order mark": (b"\xef\xbb\xbf" + good(), "not-json"),
    "cut off": (good()[:-1], "not-json"),
    "cut off early": (good()[:5], "not-json"),
    "trailing comma": (good()[:-1] + b",}", "not-json"),
    "single quotes": (b"{'event_id':'a'}", "not-json"),
    "comment": (b"{/**/}", "not-json"),
    "900 kB of text": (b"x" * 900_000, "not-json"),
    "900 kB cut off": (good(note="n" * 900_000)[:-1], "not-json"),
    "raw control character": (raw("category", b'"a\x01b"'), "not-json"),
    "raw line feed in a text": (raw("category", b'"a\nb"'), "not-json"),
    "bad escape": (raw("category", rb'"\q"'), "not-json"),
    "leading zero": (raw("item_id", b"01"), "not-json"),
    "plus sign": (raw("item_id", b"+1"), "not-json"),
    "NaN": (raw("price", b"NaN"), "not-json"),
    "Infinity": (raw("price", b"Infinity"), "not-json"),
    "minus Infinity": (raw("price", b"-Infinity"), "not-json"),
    "two documents": (good() + good(), "trailing-data"),
    "two documents on two lines": (good() + b"\n" + good(), "trailing-data"),
    "trailing brace": (good() + b"}", "trailing-data"),
    "trailing nul": (good() + b"\x00", "trailing-data"),
    "array": (b"[1]", "not-an-object"),
    "array of events": (b"[" + good() + b"]", "not-an-object"),
    "number": (b"5", "not-an-object"),
    "string": (b'"x"', "not-an-object"),
    "null": (b"null", "not-an-object"),
    "true": (b"true", "not-an-object"),
    "empty object": (b"{}", "missing-field"),
    "missing field": (without("category"), "missing-field"),
    "field in another case": (good().replace(b'"category"', b'"Category"'), "missing-field"),
    "null field": (good(category=None), "wrong-type"),
    "integer for string": (good(category=5), "wrong-type"),
    "fraction for string": (good(category=1.5), "wrong-type"),
    "boolean for string": (good(category=True), "wrong-type"),
    "object for string": (good(category={"a": 1}), "wrong-type"),
    "array for string": (good(category=["a"]), "wrong-type"),
    "integer for nullable string": (good(note=5), "wrong-type"),
    "string for integer": (good(item_id="1"), "wrong-type"),
    "fraction for integer": (good(item_id=1.5), "wrong-type"),
    "1.0 for integer": (good(item_id=1.0), "wrong-type"),
    "1e3 for integer": (raw("item_id", b"1e3"), "wrong-type"),
    "boolean for integer": (good(item_id=True), "wrong-type"),
    "string for number": (good(price="1.5"), "wrong-type"),
    "NaN as string": (good(price="NaN"), "wrong-type"),
    "boolean for number": (good(price=False), "wrong-type"),
    "integer for boolean": (good(paid=1), "wrong-type"),
    "string for boolean": (good(paid="true"), "wrong-type"),
    "string for milliseconds": (good(event_time="2019-11-24T00:00:17Z"), "wrong-type"),
    "fraction for milliseconds": (good(event_time=1574553617004.5), "wrong-type"),
    "integer for RFC 3339": (good(sent_at=1574553617004), "wrong-type"),
    "time without zone": (good(sent_at="2019-11-24T00:00:17"), "wrong-type"),
    "date for time": (good(sent_at="2019-11-24"), "wrong-type"),
    "no such day": (good(sent_at="2019-02-30T00:00:17Z"), "wrong-type"),
    "text for time": (good(sent_at="yesterday"), "wrong-type"),
    "surrogate for time": (raw("sent_at", rb'"\ud800"'), "lone-surrogate"),
    "2^63": (good(item_id=2**63), "out-of-range"),
    "-2^63-1": (good(item_id=-(2**63) - 1), "out-of-range"),
    "2^64": (good(item_id=2**64), "out-of-range"),
    "5,000 digits": (raw("item_id", b"1" * 5000), "out-of-range"),
    "1e400 for integer": (raw("item_id", b"1e400"), "out-of-range"),
    "1e400": (raw("price", b"1e400"), "out-of-range"),
    "-1e400": (raw("price", b"-1e400"), "out-of-range"),
    "400 digits": (raw("price", b"9" * 400), "out-of-range"),
    "5,000 digits for number": (raw("score", b"9" * 5000), "out-of-range"),
    "milliseconds beyond the year 9999": (good(event_time=2**62), "out-of-range"),
    "high surrogate": (raw("category", rb'"a\ud800b"'), "lone-surrogate"),
    "low surrogate": (raw("category", rb'"\udc00"'), "lone-surrogate"),
    "surrogates in the wrong order": (raw("category", rb'"\ude00\ud83d"'), "lone-surrogate"),
    "surrogate before a letter": (raw("note", rb'"\ud800\u0041"'), "lone-surrogate"),
    "surrogate in an undeclared field": (
        good()[:-1] + rb', "more": "\ud800"}',
        "lone-surrogate",
    ),
    "unknown value": (good(kind="hover"), "unknown-value"),
    "value in another case": (good(kind="View"), "unknown-value"),
    "number for a value": (good(kind=1), "wrong-type"),
    "deep": (b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too-deep"),
    "deep in a field": (raw("category", b"[" * 100_000 + b"]" * 100_000), "too-deep"),
    "last of a repeated field wrong": (good()[:-1] + b', "item_id": "x"}', "wrong-type"),
    "before the bounds": (good(event_time=946684799_999), "event-time-out-of-bounds"),
    "after the bounds": (good(event_time=1600000000_001), "event-time-out-of-bounds"),
    "before 1970": (good(event_time=-1), "event-time-out-of-bounds"),
    "path for category": (good(category="../../x"), "unsafe-partition-value"),
    "300 characters for category": (good(category="c" * 300), "unsafe-partition-value"),
    "nul in category": (good(category="a\x00"), "unsafe-partition-value"),
}
