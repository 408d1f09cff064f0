"""Files that workers map: a full disk is an error with a name, and never kills a worker."""

import errno
import os
from pathlib import Path

import pytest

from headrace.errors import IngestStateError
from headrace.ingest.events.overdue import OverdueTopics
from headrace.ingest.figures.counters import Counters
from headrace.ingest.figures.service_metrics import count_names
from headrace.ingest.limits import LocalLimiter

BLOCK_BYTES = 512  # the unit of st_blocks


def count(folder):
    return Counters(folder, count_names(f"topic{number}" for number in range(40)))


def limit(folder):
    return LocalLimiter(folder / "limits")


@pytest.mark.parametrize("make", [count, limit])
def test_every_page_has_its_block_before_it_is_written(tmp_path, make):
    """A page without one kills its writer (SIGBUS) when the disk is full."""
    made = make(tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_blocks * BLOCK_BYTES >= file.stat().st_size > 0
    assert made is not None


@pytest.mark.parametrize("make", [count, limit])
def test_a_disk_without_room_is_named_with_the_file(tmp_path, make, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(IngestStateError, match=f"{tmp_path}.*No space left on device") as caught:
        make(tmp_path)
    assert "room" in caught.value.remedy


@pytest.mark.parametrize("make", [count, limit])
def test_a_folder_that_can_not_be_made_is_named(tmp_path, make):
    (tmp_path / "file").write_text("")
    with pytest.raises(IngestStateError, match="file"):
        make(tmp_path / "file" / "folder")


def test_topics_that_are_overdue_keep_no_descriptor_but_that_of_the_mapping(tmp_path, monkeypatch):
    path = tmp_path / "overdue"

    def descriptors():
        folder = Path("/proc/self/fd")
        return sum(os.path.realpath(one) == str(path) for one in folder.iterdir())

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    topics = OverdueTopics.shared(path, ["clicks"])
    assert "clicks" not in topics
    assert descriptors() == 1
    del topics
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(IngestStateError):
        OverdueTopics.shared(path, ["clicks"])
    assert descriptors() == 0
