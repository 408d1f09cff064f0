"""What a line holds: an entry for a table, or the reason why it is rejected."""

from __future__ import annotations

import binascii
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.events import Rejection, known_mistake
from headrace.ingest.events.json_limits import JsonLimits, JsonLimitsCheck
from headrace.offline_files.files import MAX_LINE_BYTES, End, Line

BODY = "body"
_HIGHEST_COUNTER = 2**63 - 1
_COUNTER = b'"counter"'
# A key may be written with escapes: `"\u0063ounter"` is a counter too.
_ESCAPED_LETTER = re.compile(rb"\\u00[67]")
_LINE_LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=MAX_LINE_BYTES)
_structure = JsonLimitsCheck(_LINE_LIMITS)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that can be read.

    Attributes:
        line: where it stands.
        counter: its number at its source.
        table: where it goes.
        row: JSON text of each column, as it came; the body decoded.
        account: the project's id as text, empty without one.
    """

    line: Line
    counter: int
    table: str
    row: dict[str, bytes]
    account: str


@dataclass(frozen=True, slots=True)
class RejectedEntry:
    """A line that can't be loaded: a reason code and a sentence.

    Attributes:
        line: where it stands.
        counter: ``None`` when it has none that can be read, see :func:`read_counter`.
        table: empty when it has none that can be read.
        reason: see :func:`read_line` and the destination.
        detail: what is wrong with it.
    """

    line: Line
    counter: int | None
    table: str
    reason: str
    detail: str


def digest(line: Line) -> str:
    """Returns the digest of a line's bytes, 16 hexadecimal digits."""
    # Nothing may be left of a damaged file, so its name counts too.
    content = line.content + line.file.encode() if line.end is End.DAMAGE else line.content
    return hashlib.blake2b(content, digest_size=8).hexdigest()


class _Counted(msgspec.Struct):
    counter: int | None = None


class _Rows(msgspec.Struct):
    row: dict[str, msgspec.Raw]


_counted = msgspec.json.Decoder(_Counted).decode
_rows = msgspec.json.Decoder(_Rows).decode
_any = msgspec.json.Decoder().decode


def read_counter(line: Line) -> int | None:
    """Returns the counter, for lines that are skipped by it; ``None`` when it can't be read.

    It is None for a line that is damaged or has two: it may be the counter of another line.
    """
    if line.end in {End.DAMAGE, End.TOO_LONG}:
        return None
    try:
        counter = _counted(line.content).counter
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if counter is None or not 0 <= counter <= _HIGHEST_COUNTER or _has_two(line.content):
        return None
    return counter


