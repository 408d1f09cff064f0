"""Data files that can't be written."""

import pytest

from headrace.sinks.lake.files.folder import TableFolder


class FullDisk:
    """An encoding whose file can't be finished."""

    def write(self, rows, stream):
        del rows
        stream.write(b"PAR1")
        raise ValueError("the disk is full")


def test_a_file_that_could_not_be_finished_is_removed(tmp_path):
    with pytest.raises(ValueError, match="the disk is full"):
        TableFolder(str(tmp_path)).write("a.parquet", [], FullDisk())
    assert list(tmp_path.iterdir()) == []


def test_a_write_says_why_it_failed_also_where_its_file_can_not_be_deleted(tmp_path, monkeypatch):
    def delete(_, paths):
        raise OSError(f"cannot delete {list(paths)}")

    monkeypatch.setattr(TableFolder, "delete", delete)
    with pytest.raises(ValueError, match="the disk is full"):
        TableFolder(str(tmp_path)).write("a.parquet", [], FullDisk())
