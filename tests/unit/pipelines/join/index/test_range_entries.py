"""A range has the entries of all its files, or says that some are gone."""

import shutil

import pytest

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.range_entries import OtherFilesError, RangeEntries
from headrace.pipelines.join.index.sorted_files import entry_key, index_options, sorted_files

KEYS = [b"a", b"b", b"c", b"d"]


def range_in(folder, *keys, count=0):
    """Returns a range, which has so many files, with a file more for each key."""
    entries = RangeEntries(folder, index_options())
    entries.file_count = count
    events = [KeyedEvent(key, 1_000_000_000, offset, b"value") for offset, key in enumerate(keys)]
    entries.ingest(
        [
            file.entries
            for event in events
            for file in sorted_files(KeyedEvents.of([event]), 60_000_000, Match.ID)
        ]
    )
    return entries


def keys_of(entries):
    with entries.reading() as opened:
        values = opened.get([entry_key(key) for key in KEYS])
    return [key for key, value in zip(KEYS, values, strict=True) if value is not None]


def test_files_that_are_taken_are_there_after_a_start_and_in_one_file_once_they_are_merged(
    tmp_path,
):
    folder = tmp_path / "range"
    assert range_in(folder, b"a", b"b", b"d").file_count == 3
    entries = RangeEntries(folder, index_options())
    entries.file_count = 3
    assert keys_of(entries) == [b"a", b"b", b"d"]
    assert (entries.file_count, entries.count_files()) == (3, 3)
    entries.merge_files()
    assert (entries.file_count, entries.count_files()) == (1, 1)
    assert keys_of(entries) == [b"a", b"b", b"d"]


def test_a_range_with_a_file_that_was_not_counted_is_refused(tmp_path):
    """As where a crash comes before its mark: nothing says of which events it is."""
    known = range_in(tmp_path / "range", b"a")
    range_in(tmp_path / "range", b"b", count=1)
    with pytest.raises(OtherFilesError):
        keys_of(known)


def test_a_range_with_fewer_files_than_were_there_is_refused(tmp_path):
    """As after a rollback of its disk: RocksDB opens what an earlier manifest names."""
    range_in(tmp_path / "earlier", b"a")
    entries = range_in(tmp_path / "range", b"a", b"b")
    shutil.rmtree(tmp_path / "range")
    (tmp_path / "earlier").rename(tmp_path / "range")
    with pytest.raises(OtherFilesError):
        keys_of(entries)
    with pytest.raises(OtherFilesError):
        entries.merge_files()


def test_what_a_cut_deletion_leaves_is_not_taken_for_entries(tmp_path):
    folder = tmp_path / "range"
    assert not RangeEntries.are_in(folder)
    entries = range_in(folder, b"a")
    assert RangeEntries.are_in(folder)
    (folder / "CURRENT").unlink()  # deleted first
    assert not RangeEntries.are_in(folder)
    entries.delete()
    entries.delete()  # a cleaner of temporary files may have been there before
    assert not folder.exists()
