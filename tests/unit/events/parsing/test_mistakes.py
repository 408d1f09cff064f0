"""Bytes that are often sent for JSON: what is said about them."""

import gzip

import pytest

from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import EventCheck
from headrace.model import Topic
from headrace.offline_files.entry import RejectedEntry, read_line
from headrace.offline_files.files import Line
from headrace.pipelines.source.decode.json_events import JsonDecoder


class Event:
    id: str


TOPIC = Topic("events", event=Event)
LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=1 << 20)
JSON = b'{"id": "a"}'
FRAME = b"\0\0\0\0\x07"
MISTAKES = {
    "byte order mark": (b"\xef\xbb\xbf" + JSON, "not-json", "a byte order mark (EF BB BF)"),
    "UTF-16 of PowerShell": (JSON.decode().encode("utf-16"), "not-utf8", "is UTF-16"),
    "UTF-16, little end first": (JSON.decode().encode("utf-16-le"), "not-json", "is UTF-16"),
    "UTF-16, big end first": (JSON.decode().encode("utf-16-be"), "not-json", "is UTF-16"),
    "gzip": (gzip.compress(JSON), "not-utf8", "compressed by gzip, expected JSON; decompress it"),
    "JSON Schema": (FRAME + JSON, "not-json", "the id of a schema stands before the JSON"),
    "Avro": (FRAME + b"\x02a", "not-json", "declares format=Avro() or format=Protobuf()"),
    "array over several lines": (b"[", "not-json", "first line of an array or object over several"),
    "object over several lines": (
        b"{",
        "not-json",
        "first line of an array or object over several",
    ),
    "NaN": (b'{"id": "a", "more": NaN}', "not-json", "the value is not JSON: it holds NaN"),
}


@pytest.mark.parametrize(("value", "reason", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_common_mistake_is_named_with_what_to_do(value, reason, words):
    [(code, sentence)] = JsonDecoder(TOPIC.schema).decode([value]).rejected.values()
    assert code == reason
    assert words in sentence
    [problem] = EventCheck(TOPIC, LIMITS, lambda: 0.0).batch([value], "", ()).rejected
    assert (problem.code, problem.detail) == (code, sentence)


@pytest.mark.parametrize("name", ["UTF-16 of PowerShell", "gzip", "array over several lines"])
def test_it_is_named_in_offline_files_too(name):
    value, _, words = MISTAKES[name]
    rejected = read_line(Line("offline.1", 1, value), 1 << 20)
    assert isinstance(rejected, RejectedEntry)
    assert words in rejected.detail
