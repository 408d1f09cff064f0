"""Offline files of a folder, in the order of their creation, and their lines."""

from __future__ import annotations

import enum
import fnmatch
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from headrace.errors import OfflineFilesError
from headrace.events import BYTE_ORDER_MARK, Rejection
from headrace.events.avro.container import MAGIC, container_records

MAX_LINE_BYTES = 16 * 1024 * 1024
STEP_BYTES = 65_536
_BLANKS = b" \t\r\n"
_GZIP = b"\x1f\x8b"
_DIGITS = re.compile(r"(\d+)")


class FileOrder(enum.StrEnum):
    """By what files are ordered, the one that was created first before the others.

    ``NAME``: numbers in names, compared as numbers (``offline.9`` before ``offline.10``), and the
    text between them as text. ``MODIFIED``: the time of the last write, then the name.
    """

    NAME = "name"
    MODIFIED = "modified"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identifies the content of a file: it changes when the file is written to."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        """Returns the identity from what the operating system says of a file."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @property
    def place(self) -> tuple[int, int]:
        """Returns what stays when the file is written to or renamed."""
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class OfflineFile:
    """A file to load.

    Attributes:
        path: where it is.
        newest: of its folder; it may still be written to.
        identity: of the file that is meant; ``None``: any that is there.
    """

    path: Path
    newest: bool
    identity: FileIdentity | None = None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a folder, as it was when the folder was listed."""

    path: Path
    identity: FileIdentity


class End(enum.Enum):
    """How a line ends: as it should, with the file, in damage, or beyond what is read of it."""

    NEWLINE = "newline"
    FILE = "file"
    DAMAGE = "damage"
    TOO_LONG = "too-long"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, without its newline, or a record of an Avro file; numbers count from 1.

    Attributes:
        file: name of the file.
        number: of the line or record in its file.
        content: of a record its JSON text, or the bytes of what can't be read.
        end: how it ends.
        rejection: of a record, why it can't be read.
    """

    file: str
    number: int
    content: bytes
    end: End = End.NEWLINE
    rejection: Rejection | None = None


def find_files(folder: Path, order: FileOrder, pattern: str = "*") -> list[OfflineFile]:
    """Returns the files of :func:`list_files`, to be loaded.

    Raises:
        OfflineFilesError: if the folder can't be read, or there is no such file in it.
    """
    listed = list_files(folder, order, pattern)
    if not listed:
        raise OfflineFilesError(str(folder), f"no file {pattern!r} is in it")
    return [OfflineFile(file.path, file is listed[-1]) for file in listed]


def list_files(folder: Path, order: FileOrder, pattern: str) -> list[ListedFile]:
    """Returns the files of ``folder`` whose name fits ``pattern``, oldest first; not hidden ones.

    Raises:
        OfflineFilesError: if the folder can't be read.
    """
    try:
        with os.scandir(folder) as entries:
            files = [
                ListedFile(folder / entry.name, FileIdentity.of(entry.stat()))
                for entry in entries
                if fnmatch.fnmatchcase(entry.name, pattern)
                and not entry.name.startswith(".")
                and entry.is_file()
            ]
    except OSError as error:
        raise _unreadable(folder, error) from error
    return sorted(files, key=_ORDERS[order])


