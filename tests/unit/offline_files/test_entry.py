"""What a line holds, and every reason why it is rejected."""

import base64
import json
import re
import zlib
from pathlib import Path

import pytest
from tests.offline_lines import ARTICLE, line, packed

from headrace.offline_files import entry
from headrace.offline_files.entry import Entry, RejectedEntry, read_line
from headrace.offline_files.files import End, Line

from .conftest import MAX_BODY_BYTES


def read(content, end=End.NEWLINE):
    return read_line(Line("offline.1", 7, content, end), MAX_BODY_BYTES)


def reason(content, end=End.NEWLINE):
    found = read(content, end)
    assert isinstance(found, RejectedEntry)
    assert found.detail
    return found.reason


def with_body(body):
    return line(1, body=body)


def test_columns_keep_their_text_and_the_body_is_decoded():
    text = b'{"b" : 1.50, "a":[1e300,"\\u0041"]}'
    found = read(
        b'{"table":"t","row":{"project_id":12,"x" : 1.00,"body":"%s"},"counter":356}'
        % packed(text).encode()
    )
    assert found == Entry(
        Line("offline.1", 7, found.line.content),
        356,
        "t",
        {"project_id": b"12", "x": b"1.00", "body": text},
        "12",
    )


def test_a_row_without_a_body_is_a_row():
    assert read(b'{"table":"t","row":{"n":1},"counter":0}').row == {"n": b"1"}
    assert read(b'{"table":"t","row":{"body":null},"counter":0}').row == {"body": b"null"}


def test_both_lines_of_the_article_are_rejected_with_their_reason():
    found = [read(one) for one in ARTICLE.read_bytes().splitlines()]
    assert [(one.counter, one.table, one.reason) for one in found] == [
        (356, "raw_item", "bad-zlib"),
        (357, "raw_item", "bad-base64"),
    ]
    assert "invalid distance too far back" in found[0].detail


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"x", "not-json"),
        (b"\xff", "not-json"),
        (b'{"counter":1} {"counter":2}', "not-json"),
        (b'{"counter":1,"x":NaN}', "not-json"),
        (b"[1]", "not-an-object"),
        (b"5", "not-an-object"),
        (b'{"table":"t","row":{"a":1,"a":2},"counter":1}', "repeated-key"),
        (b'{"table":"t","row":{"a":"\\u0000"},"counter":1}', "nul-character"),
        (b'{"table":"t","row":{"a":%s},"counter":1}' % b"9223372036854775808", "out-of-range"),
        (b'{"table":"t","row":{"a":%s%s},"counter":1}' % (b"[" * 70, b"]" * 70), "too-deep"),
        (json.dumps({f"k{n}": n for n in range(1001)}).encode(), "too-many-keys"),
        (b'{"table":"t","row":{}}', "no-counter"),
        (b'{"table":"t","row":{},"counter":-1}', "no-counter"),
        (b'{"table":"t","row":{},"counter":1.0}', "no-counter"),
        (b'{"table":"t","row":{},"counter":true}', "no-counter"),
        (b'{"row":{},"counter":1}', "no-table"),
        (b'{"table":"","row":{},"counter":1}', "no-table"),
        (b'{"table":5,"row":{},"counter":1}', "no-table"),
        (b'{"table":"t","counter":1}', "no-row"),
        (b'{"table":"t","row":[],"counter":1}', "no-row"),
        (with_body(5), "bad-base64"),
        (with_body("e J"), "bad-base64"),
        (with_body("eJw"), "bad-base64"),
        (with_body("ąę"), "bad-base64"),
        (with_body(packed({}) + "="), "bad-base64"),
        (with_body(base64.b64encode(b"no zlib").decode()), "bad-zlib"),
        (with_body(base64.b64encode(zlib.compress(b"{}")[:-1]).decode()), "bad-zlib"),
        (with_body(base64.b64encode(zlib.compress(b"{}") + b"x").decode()), "bad-zlib"),
        (with_body(""), "bad-zlib"),
        (with_body(packed(b"x" * 100_001)), "body-too-large"),
        (with_body(packed(b"{")), "body-not-json"),
        (with_body(packed(b"")), "body-not-json"),
        (with_body(packed(b'"\xff"')), "body-not-json"),
    ],
)
def test_a_bad_line_has_a_reason(content, expected):
    assert reason(content) == expected


def test_a_table_name_that_databases_reject_is_not_kept():
    assert read(b'{"table":"a\\u0000b","row":{},"counter":1}').table == ""


@pytest.mark.parametrize("name", [b"counter", b"\\u0063ounter"])
def test_a_line_with_two_counters_has_none(name):
    twice = read(b'{"table":"t","row":{},"counter":1,"%s":4}' % name)
    assert (twice.reason, twice.counter) == ("repeated-key", None)
    once = read(b'{"table":"t","row":{"%s":4,"a":1,"a":2},"counter":1}' % name)
    assert (once.reason, once.counter) == ("repeated-key", 1)
    assert read(b'{"table":"t","row":{"%s":4},"counter":1}' % name).counter == 1


def test_a_damaged_line_has_no_counter():
    assert read(line(1), End.DAMAGE).counter is None


def test_a_line_that_a_file_ends_in_is_torn_unless_it_is_whole():
    assert reason(line(1)[:-1], End.FILE) == "torn-line"
    assert isinstance(read(line(1), End.FILE), Entry)
    assert reason(b"5", End.DAMAGE) == "damaged-file"
    assert reason(b'{"counter', End.TOO_LONG) == "line-too-long"


def test_a_bomb_is_never_held():
    bomb = with_body(base64.b64encode(zlib.compress(bytes(10**8), 9)).decode())
    found = read_line(Line("offline.1", 1, bomb), 1000)
    assert found.reason == "body-too-large"


@pytest.mark.parametrize("at", range(0, 100, 3))
def test_a_flipped_bit_anywhere_is_never_a_crash(at):
    content = bytearray(line(5))
    content[at % len(content)] ^= 1 << at % 8
    assert isinstance(read(bytes(content)), Entry | RejectedEntry)


def test_every_reason_is_in_the_docstring():
    listed = set(
        re.findall(r"^ +([a-z]+(?:-[a-z0-9]+)+) +\S", entry.read_line.__doc__, re.MULTILINE)
    )
    used = set(re.findall(r'"((?:[a-z0-9]+-)+[a-z0-9]+)"', Path(entry.__file__).read_text()))
    structure = {"repeated-key", "too-many-keys", "too-deep", "out-of-range", "nul-character"}
    of_files = {"damaged-block"}
    assert listed == used | structure | of_files
