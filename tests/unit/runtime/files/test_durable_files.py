from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace.runtime.files import durable_files
from headrace.runtime.files.durable_files import create_file, replace_file, write_durably


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def full_disk(monkeypatch):
    """The disk takes half of the next write, and nothing more."""
    real, taken = os.pwrite, []

    def write(file, content, start):
        if taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(1)
        return real(file, bytes(content)[: len(content) // 2], start)

    return lambda: monkeypatch.setattr(os, "pwrite", write)


@pytest.fixture
def calls(monkeypatch):
    """What made content or a name durable or visible, in order."""
    made = []
    for name in ("fsync", "fdatasync", "link", "rename", "replace"):
        real = getattr(os, name)

        def call(target, *others, _name=name, _real=real, **named):
            is_open = isinstance(target, int)
            is_folder = is_open and Path(f"/proc/self/fd/{target}").is_dir()
            made.append(f"{_name} folder" if is_folder else _name)
            return _real(target, *others, **named)

        monkeypatch.setattr(os, name, call)
    return made


def test_a_full_disk_leaves_no_half_of_a_new_file(tmp_path, full_disk):
    full_disk()
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "new", b"0123456789", 0)
    assert names(tmp_path) == []


def test_a_full_disk_leaves_a_file_as_long_as_it_was(tmp_path, full_disk):
    write_durably(tmp_path / "file", b"before", 0)
    full_disk()
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "file", b"0123456789", len(b"before"))
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_folder_that_cannot_be_synced_takes_the_new_file_back(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(durable_files, "sync_folder", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_durably(tmp_path / "new", b"content", 0)
    assert names(tmp_path) == []


@pytest.mark.parametrize("write", [replace_file, create_file])
def test_content_that_cannot_be_synced_leaves_the_folder_as_it_was(tmp_path, monkeypatch, write):
    if write is replace_file:
        replace_file(tmp_path / "file", b"old")
    before = names(tmp_path)

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "file", b"new")
    assert names(tmp_path) == before
    assert all((tmp_path / name).read_bytes() == b"old" for name in before)


def test_content_is_on_the_disk_before_its_name_and_both_are_in_the_end(tmp_path, calls):
    replace_file(tmp_path / "file", b"content")
    create_file(tmp_path / "new", b"content")
    write_durably(tmp_path / "log", b"content", 0)
    write_durably(tmp_path / "log", b"more", len(b"content"))
    replace_file(tmp_path / "file", b"other", sync=False)
    replacing = calls[1]
    assert calls == [
        *("fsync", replacing, "fsync folder"),
        *("fsync", "link", "fsync folder"),
        *("fdatasync", "fsync folder"),
        "fdatasync",
        replacing,
    ]
    assert replacing in {"rename", "replace"}
    assert [(tmp_path / name).read_bytes() for name in names(tmp_path)] == [
        b"other",
        b"contentmore",
        b"content",
    ]


def test_a_file_that_is_there_is_not_created_again(tmp_path):
    create_file(tmp_path / "file", b"first")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "file", b"second")
    assert (names(tmp_path), (tmp_path / "file").read_bytes()) == (["file"], b"first")


def test_a_private_file_is_readable_by_its_owner_alone(tmp_path):
    replace_file(tmp_path / "tokens", b"", mode=0o600)
    write_durably(tmp_path / "log", b"x", 0)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("tokens", "log")} == {0o600}
