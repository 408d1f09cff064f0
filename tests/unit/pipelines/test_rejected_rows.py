"""Rows that a sink rejects, whose dead letters have no offset, while batches are tried again."""

import pytest
from tests.unit.pipelines.spark_like import Frame, Site, Watched, without_kafka

from headrace.errors import SinkUnavailableError
from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.batch.derived_letters import DerivedLetters
from headrace.pipelines.batch.manifest import manifest_table
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.late_data.side_table import SideTable
from headrace.pipelines.source.report import LateCounts
from headrace.sinks.api import CommitRejection, CommitResult, RejectedValues, SinkDriver


@pytest.fixture
def site(tmp_path, monkeypatch):
    without_kafka(monkeypatch)
    site = Site(tmp_path, str(tmp_path / "lake"))
    site.cluster.create("clicks", 2)
    return site


def derived(value, reason="wrong-value"):
    return DeadLetter(TopicPartition("clicks", -1), -1, reason, "no", None, value)


def rejecting(monkeypatch, *letters):
    """Tasks whose writer rejects rows, the same in each attempt."""
    collect = Frame.collect
    rows = manifest_table(dead=letters).to_pylist()
    monkeypatch.setattr(Frame, "collect", lambda frame: collect(frame) + rows)


def away(monkeypatch, attempts):
    """A sink that is away for some attempts, after the dead letters are written."""
    commit, failures = Watched.commit, iter(range(attempts))

    def commit_when_back(sink, *args):
        if next(failures, None) is not None:
            raise SinkUnavailableError("clicks", "the database is away")
        return commit(sink, *args)

    monkeypatch.setattr(Watched, "commit", commit_when_back)


def fail(site, times):
    for _ in range(times):
        with pytest.raises(SinkUnavailableError):
            site.run()


def values(site):
    return sorted(letter.value for letter in site.letters if letter.offset < 0)


def test_their_letters_are_written_once_for_a_batch_while_the_sink_is_away(site, monkeypatch):
    rejecting(monkeypatch, derived(b"1"), derived(b"1"), derived(b"2"))
    away(monkeypatch, 3)
    site.send(10)
    fail(site, 3)
    assert values(site) == [b"1", b"1", b"2"]
    site.run()
    assert values(site) == [b"1", b"1", b"2"]
    assert site.results[-1].dead_letters == 3 + 2  # and two bad records


def test_the_next_batch_writes_letters_of_its_own(site, monkeypatch):
    rejecting(monkeypatch, derived(b"1"))
    site.send(10)
    site.run()
    site.send(10)
    site.run()
    assert values(site) == [b"1", b"1"]


def test_a_row_that_is_rejected_only_in_a_later_attempt_is_written(site, monkeypatch):
    away(monkeypatch, 1)
    site.send(10)
    fail(site, 1)
    rejecting(monkeypatch, derived(b"1"))
    site.run()
    assert values(site) == [b"1"]


def test_a_process_that_replaces_a_killed_one_writes_them_once_more(site, monkeypatch):
    rejecting(monkeypatch, derived(b"1"))
    away(monkeypatch, 1)
    site.send(10)
    fail(site, 1)
    site.derived = DerivedLetters()
    site.run()
    assert values(site) == [b"1", b"1"]


def test_equal_rows_of_one_attempt_have_a_letter_each_whenever_they_are_found():
    letters = DerivedLetters()
    for attempt in range(3):
        letters.begin("checkpoint", 7)
        new = [letters.unwritten([derived(b"1")]), letters.unwritten([derived(b"1")])]
        assert list(map(len, new)) == ([0, 0] if attempt else [1, 1])
        for written in new:
            letters.remember(written)


class SideSink(SinkDriver):
    """A side table whose commit takes all rows but one."""

    def __init__(self):
        self.writers = None
        self.rejects = True

    def commit(self, pieces, transaction, watermark_us):
        rejects, self.rejects = self.rejects, False
        if rejects:
            return CommitRejection([RejectedValues("{}", "not-unique", "key")], pieces)
        return CommitResult(is_new=True, rows=4)

    def discard(self, pieces):
        raise AssertionError(pieces)

    def close(self, max_wait_seconds):
        pass


def test_late_events_that_the_commit_of_the_side_table_rejects_are_not_counted_as_in_it(
    site, monkeypatch
):
    monkeypatch.setattr(Frame, "late", LateCounts(events=5, written=5))
    monkeypatch.setattr(Frame, "side_pieces", ("piece",))
    site.side_table = SideTable(CheckpointIds("clicks-to-lake", 1), SideSink())
    site.send(10)
    site.run()
    assert site.results[-1].late == LateCounts(events=5, written=4)
