"""What entries of reprocessing explain, and what they do not."""

from datetime import UTC, datetime

import pytest

from headrace.errors import SinkError
from headrace.ledger.sums import Sums
from headrace.pipelines.ledger.entry import EntryRange
from headrace.pipelines.ledger.history import read_history, versions_in
from headrace.pipelines.ledger.reprocessed import (
    ReprocessedEntry,
    ReprocessedFolder,
    WindowChange,
    by_window,
    changes_of,
    explains,
    outside,
)

TIMES = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)
A, B = Sums(2, 0, 11), Sums(1, 0, 300)


def entry(number=1, changes=(), ranges=(), seconds=3600):
    return ReprocessedEntry(number, *TIMES, tuple(ranges), 10, 0, seconds, tuple(changes))


def offsets(start, end, id_="id"):
    return EntryRange("clicks", id_, 0, start, end)


def test_an_entry_counts_once_the_sink_records_its_number(tmp_path):
    folder = ReprocessedFolder(str(tmp_path), "p")
    assert folder.counted(3) == []
    entries = [entry(n, changes_of({0: A}, {None: B}), [offsets(0, 5)]) for n in (1, 2, 3)]
    for each in entries:
        folder.write(each)
    assert folder.counted(0) == []
    assert folder.counted(2) == entries[:2]
    assert folder.counted(3) == entries
    assert (entries[0].added, entries[0].removed) == (2, 1)
    (tmp_path / "_headrace" / "ledger" / "p" / "reprocessed" / "2.json").write_text("{")
    with pytest.raises(SinkError, match=r"2\.json"):
        folder.counted(2)


@pytest.mark.parametrize(
    ("recorded", "counts"),
    [
        pytest.param({"headrace.p": 1, "headrace.p/reprocess": 1}, True, id="recorded"),
        pytest.param({"headrace.p": 1}, False, id="of an older copy of the sink"),
    ],
)
def test_an_entry_does_not_count_where_the_sink_records_checkpoints_and_no_part(
    tmp_path, recorded, counts
):
    written = entry(ranges=[offsets(0, 5)])
    ReprocessedFolder(str(tmp_path), "p").write(written)
    found = read_history(str(tmp_path), "p", versions_in(recorded)).reprocessed
    assert found == [written] * counts


def test_changes_of_shorter_windows_add_up_and_none_is_left_out():
    halves = [WindowChange(0, A, Sums()), WindowChange(1800, B, A), WindowChange(3600, A, A)]
    assert by_window([entry(changes=halves, seconds=1800)], 3600) == {0: [B]}


@pytest.mark.parametrize(
    ("changes", "missing", "is_explained"),
    [
        ([], Sums(), True),
        ([], A, False),
        ([A], Sums(), True),  # rows that were lost came back
        ([A], Sums() - A, True),  # rows that no batch has given were added
        ([A], A, False),  # rows are missing, as many as were added
        ([A, B], Sums() - B, True),
        ([A, B], Sums() - A - B, True),
        ([A, Sums() - B], B - A, True),
        ([A], Sums() - Sums(2, 0, 12), False),
        ([A] * 40, Sums() - Sums(80, 0, 440), True),
        ([A] * 40, Sums() - A, False),
    ],
)
def test_rows_are_explained_by_whole_changes_only(changes, missing, is_explained):
    assert explains(changes, missing) is is_explained


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ([], [(10, 20)]),
        ([(10, 20)], []),
        ([(0, 30)], []),
        ([(0, 10), (20, 30)], [(10, 20)]),
        ([(12, 15)], [(10, 12), (15, 20)]),
        ([(14, 18), (8, 12), (12, 15)], [(18, 20)]),
        ([(0, 30), (11, 12)], []),
    ],
)
def test_what_was_read_again_is_no_gap(read, left):
    ranges = [offsets(*each) for each in read]
    assert outside([*ranges, offsets(0, 99, "other")], offsets(10, 20)) == [
        offsets(*each) for each in left
    ]
