"""Container files of Avro, made block by block, so that each part of them can be damaged."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa

MARKER = bytes(range(16))
CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")


def container(schema: Any, *blocks: Sequence[Any], codec: str = "null") -> bytes:
    """A file with blocks of records."""
    meta = {"avro.codec": codec.encode(), "avro.schema": json.dumps(schema).encode()}
    return header(meta) + b"".join(block(schema, records, codec) for records in blocks)


def header(meta: Mapping[str, bytes]) -> bytes:
    return b"Obj\x01" + encoded({"type": "map", "values": "bytes"}, meta) + MARKER


def block(
    schema: Any, records: Sequence[Any], codec: str = "null", *, count: int | None = None
) -> bytes:
    """A block that says that it has ``count`` records, by default as many as it has."""
    data = packed(b"".join(encoded(schema, record) for record in records), codec)
    counted = encoded("long", len(records) if count is None else count)
    return counted + encoded("bytes", data) + MARKER


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def packed(data: bytes, codec: str) -> bytes:
    if codec == "snappy":
        checksum = zlib.crc32(data).to_bytes(4, "big")
        return pa.compress(data, codec="snappy", asbytes=True) + checksum
    if codec == "zstandard":
        return pa.compress(data, codec="zstd", asbytes=True)
    if codec == "deflate":
        return zlib.compress(data)[2:-4]
    return {"null": bytes, "bzip2": bz2.compress, "xz": lzma.compress}[codec](data)
