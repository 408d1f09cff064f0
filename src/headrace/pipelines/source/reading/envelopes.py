"""Records that are envelopes to records of their events; :mod:`headrace.model.envelope`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.events.envelopes import splitter_of
from headrace.events.parsing.splitting import UnsplittableError
from headrace.kafka.client.headers import UNREADABLE, headers_of

if TYPE_CHECKING:
    from headrace.events import Rejection
    from headrace.kafka.read.range_reader import Record
    from headrace.model import Envelope

CONTENT_ENCODING = "content-encoding"
_IDENTITY = ""
_ENCODINGS = {"identity": _IDENTITY, "gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
# No JSON text begins with these.
_FIRST_BYTES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SHOWN_CHARACTERS = 80


class EnvelopeEvent:
    """An event of an envelope, as a record: all but its value is of the envelope.

    Attributes:
        index: its place among the events of the envelope, from 0.
    """

    __slots__ = ("_envelope", "_value", "index")

    def __init__(self, envelope: Record, value: bytes, index: int) -> None:
        self._envelope, self._value, self.index = envelope, value, index

    def value(self) -> bytes:
        """Returns the JSON text of the event."""
        return self._value

    def key(self) -> bytes | None:
        """Returns the key of the envelope."""
        return self._envelope.key()

    def offset(self) -> int:
        """Returns the offset of the envelope."""
        return self._envelope.offset()

    def timestamp(self) -> tuple[int, int]:
        """Returns the timestamp of the envelope."""
        return self._envelope.timestamp()

    def headers(self) -> Any:
        """Returns the headers of the envelope, but for that of its compression."""
        headers = headers_of(self._envelope)
        if headers is None:
            return UNREADABLE
        return [header for header in headers if header[0].lower() != CONTENT_ENCODING]


class EnvelopeReader:
    """Divides the envelopes of a topic into events."""

    def __init__(self, envelope: Envelope) -> None:
        self._max_bytes = envelope.max_bytes
        self._split = splitter_of(envelope)

    def events_of(self, record: Record) -> list[EnvelopeEvent] | Rejection:
        """Returns the events of a record in their order, or why it can't be divided."""
        value = record.value()
        if value is None:
            return "null-value", "the record has no value: a tombstone, which is not an envelope"
        try:
            texts = self._split(self._decompressed(value, record))
        except UnsplittableError as error:
            return error.reason, error.detail
        return [EnvelopeEvent(record, text, index) for index, text in enumerate(texts)]

    def _decompressed(self, value: bytes, record: Record) -> bytes:
        if codec := _codec(value, record):
            return _decompressed(value, codec, self._max_bytes)
        if len(value) > self._max_bytes:
            raise _too_large(self._max_bytes)
        return value


def event_index(record: Record) -> int | None:
    """Returns the place of an event in its envelope; None: the record is no part of one."""
    return record.index if isinstance(record, EnvelopeEvent) else None


def _codec(value: bytes, record: Record) -> str:
    """Returns the name of the compression as Arrow has it; empty: the value is not compressed."""
    for name, encoding in headers_of(record) or ():
        if name.lower() == CONTENT_ENCODING:
            text = (encoding or b"").decode(errors="replace")
            codec = _ENCODINGS.get(text.strip().lower())
            if codec is not None:
                return codec
            shown = text[:_SHOWN_CHARACTERS]
            detail = f"{CONTENT_ENCODING} is {shown!r}, expected gzip, zstd or identity"
            raise UnsplittableError("unknown-encoding", detail)
    codecs = (codec for first, codec in _FIRST_BYTES.items() if value.startswith(first))
    return next(codecs, _IDENTITY)


def _decompressed(value: bytes, codec: str, max_bytes: int) -> bytes:
    """Returns the content of a compressed value; no more of it than is allowed is ever held."""
    import pyarrow as pa

    if not value:
        raise UnsplittableError("bad-compression", f"the value is empty, and no {codec}")
    try:
        with pa.CompressedInputStream(pa.BufferReader(value), codec) as stream:
            content: bytes = stream.read(max_bytes + 1)
    except OSError as error:
        raise UnsplittableError("bad-compression", f"the value is no {codec}: {error}") from error
    if len(content) > max_bytes:
        raise _too_large(max_bytes)
    return content


def _too_large(max_bytes: int) -> UnsplittableError:
    detail = f"the envelope has more than {max_bytes} bytes once it is decompressed"
    return UnsplittableError("envelope-too-large", detail)
