"""Small files, at each point where a crash or a full disk leaves them."""

import logging
import os
from pathlib import Path

import pytest

from headrace.runtime.files.json_files import read_json, write_json, write_passing

WRITERS = (write_json, write_passing)
TORN = (b"", b"\0" * 40, b'{"a": 1', b"[7]", b"\xff\xfe")


def read(path):
    return read_json(path, lambda value: value["a"])


@pytest.mark.parametrize("write", WRITERS)
def test_what_was_written_last_is_read(tmp_path, write):
    path = tmp_path / "new" / "one.json"
    assert read(path) is None
    for value in ({"a": "ä"}, {"a": 2}):
        write(path, value)
        assert read(path) == value["a"]
    assert list(path.parent.iterdir()) == [path]


def test_the_content_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    path, steps = tmp_path / "one.json", []
    fsync, replace = os.fsync, Path.replace

    def synced(file):
        steps.append(("fsync", os.fstat(file).st_size))
        fsync(file)

    def replaced(fresh, target):
        steps.append(("replace", fresh.stat().st_size))
        return replace(fresh, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write_json(path, {"a": 1})
    size = path.stat().st_size
    assert steps[:2] == [("fsync", size), ("replace", size)]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "one.json"
    write_json(path, {"a": 1})
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_json(path, {"a": 2})
    assert (read(path), list(tmp_path.iterdir())) == (1, [path])


def test_a_full_disk_is_one_warning_for_what_is_written_again(tmp_path, monkeypatch, caplog):
    path = tmp_path / "one.json"
    with caplog.at_level(logging.WARNING, logger="headrace"):
        for outage in (1, 2):
            write_passing(path, {"a": outage})
            with monkeypatch.context() as disk:
                disk.setattr(Path, "replace", full)
                write_passing(path, {"a": 7})
                write_passing(path, {"a": 8})
            assert (read(path), list(tmp_path.iterdir())) == (outage, [path])
    said = [record.getMessage() for record in caplog.records]
    assert [str(path) in line and "No space" in line for line in said] == [True, True]


def full(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("content", TORN)
def test_a_torn_file_is_as_none_with_one_warning_until_it_is_written_anew(
    tmp_path, caplog, content
):
    path = tmp_path / "one.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="headrace"):
        assert (read(path), read(path)) == (None, None)
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]
    write_json(path, {"a": 1})
    assert read(path) == 1