def read_file(
    file: OfflineFile,
    on_open: Callable[[FileIdentity], object] = lambda _: None,
    step_bytes: int = STEP_BYTES,
) -> Iterator[Line]:
    """Yields its lines that are not blank; the file is plain text, gzip or Avro, whatever its name.

    Of an Avro container file, each record is a line, and so is a block that is damaged.
    A line that ends otherwise than with a newline is the last one, but for one of damage after
    it, which may be empty. A gzip file that is cut off is damaged; the newest may still grow.
    A byte order mark at the start of the file is no part of its first line.
    ``on_open`` is called with the identity of the opened file before its first byte is read. It is
    not called, and there are no lines, if another file than the one that is meant is there.

    Raises:
        ExtraMissingError: if what reads an Avro file is not installed.
        OfflineFilesError: if the file can't be read.
    """
    try:
        with file.path.open("rb") as opened:
            identity = FileIdentity.of(os.fstat(opened.fileno()))
            if file.identity not in {None, identity}:
                return
            on_open(identity)
            name = os.fsencode(file.path.name).decode(errors="replace")
            if opened.peek(len(MAGIC)).startswith(MAGIC):
                yield from _records(name, opened, may_grow=file.newest)
                return
            zipped = opened.peek(len(_GZIP)).startswith(_GZIP)
            plain = iter(lambda: opened.read(step_bytes), b"")
            pieces = _gunzipped(opened, step_bytes, may_grow=file.newest) if zipped else plain
            yield from _Splitter(name).lines(pieces)
    except OSError as error:
        raise _unreadable(file.path, error) from error


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts names as people count: numbers by their value."""
    parts = _DIGITS.split(name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts if part)


class _DamagedError(Exception):
    """A compressed file continues with other data."""


class _CutOffError(_DamagedError):
    """A compressed file ends within a member: what was read of it is sound, the rest is missing."""


class _Splitter:
    def __init__(self, name: str) -> None:
        self._name, self._number, self._rest, self._skipping = name, 0, bytearray(), False

    def lines(self, pieces: Iterator[bytes]) -> Iterator[Line]:
        end, cut_off = End.FILE, False
        try:
            for piece in pieces:
                yield from self._take(piece)
        except _CutOffError:
            cut_off = True
        except _DamagedError:
            end = End.DAMAGE
        content = self._content(bytes(self._rest))
        if end is End.DAMAGE or content:
            self._number += 1
            yield Line(self._name, self._number, content, end)
        if cut_off:
            yield Line(self._name, self._number + 1, b"", End.DAMAGE)

    def _take(self, piece: bytes) -> Iterator[Line]:
        start = 0
        while (newline := piece.find(b"\n", start)) >= 0:
            yield from self._ended(piece[start:newline])
            start = newline + 1
        if not self._skipping:
            self._rest += piece[start:]
            yield from self._cut()

    def _ended(self, last: bytes) -> Iterator[Line]:
        content = self._content(bytes(self._rest) + last)
        self._rest.clear()
        if self._skipping:
            self._skipping = False
            return
        self._number += 1
        if content:
            end = End.TOO_LONG if len(content) > MAX_LINE_BYTES else End.NEWLINE
            yield Line(self._name, self._number, content[:MAX_LINE_BYTES], end)

    def _content(self, line: bytes) -> bytes:
        is_first = self._number == 0
        return (line.removeprefix(BYTE_ORDER_MARK) if is_first else line).strip(_BLANKS)

    def _cut(self) -> Iterator[Line]:
        """Yields the start of a line that is too long; the rest is skipped, and never held."""
        if len(self._rest) > MAX_LINE_BYTES:
            self._number += 1
            content = bytes(self._rest[:MAX_LINE_BYTES])
            self._rest.clear()
            self._skipping = True
            yield Line(self._name, self._number, content, End.TOO_LONG)


def _records(name: str, opened: BufferedReader, *, may_grow: bool) -> Iterator[Line]:
    for record in container_records(opened):
        end = End.DAMAGE if record.is_part_lost else End.NEWLINE
        if record.is_cut_off and may_grow:
            end = End.FILE
        if record.rejection is None and len(record.content) > MAX_LINE_BYTES:
            end = End.TOO_LONG
        content = record.content[:MAX_LINE_BYTES]
        yield Line(name, record.number, content, end, record.rejection)


def _gunzipped(opened: BufferedReader, step_bytes: int, *, may_grow: bool) -> Iterator[bytes]:
    """Yields every member of the file; one that is cut off may be what was flushed so far."""
    data = opened.read(step_bytes)
    while data:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while not member.eof:
            try:
                piece = member.decompress(data, step_bytes)
            except zlib.error as error:
                raise _DamagedError from error
            yield piece
            data = member.unconsumed_tail
            if not data and len(piece) < step_bytes and not member.eof:
                data = opened.read(step_bytes)
                if not data and may_grow:
                    return
                if not data:
                    raise _CutOffError
        data = _next_member(opened, member.unused_data, step_bytes)


def _next_member(opened: BufferedReader, data: bytes, step_bytes: int) -> bytes:
    """Returns what follows a member, without the zeros that tapes and some tools pad with."""
    data = data.lstrip(b"\0")
    while not data and (read := opened.read(step_bytes)):
        data = read.lstrip(b"\0")
    return data


def _unreadable(path: Path, error: OSError) -> OfflineFilesError:
    return OfflineFilesError(str(path), error.strerror or str(error))


def _named(file: ListedFile) -> tuple[object, ...]:
    return natural(file.path.name), file.path.name


_ORDERS: dict[FileOrder, Callable[[ListedFile], tuple[object, ...]]] = {
    FileOrder.NAME: _named,
    FileOrder.MODIFIED: lambda file: (file.identity.modified_ns, *_named(file)),
}
