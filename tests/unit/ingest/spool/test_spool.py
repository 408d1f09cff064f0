"""The spool: what append returned for is there, in order, within its limits."""

import errno
import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.ingest.spool.kafka import taking

from headrace.errors import SpoolError, SpoolFullError
from headrace.ingest.spool.loader import Loader
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits


def segment_files(folder):
    return sorted(folder.glob("*.segment"))


def test_a_record_comes_back_as_it_went_in(open_spool):
    spool = open_spool()
    given = [
        SpoolRecord("a", None, b"", (), -1, None),
        SpoolRecord("b", b"\0\xff", b"v" * 3_000_000, (("n", b""), ("n", b"2")), 2**60, 7),
    ]
    spool.append(given)
    sent = []
    Loader(spool, taking(sent.extend)).run_once()
    assert sent == given


def test_a_spool_that_can_not_be_opened_leaves_no_file_open(folder):
    (folder / "state").mkdir(parents=True)
    with pytest.raises(SpoolError):
        Spool(folder, SpoolLimits())
    held = [file.resolve() for file in Path("/proc/self/fd").iterdir()]
    assert [path for path in held if path.is_relative_to(folder)] == []


def test_an_empty_append_writes_nothing(open_spool, folder):
    spool = open_spool()
    spool.append([])
    assert not spool.pending
    assert segment_files(folder) == []


def test_pending_is_seen_by_all_until_everything_is_replayed(open_spool, record):
    one, other = open_spool(), open_spool()
    one.append([record(1)])
    assert other.pending
    Loader(other, taking(lambda _: None)).run_once()
    assert not one.pending


def test_append_behind_writes_only_while_records_are_pending(open_spool, record, drain):
    spool = open_spool()
    assert not spool.append_if_pending([record(1)])
    spool.append([record(2)])
    assert spool.append_if_pending([record(3)])
    assert drain()[0] == ["2", "3"]
    assert not spool.append_if_pending([record(4)])


def test_who_waited_for_the_last_batch_is_told_that_nothing_is_pending(open_spool, record):
    """Else those who wait would fill the spool again, and it would never be empty under load."""
    one, other = open_spool(), open_spool()
    one.append([record(n) for n in range(3)])
    answers, asked, sends = [], threading.Event(), []

    def ask():
        asked.set()
        answers.append(other.append_if_pending([record("late")]))

    asking = threading.Thread(target=ask)

    def send(records):
        sends.append(len(records))
        if len(sends) == 1:
            one.append([record("while loading")])
        else:  # the lock is held now
            asking.start()
            asked.wait()

    Loader(one, taking(send)).run_once()
    asking.join()
    assert sends == [3, 1]
    assert answers == [False]
    assert not one.pending


def test_segments_end_by_size_and_all_of_them_are_replayed_in_order(
    open_spool, record, folder, drain
):
    spool = open_spool(segment_bytes=300)
    for number in range(20):
        spool.append([record(number)])
    assert len(segment_files(folder)) > 3
    assert drain()[0] == [str(number) for number in range(20)]
    assert segment_files(folder) == []


def test_segments_end_by_age(open_spool, record, folder, clock):
    spool = open_spool(segment_age=timedelta(seconds=10))
    for _ in range(3):
        spool.append([record(1)])
        clock.now += 6
    assert len(segment_files(folder)) == 2


def test_a_clock_that_goes_back_changes_no_order(open_spool, record, clock, drain, folder):
    spool = open_spool(segment_bytes=300)
    for number in range(12):
        spool.append([record(number)])
        clock.now -= 100_000
    for place, path in enumerate(segment_files(folder)):
        os.utime(path, (1000 - place, 1000 - place))
    assert spool.stats().oldest_age == timedelta()
    assert drain()[0] == [str(number) for number in range(12)]


def test_beyond_the_budget_nothing_is_written_and_loading_makes_room(open_spool, record, drain):
    spool = open_spool(budget_bytes=1000, segment_bytes=300)
    for number in range(8):
        spool.append([record(number)])
    with pytest.raises(SpoolFullError, match="budget is used up"):
        spool.append([record("x" * 500)])
    assert drain()[0] == list("01234567")
    spool.append([record("again")])
    assert drain()[0] == ["again"]


def test_counters_go_on_after_the_spool_was_empty(open_spool, record, drain):
    for number in range(3):
        open_spool().append([record(number)])
        sent, report = drain()
        assert (sent, report.missing) == ([str(number)], 0)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync"])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("undo_fails", [False, True])
@pytest.mark.parametrize("loads_between", [False, True])
def test_a_failed_append_is_never_replayed_and_the_next_succeeds(  # noqa: PLR0917
    call, before, undo_fails, loads_between, open_spool, record, texts, drain, monkeypatch
):
    # A folder is synced where a segment is created.
    spool = open_spool(segment_bytes=1 if call == "fsync" else 1 << 20)
    for number in range(before):
        spool.append([record(number)])

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        if undo_fails:
            patch.setattr(os, "truncate", full)
            patch.setattr(os, "unlink", full)
        with pytest.raises(SpoolError, match="No space left"):
            spool.append([record("failed"), record("failed")])
    assert spool.pending == bool(before)
    sent = []
    if loads_between:
        loader = Loader(spool, taking(sent.extend))
        loader.run_once()
        loader.close()
    spool.append([record("next")])
    rest, report = drain()
    assert texts(sent) + rest == [*map(str, range(before)), "next"]
    assert report.missing == 0


def test_half_a_write_before_a_full_disk_leaves_nothing(open_spool, record, drain, monkeypatch):
    spool = open_spool()
    spool.append([record("first")])
    real, left = os.pwrite, [30]

    def filling(file, content, start):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(file, bytes(content)[: left[0]], start)
        left[0] -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", filling)
        with pytest.raises(SpoolError):
            spool.append([record("failed")])
    spool.append([record("next")])
    sent, report = drain()
    assert sent == ["first", "next"]
    assert (report.missing, report.quarantined) == (0, 0)


def test_short_writes_are_gone_on_with(open_spool, record, drain, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: real(file, content[:7], at))
    open_spool().append([record("a"), record("b")])
    assert drain()[0] == ["a", "b"]


def test_stats_say_what_waits(open_spool, record, clock, folder):
    spool = open_spool()
    assert spool.stats().records == 0
    spool.append([record(1), record(2)])
    clock.now += 5
    stats = spool.stats()
    assert stats.records == 2
    assert stats.bytes == sum(path.stat().st_size for path in segment_files(folder))
    assert stats.oldest_age == timedelta(seconds=5)


def test_a_segment_that_somebody_truncated_is_not_appended_to(open_spool, record, folder, drain):
    spool = open_spool()
    spool.append([record(1)])
    os.truncate(segment_files(folder)[0], 30)
    spool.append([record(2)])
    sent, report = drain()
    assert sent == ["2"]
    assert (report.missing, report.quarantined) == (1, 1)


def test_a_folder_that_can_not_be_made_is_a_spool_error(open_spool, folder):
    folder.write_text("a file")
    with pytest.raises(SpoolError, match="disk failed"):
        open_spool()
