"""Records of Avro's container files (``.avro``), as JSON texts.

A file is a header with the writer's schema, and blocks: the number of their records, their size,
the records, and the file's sync marker. A block is read whole or not at all: one that is damaged
costs its own records. Where the marker is missing, nothing says where the next block begins, and
the rest of the file is lost.
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

import msgspec

from headrace.events.avro.bounds import MalformedError
from headrace.events.avro.values import AvroReader
from headrace.events.parsing.parser import event_parser
from headrace.events.rejection import Rejection
from headrace.model import EventSchema
from headrace.runtime.extras import require_extra

MAGIC = b"Obj\x01"
"""What a container file begins with."""
MAX_BLOCK_BYTES = 64 * 1024 * 1024
"""Of a block, as it is stored and once it is decompressed: writers fill blocks of 16 to 64 KB."""

_MARKER_BYTES = 16
_CHECKSUM_BYTES = 4
_LONG_BITS = 64
_SIZE_BYTES = 5  # at most, of a size of 32 bits
_TOO_LARGE = f"it has more than {MAX_BLOCK_BYTES} bytes once it is decompressed"


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A record of a file, or the records that can't be read.

    Attributes:
        number: of the record in its file, from 1.
        content: its JSON text; of one that is rejected: bytes of the file.
        rejection: why it can't be read; ``None``: it was.
        count: number of records that it stands for: those of a damaged block.
        is_part_lost: whether more of the file than this record can't be read.
        is_cut_off: whether the file ends here, within a block.
    """

    number: int
    content: bytes
    rejection: Rejection | None = None
    count: int = 1
    is_part_lost: bool = False
    is_cut_off: bool = False


def container_records(
    stream: BufferedReader, schema: EventSchema | None = None
) -> Iterator[ContainerRecord]:
    """Yields the records of a file in their order, as JSON texts, and what can't be read.

    Values are read by the schema of the file, as those of Avro topics are: the text still has to be
    checked as an event. A field that the file lacks is missing in it.

    ================ =============================================================================
    damaged-block    its records can't be decompressed or read, or are not as many as it says
    damaged-file     no header, a schema or codec that can't be read, or no marker after a block;
                     the rest of the file is lost
    ================ =============================================================================

    Args:
        stream: a file that begins with :data:`MAGIC`, at its start.
        schema: of the event class, whose fields are read and all others left out; ``None``: records
            are of any type.

    Raises:
        ExtraMissingError: if the extra ``avro`` is missing or, of the codecs ``snappy`` and
            ``zstandard``, ``spark``.
        OSError: if the stream can't be read.
    """
    require_extra("avro")
    source = _Source(stream)
    number = 1
    try:
        for record in _Container(source, schema).records():
            number = record.number + record.count
            yield record
    except EOFError:
        why = "damaged-file", f"the file ends within what begins at byte {source.begin}"
        content = MAGIC + source.pending  # which is never JSON
        yield ContainerRecord(number, content, why, is_part_lost=True, is_cut_off=True)
    except _LostError as error:
        why = "damaged-file", f"{error}; the rest of the file is lost"
        yield ContainerRecord(number, MAGIC + source.pending, why, is_part_lost=True)


class _LostError(Exception):
    """Nothing behind a place of the file can be read."""


