"""Lines of offline files, for the tests of every layer."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

ARTICLE = Path(__file__).parent / "integration" / "data" / "offline-files-of-the-article.ndjson"


def packed(document: object) -> str:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.b64encode(zlib.compress(text)).decode()


def line(counter: int, *, table: str = "raw_item", **row: object) -> bytes:
    columns = {"project_id": 1, "body": packed({"n": counter})} | row
    return json.dumps({"table": table, "row": columns, "counter": counter}).encode()


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(lines) + end)
    return path