def _has_two(content: bytes) -> bool:
    """Returns whether the line itself has two counters; its row may have one more."""
    # Nearly every line, at the price of a search: a second parse would cost far more.
    if content.count(_COUNTER) == 1 and not _ESCAPED_LETTER.search(content):
        return False
    try:
        names = json.loads(content, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    except (ValueError, RecursionError):
        return True
    return bool(names.count("counter") > 1)


def read_line(line: Line, max_body_bytes: int) -> Entry | RejectedEntry:
    """Returns the entry of a line, or why it is rejected.

    =============== ==============================================================================
    torn-line       the file ends within the line, and a newer file exists
    damaged-file    the compressed or Avro file is damaged here; the rest of it can't be read
    damaged-block   a block of an Avro file, whose records can't be read
    line-too-long   longer than 16 MiB; the letter holds the start
    not-json        no JSON, or more than one document
    not-an-object   another JSON value than an object
    repeated-key    a key stands twice in an object
    too-many-keys   more than 1,000 in the line
    too-deep        nested deeper than 64 levels
    out-of-range    an integer beyond 64 bits
    nul-character   a NUL character in a text, which databases reject
    no-counter      ``counter`` is missing, or no integer from 0 to 2^63-1
    no-table        ``table`` is missing, or no text
    no-row          ``row`` is missing, or no object
    bad-base64      the body is no text, or not strict base64
    bad-zlib        the body can't be decompressed, or its checksum is wrong
    body-too-large  the body is beyond the limit once it is decompressed
    body-not-json   the decompressed body is not JSON
    =============== ==============================================================================
    """
    why = _in_file(line)
    counter = read_counter(line)
    if why is not None:
        return RejectedEntry(line, counter, "", *why)
    try:
        document, why = _structure(line.content)
    except (ValueError, RecursionError) as error:
        words = known_mistake(line.content) or f"the line is not JSON: {error}"
        return RejectedEntry(line, counter, "", "not-json", words)
    if not isinstance(document, dict):
        return RejectedEntry(line, None, "", "not-an-object", "the line is JSON, and not an object")
    table = document.get("table")
    name = table if isinstance(table, str) and "\0" not in table else ""  # databases take no NUL
    why = why or _in_envelope(document, counter)
    if why is not None or counter is None:
        return RejectedEntry(line, counter, name, *(why or _NO_COUNTER))
    return _entry(line, counter, document, max_body_bytes)


_NO_COUNTER: Rejection = ("no-counter", "`counter` is missing, or no integer from 0 to 2^63-1")


def _in_file(line: Line) -> Rejection | None:
    if line.rejection is not None:
        return line.rejection
    if line.end is End.DAMAGE:
        return "damaged-file", "the compressed file is damaged or cut off here, its rest is lost"
    if line.end is End.TOO_LONG:
        return "line-too-long", f"the line is longer than {MAX_LINE_BYTES} bytes"
    if line.end is End.FILE and not is_whole(line):
        return "torn-line", "the file ends within this line, and a newer file exists"
    return None


def is_whole(line: Line) -> bool:
    """Returns whether it is a JSON document: no prefix of an object is one."""
    try:
        _any(line.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _in_envelope(document: dict[str, Any], counter: int | None) -> Rejection | None:
    if counter is None:
        return _NO_COUNTER
    if not document.get("table") or not isinstance(document["table"], str):
        return "no-table", "`table` is missing, or no text"
    if not isinstance(document.get("row"), dict):
        return "no-row", "`row` is missing, or no object"
    return None


def _entry(
    line: Line, counter: int, document: dict[str, Any], max_body_bytes: int
) -> Entry | RejectedEntry:
    row = {name: bytes(value) for name, value in _rows(line.content).row.items()}
    body = document["row"].get(BODY)
    if body is not None:
        decoded = decode_body(body, max_body_bytes)
        if isinstance(decoded, tuple):
            return RejectedEntry(line, counter, document["table"], *decoded)
        row[BODY] = decoded
    project = document["row"].get("project_id")
    account = str(project) if type(project) in {int, str} else ""
    return Entry(line, counter, document["table"], row, account)


def decode_body(body: object, max_body_bytes: int) -> bytes | Rejection:
    """Returns the JSON text in a body; memory is bounded by the limit."""
    if not isinstance(body, str):
        return "bad-base64", "the body is no text"
    if len(body) % 4:  # which the strict mode lets pass when it is one padding too many
        return "bad-base64", f"the body is {len(body)} characters long, no multiple of 4"
    try:
        zipped = binascii.a2b_base64(body, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        return "bad-base64", f"the body is not base64: {error}"
    text = _inflate(zipped, max_body_bytes)
    if isinstance(text, bytes):
        try:
            _any(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return "body-not-json", f"the decompressed body is not JSON: {error}"
    return text


def _inflate(zipped: bytes, max_body_bytes: int) -> bytes | Rejection:
    stream = zlib.decompressobj()
    try:
        # One byte more than allowed shows that a body is too large, and does not just fit.
        text = stream.decompress(zipped, max_body_bytes + 1)
    except zlib.error as error:
        return "bad-zlib", f"the body can't be decompressed: {error}"
    if len(text) > max_body_bytes:
        most = max_body_bytes
        return "body-too-large", f"the body is larger than {most} bytes once it is decompressed"
    if not stream.eof or stream.unused_data:
        what = "continues after its end" if stream.eof else "is cut off"
        return "bad-zlib", f"the compressed body {what}"
    return text