class _Source:
    """A stream, and what was read of it since the ``begin`` of a part."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream, self._pending = stream, bytearray()
        self.begin = 0

    @property
    def pending(self) -> bytes:
        return bytes(self._pending)

    def begin_part(self) -> bool:
        """Returns whether the stream has more, which is another part."""
        self.begin += len(self._pending)
        self._pending.clear()
        return bool(self._stream.peek(1))

    def read(self, size: int) -> bytes:
        """Returns so many bytes.

        Raises:
            EOFError: if the stream ends before.
        """
        data = self._stream.read(size)
        self._pending += data
        if len(data) < size:
            raise EOFError
        return data

    def long(self) -> int:
        number = shift = 0
        while shift < _LONG_BITS:
            [byte] = self.read(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that another byte follows
                return (number >> 1) ^ -(number & 1)
        raise _LostError(f"there is no number within byte {self.begin} and those that follow")

    def sized(self) -> bytes:
        """Returns bytes whose size stands before them."""
        size = self.long()
        if not 0 <= size <= MAX_BLOCK_BYTES:
            raise _LostError(f"what begins at byte {self.begin} says that it has {size} bytes")
        return self.read(size)


class _Container:
    """A file whose header was read.

    Raises:
        EOFError: if the file ends within its header.
        _LostError: if there is no header, or its schema or codec can't be read.
    """

    def __init__(self, source: _Source, schema: EventSchema | None) -> None:
        self._source = source
        if source.read(len(MAGIC)) != MAGIC:
            raise _LostError("it is no container file of Avro")
        meta = self._meta()
        self._marker = source.read(_MARKER_BYTES)
        codec = meta.get("avro.codec", b"null").decode(errors="replace")
        if codec not in _CODECS:
            raise _LostError(f"its codec is {codec!r}, expected one of {', '.join(_CODECS)}")
        if codec in _OF_ARROW:
            require_extra("spark")
        self._decompressed = _CODECS[codec]
        self._parse = None if schema is None else event_parser(schema)
        try:
            self._reader = AvroReader(json.loads(meta.get("avro.schema", b"")), schema)
        except ValueError as error:
            raise _LostError(f"its schema can't be read: {error}") from error

    def records(self) -> Iterator[ContainerRecord]:
        """Yields the records of the blocks.

        Raises:
            EOFError: if the file ends within a block.
            _LostError: if no marker follows a block.
        """
        number = 1
        while self._source.begin_part():
            count, data = self._source.long(), self._source.sized()
            if count < 0 or self._source.read(_MARKER_BYTES) != self._marker:
                raise _LostError(f"no marker is behind the block at byte {self._source.begin}")
            yield from self._block(number, count, data)
            number += count

    def _block(self, first: int, count: int, data: bytes) -> Iterator[ContainerRecord]:
        try:
            texts = self._reader.json_texts(self._decompressed(data), count)
        except MalformedError as error:
            yield self._damaged(first, count, data, error.words)
        except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            yield self._damaged(first, count, data, str(error))
        else:
            for number, (value, text) in enumerate(texts, first):
                if isinstance(text, bytes):
                    yield ContainerRecord(number, self._without_others(text))
                else:
                    yield ContainerRecord(number, value, text)

    def _without_others(self, text: bytes) -> bytes:
        """Returns the text of an event without a member for the fields that were skipped."""
        if self._parse is None:
            return text
        try:
            return msgspec.json.encode(self._parse(text))
        except (ValueError, TypeError, RecursionError):
            return text  # the check of the event says what is wrong

    def _damaged(self, first: int, count: int, data: bytes, words: str) -> ContainerRecord:
        block = f"the block at byte {self._source.begin}, of {count} record(s), can't be read"
        why = "damaged-block", f"{block}: {words}"
        return ContainerRecord(first, data, why, count, is_part_lost=True)

    def _meta(self) -> dict[str, bytes]:
        meta: dict[str, bytes] = {}
        while count := self._source.long():
            if count < 0:
                self._source.long()  # the size of the part of the map in bytes
            for _ in range(abs(count)):
                name = self._source.sized().decode(errors="replace")
                meta[name] = self._source.sized()
        return meta


def _whole(decompressor: Any, data: bytes) -> bytes:
    content: bytes = decompressor.decompress(data, MAX_BLOCK_BYTES + 1)
    if len(content) > MAX_BLOCK_BYTES:
        raise ValueError(_TOO_LARGE)
    if not decompressor.eof:
        raise ValueError("what is compressed is cut off")
    return content


def _unpacked_snappy(data: bytes) -> bytes:
    import pyarrow as pa

    packed, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    size = shift = 0
    for byte in packed[:_SIZE_BYTES]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that another byte follows
            break
    if size > MAX_BLOCK_BYTES:
        raise ValueError(_TOO_LARGE)
    content: bytes = pa.decompress(packed, size, "snappy", asbytes=True)
    if zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise ValueError("its checksum is wrong")
    return content


def _unpacked_zstandard(data: bytes) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        content: bytes = stream.read(MAX_BLOCK_BYTES + 1)
    if len(content) > MAX_BLOCK_BYTES:
        raise ValueError(_TOO_LARGE)
    return content


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: _whole(zlib.decompressobj(-zlib.MAX_WBITS), data),
    "snappy": _unpacked_snappy,
    "zstandard": _unpacked_zstandard,
    "bzip2": lambda data: _whole(bz2.BZ2Decompressor(), data),
    "xz": lambda data: _whole(lzma.LZMADecompressor(), data),
}
_OF_ARROW = ("snappy", "zstandard")
