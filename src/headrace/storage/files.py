"""Files by URI: a local path or ``file://``, ``hdfs://``, ``viewfs://`` and ``s3://``.

The only module that knows where they are. Every function takes a URI (or an absolute local path)
and the storage options of the project; names in results are relative to the folder of the call.
Unreadable storage raises :class:`OSError`; S3 raises the errors of :mod:`headrace.storage.s3`.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from headrace.runtime.files.durable_files import create_file, replace_file
from headrace.storage import s3
from headrace.storage.s3 import is_s3

if TYPE_CHECKING:
    from pyarrow import fs

Options = Mapping[str, str]
NO_OPTIONS: Options = {}
_HDFS_SCHEMES = ("hdfs", "viewfs")


def filesystem(uri: str, options: Options = NO_OPTIONS) -> tuple[fs.FileSystem, str]:
    """Returns the file system of ``uri``, which is not on S3, and the path in it.

    ``options`` are the storage's own settings: Hadoop's names for HDFS (its replication and
    block size come from the server unless they are set here).
    """
    from pyarrow import fs

    parts = urlsplit(uri)
    if parts.scheme in _HDFS_SCHEMES:
        return fs.PyFileSystem(fs.FSSpecHandler(_hdfs(uri, options))), parts.path or "/"
    if "://" in uri and parts.scheme != "file":
        raise OSError(f"{uri}: no storage that headrace knows")
    return fs.LocalFileSystem(), str(local_path(uri))


def local_path(uri: str) -> Path:
    """Returns the absolute path of a URI whose files are those of this machine."""
    from urllib.request import url2pathname

    path = url2pathname(urlsplit(uri).path) if uri.startswith("file:") else uri
    return Path(os.path.abspath(path))  # noqa: PTH100


def _hdfs(uri: str, options: Options) -> Any:
    parts = urlsplit(uri)
    place = (parts.scheme, parts.hostname, parts.port)
    return _hdfs_client(os.getpid(), place, tuple(sorted(options.items())))


@functools.cache
def _hdfs_client(
    pid: int,  # noqa: ARG001  a client is of the process that made it
    place: tuple[str, str | None, int | None],
    options: tuple[tuple[str, str], ...],
) -> Any:
    """Kept here, not in fsspec's cache.

    That one is dropped in every forked child, which then waits without end for the client's
    threads, which do not exist in the child.
    """
    from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem

    scheme, host, port = place
    kind = HdfsFileSystem if scheme == "hdfs" else ViewfsFileSystem
    return kind(host=host, port=port, skip_instance_cache=True, **dict(options))


def join(uri: str, *names: str) -> str:
    """``uri`` with further path segments."""
    return "/".join((uri.rstrip("/"), *names))


def read_bytes(uri: str, options: Options = NO_OPTIONS) -> bytes:
    """Returns the content of a file; FileNotFoundError when there is none."""
    if is_s3(uri):
        return s3.read(uri, options)
    files, path = filesystem(uri, options)
    with files.open_input_file(path) as stream:
        return bytes(stream.read())


def write_bytes_atomic(uri: str, content: bytes, options: Options = NO_OPTIONS) -> None:
    """Write or replace a file: readers see the old content or the new, never a part.

    Locally it is on the disk when this returns. S3 replaces objects atomically by itself;
    elsewhere a temporary file beside it is renamed over it.
    """
    if is_s3(uri):
        s3.write(uri, content, options)
    elif _is_hdfs(uri):
        hdfs, path = _hdfs(uri, options), urlsplit(uri).path
        hdfs.mv(_temporary_hdfs(hdfs, path, content), path, overwrite=True)
    else:
        replace_file(local_path(uri), content)


def write_bytes_new(uri: str, content: bytes, options: Options = NO_OPTIONS) -> None:
    """Write a file that is not there yet, whole or not at all; of several writers one succeeds.

    Raises:
        FileExistsError: if there is a file, of this call too when its answer was lost.
    """
    if is_s3(uri):
        s3.write_new(uri, content, options)
    elif _is_hdfs(uri):
        _create_hdfs(_hdfs(uri, options), urlsplit(uri).path, content)
    else:
        create_file(local_path(uri), content)


@contextmanager
def open_output(folder: str, name: str, options: Options = NO_OPTIONS) -> Iterator[Any]:
    """Opens the new file ``name`` below ``folder`` to write to; its own folder must exist.

    On S3 the object is there, whole, once the block has ended without an error.
    """
    if is_s3(folder):
        content = io.BytesIO()
        yield content
        s3.write(join(folder, name), content.getbuffer(), options)
    else:
        files, path = filesystem(folder, options)
        with files.open_output_stream(f"{path}/{name}") as stream:
            yield stream


def open_input(folder: str, name: str, options: Options = NO_OPTIONS) -> IO[bytes]:
    """Opens the file ``name`` below ``folder`` to read; FileNotFoundError when there is none."""
    if is_s3(folder):
        return io.BytesIO(s3.read(join(folder, name), options))
    files, path = filesystem(folder, options)
    stream: IO[bytes] = files.open_input_file(f"{path}/{name}")
    return stream


def require_reachable(uri: str, options: Options = NO_OPTIONS) -> None:
    """Raises the named error that keeps files on S3 from being read; checks no other storage."""
    if is_s3(uri):
        with suppress(FileNotFoundError):
            s3.read(uri, options)  # an answer to HEAD has no body, which says what is refused


def require_conditional_writes(uri: str, options: Options = NO_OPTIONS) -> None:
    """Checks that :func:`write_bytes_new` works below ``uri``: only servers of S3 may lack it.

    Raises:
        StorageError: if it does not.
    """
    if is_s3(uri):
        s3.require_conditional_writes(uri, options)


def is_local(uri: str) -> bool:
    """Whether the files are those of this machine."""
    return "://" not in uri or uri.startswith("file:")


def _is_hdfs(uri: str) -> bool:
    return urlsplit(uri).scheme in _HDFS_SCHEMES


def _create_hdfs(hdfs: Any, path: str, content: bytes) -> None:
    temporary = _temporary_hdfs(hdfs, path, content)
    # Renaming is atomic, and without overwriting it succeeds for one of several writers.
    try:
        hdfs.mv(temporary, path, overwrite=False)
    except Exception as error:
        if not hdfs.exists(path):
            raise
        hdfs.rm(temporary)
        raise FileExistsError(path) from error


def _temporary_hdfs(hdfs: Any, path: str, content: bytes) -> str:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{uuid4().hex}.tmp"
    with hdfs.open(temporary, "wb") as stream:
        stream.write(content)
    return temporary


def list_files(uri: str, options: Options = NO_OPTIONS) -> list[str]:
    """Names of every file below the folder ``uri``, relative to it and sorted.

    Empty when the folder does not exist.
    """
    if is_s3(uri):
        return s3.names(uri, options)
    from pyarrow import fs

    files, path = filesystem(uri, options)
    selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
    skip = len(path.rstrip("/")) + 1
    entries = files.get_file_info(selector)
    return sorted(entry.path[skip:] for entry in entries if entry.type == fs.FileType.File)


def list_files_before(uri: str, time: datetime, options: Options = NO_OPTIONS) -> list[str]:
    """Names of the files below the folder ``uri`` that were last written before ``time``.

    They are relative to it and sorted; none when the folder does not exist.
    """
    if is_s3(uri):
        return s3.names(uri, options, before=time)
    from pyarrow import fs

    files, path = filesystem(uri, options)
    entries = files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    skip = len(path.rstrip("/")) + 1
    return sorted(
        entry.path[skip:]
        for entry in entries
        if entry.type == fs.FileType.File and entry.mtime < time
    )


def exists(uri: str, options: Options = NO_OPTIONS) -> bool:
    """Whether there is a file or folder at ``uri``."""
    if is_s3(uri):
        return s3.exists(uri, options)
    from pyarrow import fs

    files, path = filesystem(uri, options)
    return bool(files.get_file_info(path).type != fs.FileType.NotFound)


def delete(uri: str, options: Options = NO_OPTIONS) -> None:
    """Delete a file, or a folder with all in it; nothing happens when there is none."""
    if is_s3(uri):
        s3.delete_below(uri, options)
        return
    from pyarrow import fs

    files, path = filesystem(uri, options)
    kind = files.get_file_info(path).type
    if kind == fs.FileType.Directory:
        files.delete_dir(path)
    elif kind != fs.FileType.NotFound:
        files.delete_file(path)


def delete_files(folder: str, names: Iterable[str], options: Options = NO_OPTIONS) -> None:
    """Delete files below ``folder``; those that do not exist are no error."""
    if is_s3(folder):
        s3.delete(folder, names, options)
        return
    files, path = filesystem(folder, options)
    for name in names:
        with suppress(FileNotFoundError):
            files.delete_file(f"{path}/{name}")


def ensure_folder(uri: str, name: str) -> None:
    """Create the folder ``name`` below a local one, and its parents, unless they exist."""
    files, path = filesystem(uri)
    files.create_dir(f"{path}/{name}", recursive=True)
