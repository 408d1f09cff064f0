"""What is stored, in topics and files: how a value is written, and how it is read again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Format:
    """A value, and the two functions between it and what is stored.

    Attributes:
        name: of its golden files, ``stored/NAME.N.txt``.
        value: what every sample that was ever written is restored to.
        write: returns what is stored, as plain Python values.
        read: returns the value of what is stored.
    """

    name: str
    value: object
    write: Callable[[Any], object]
    read: Callable[[Any], object]


def in_files(
    name: str,
    value: object,
    write: Callable[[Any, Path], object],
    read: Callable[[Path], object],
) -> Format:
    """Returns a format that is files in a folder; the sample is their content, by path."""

    def written(value: object) -> dict[str, str | bytes]:
        with tempfile.TemporaryDirectory() as folder:
            write(value, Path(folder))
            files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
            return {str(path.relative_to(folder)): _readable(path.read_bytes()) for path in files}

    def restored(contents: dict[str, str | bytes]) -> object:
        with tempfile.TemporaryDirectory() as folder:
            for path, content in contents.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.encode() if isinstance(content, str) else content)
            return read(Path(folder))

    return Format(name, value, written, restored)


def _readable(content: bytes) -> str | bytes:
    return content.decode() if content.isascii() and b"\0" not in content else content
