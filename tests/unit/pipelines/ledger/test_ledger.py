"""Entries and the sink's positions: whatever is killed or lost, the sums are those of the rows."""

import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipelines.spark_like import (
    BAD_EVERY,
    CHECKPOINTS,
    CRASHES,
    LEDGER_RULE,
    TABLE,
    Crashed,
    Site,
    event_columns,
    once,
    without_kafka,
)

from headrace.events.event_hash import hash_positions, hash_texts
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.model import OffsetRange, Start, TopicPartition
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.ledger import recording
from headrace.pipelines.ledger.comparison import HopComparison
from headrace.pipelines.ledger.completeness import CompletenessBounds
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.ledger.counting.waiting import Waiting
from headrace.pipelines.ledger.entry import EntryRange
from headrace.pipelines.ledger.history import read_history
from headrace.pipelines.ledger.recording import (
    CountedRows,
    Ledger,
    RecordedBatch,
)
from headrace.pipelines.ledger.reprocessed import ReprocessedEntry, ReprocessedFolder
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine, added
from headrace.pipelines.source.report import RangeReport
from headrace.pipelines.start.resets import Resets
from headrace.sinks.api import CommitRejection, RejectedValues
from headrace.sinks.lake.delta.snapshot import lake_snapshot
from headrace.storage import files as storage

PLACES = (*CRASHES, "entry written")


def make_site(folder, patch):
    without_kafka(patch)
    site = Site(folder / "first", str(folder / "lake"))
    site.cluster.create("clicks", 2)
    return site


@pytest.fixture
def site(tmp_path, monkeypatch):
    return make_site(tmp_path, monkeypatch)


def history(site):
    return read_history(site.lake, site.pipeline.name, site.table.versions)


def counted(site):
    return history(site).entries


def balance(site):
    known = history(site)
    return HopComparison(
        known.entries, CompletenessBounds(0), has_steps=False, recorded=known.recorded
    )


def truth(site, hop, fate, good):
    """The sums of records that were read, or of rows that are in the table, by key."""
    sums = {}
    for partition in (0, 1):
        where = TopicPartition("clicks", partition)
        offsets = np.array(sorted(at for p, at in site.rows() if p == partition), np.int64)
        assert set(Counter(site.rows()).values()) <= {1}
        for window, each in event_columns(where, offsets).sums.items():
            sums[LedgerKey(hop, fate, window, "clicks", partition)] = each
        if not good:
            read = int(offsets.max()) + 1 if len(offsets) else 0
            dead = sum(1 for at in range(read) if at % BAD_EVERY == 0)
            sums[LedgerKey(hop, fate, None, "clicks", partition)] = Sums(dead, dead)
    return sums


def assert_ledger_is_true(site):
    result = balance(site)
    windows = result.windows()
    assert not result.breaks()
    assert not result.uncounted
    assert not [window for window in windows if window.differences]
    sums = {}
    for entry in counted(site):
        for line in entry.lines:
            if (line.key.hop, line.key.fate) == (Hop.SINK, Fate.OUT):
                sums[line.key] = sums.get(line.key, Sums()) + line.sums
    assert sums == truth(site, Hop.SINK, Fate.OUT, good=True)
    assert sum(window.read for window in windows) == len(site.rows()) + len(site.letter_counts())


@pytest.mark.parametrize("crash", PLACES)
def test_a_killed_batch_is_counted_once(site, crash):
    site.send(10, 5)
    site.run()
    site.send(10, 30)
    with pytest.raises(Crashed):
        site.run(crash=crash)
    site.run()
    assert_ledger_is_true(site)


def test_an_entry_whose_batch_is_not_committed_does_not_count(site):
    site.send(10, 5)
    site.run()
    before = balance(site).windows()
    site.send(10, 30)
    with pytest.raises(Crashed):
        site.run(crash="entry written")
    assert len(site.ledger.spans()) == 2
    assert balance(site).windows() == before


actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 12), st.integers(0, 12)),
        st.tuples(st.just("kill"), st.sampled_from(PLACES)),
        st.just(("run",)),
        st.just(("lose the checkpoint",)),
        st.just(("forget the newest commit",)),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(actions)
def test_the_sums_are_those_of_the_table_after_any_history(history):
    folder = Path(tempfile.mkdtemp())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "MERGED_AT_ONCE", 2)
        patch.setattr(recording, "KEPT_SINGLE", 1)
        site = make_site(folder, patch)
        for number, (action, *values) in enumerate(history):
            if action == "send":
                site.send(*values)
            elif action == "lose the checkpoint":
                site = site.fresh(folder / f"machine {number}")
            elif action == "forget the newest commit":
                forget_newest_commit(site)
            else:
                with suppress(Crashed):
                    site.run(start=site.started_without_state, crash=values[0] if values else "")
        site.send(1, 1)
        site.run(start=site.started_without_state)
        assert_ledger_is_true(site)
    shutil.rmtree(folder)


def forget_newest_commit(site):
    current = site.checkpoints.current()
    if current is not None:
        folder = f"{site.checkpoints.checkpoint(current).uri}/commits"
        newest = max(map(int, storage.list_files(folder)), default=None)
        if newest is not None:
            storage.delete(f"{folder}/{newest}")


def test_where_the_entry_can_t_be_written_no_row_is_committed_and_none_is_lost(site, monkeypatch):
    site.send(10, 5)
    write = storage.write_bytes_atomic

    def full_disk(uri, *rest):
        if "/ledger/" in uri:
            raise OSError(28, "no space left on device", uri)
        write(uri, *rest)

    monkeypatch.setattr(storage, "write_bytes_atomic", full_disk)
    with pytest.raises(OSError, match="no space left"):
        site.run()
    assert not site.table.versions([CheckpointIds(site.pipeline.name, 1).newest])
    monkeypatch.undo()
    without_kafka(monkeypatch)
    site.run()
    assert_ledger_is_true(site)


def test_entries_are_merged_beside_the_batches_and_a_failure_of_that_costs_nothing(
    site, monkeypatch
):
    monkeypatch.setattr(recording, "MERGED_AT_ONCE", 4)
    monkeypatch.setattr(recording, "KEPT_SINGLE", 1)
    for _ in range(6):
        site.send(3, 3)
        site.run()
    assert [(span.level, span.first, span.last) for span in site.ledger.spans()] == [
        (0, 4, 4),
        (0, 5, 5),
        (1, 0, 3),
    ]
    monkeypatch.setattr(type(site.ledger), "merge", lambda *_: 1 / 0)
    for _ in range(4):
        site.send(3, 3)
        site.run()
    assert_ledger_is_true(site)


def test_entries_of_the_newest_batches_stay_single(site, monkeypatch):
    """A reader counts what a sink held when it began, and leaves later batches out."""
    monkeypatch.setattr(recording, "MERGED_AT_ONCE", 2)
    monkeypatch.setattr(recording, "KEPT_SINGLE", 3)
    for _ in range(7):
        site.send(3, 3)
        site.run()
    read = [range_.end for entry in site.ledger.counted({1: 3}) for range_ in entry.ranges]
    assert (len(read), max(read)) == (2, 12)
    assert [(span.level, span.first, span.last) for span in site.ledger.spans()] == [
        (0, 4, 4),
        (0, 5, 5),
        (0, 6, 6),
        (2, 0, 3),
    ]


def test_a_batch_that_reads_nothing_has_no_entry_but_the_first_of_a_pipeline(site):
    driver = site.started()
    for _ in range(2):
        driver.batch_of_nothing()
        assert len(site.ledger.spans()) == 1


def test_a_lost_entry_is_no_lost_record(site):
    for _ in range(3):
        site.send(10, 0)
        site.run()
    storage.delete(f"{site.ledger.uri}/1-0-1-1.json")
    result = balance(site)
    assert not result.breaks()
    [reason] = result.uncounted
    assert reason.startswith("offsets 10 to 20 of clicks/0 were read by batches that are not in")


@pytest.mark.parametrize("is_reset", [False, True])
def test_batches_while_the_ledger_is_off_are_uncounted(site, is_reset):
    for keeps in (True, False, True):
        site.keeps_ledger = keeps
        site.send(10, 4)
        site.run()
        result = balance(site)
        assert not result.breaks()
        assert bool(result.uncounted) == (not keeps or len(site.rows()) > 12)
        if is_reset:
            site.reset()
    assert site.rows() == once(30, 12)


def batches(site, count, events=3):
    for _ in range(count):
        site.send(events, events)
        site.run()


@pytest.fixture
def merging_early(monkeypatch):
    monkeypatch.setattr(recording, "MERGED_AT_ONCE", 4)
    monkeypatch.setattr(recording, "KEPT_SINGLE", 1)


@pytest.mark.usefixtures("merging_early")
@pytest.mark.parametrize("at", [3, 6, 9])
def test_batches_before_a_backup_of_the_table_count_after_it_was_restored(site, tmp_path, at):
    """Also those whose entries were merged with entries of batches after it."""
    batches(site, at)
    kept = site.keep(tmp_path / "backup")
    batches(site, 10 - at)
    site.restore(kept, TABLE)
    site.reset()
    batches(site, 2)
    assert_ledger_is_true(site)


@pytest.mark.usefixtures("merging_early")
@pytest.mark.parametrize("at", [3, 6, 9])
def test_batches_of_a_history_that_ended_do_not_count(site, tmp_path, at):
    """The table and its checkpoint are restored, and the numbers of batches are used again."""
    batches(site, at)
    kept = site.keep(tmp_path / "backup")
    batches(site, 10 - at)
    site.restore(kept, TABLE)
    site.restore(kept, CHECKPOINTS)
    batches(site, 10, events=2)
    assert_ledger_is_true(site)


@pytest.mark.usefixtures("merging_early")
def test_where_a_restore_goes_back_beyond_what_is_divided_the_rest_is_uncounted(site, tmp_path):
    batches(site, 5)
    kept = site.keep(tmp_path / "backup")
    batches(site, 15)
    site.restore(kept, TABLE)
    site.reset()
    batches(site, 1)
    result = balance(site)
    assert not result.breaks()
    assert [reason.partition(":")[0] for reason in result.uncounted] == [
        f"offsets 12 to 15 of clicks/{p} were read by batches that are not in the ledger"
        for p in (0, 1)
    ]


@pytest.mark.usefixtures("merging_early")
def test_batches_that_a_restore_of_delta_has_taken_do_not_count(site):
    """The table still records them."""
    batches(site, 8)
    for _ in range(2):
        table = DeltaTable(site.table.uri)
        table.restore(table.version() - 3)
        site.reset()
        batches(site, 3)
        assert_ledger_is_true(site)


def test_a_restore_that_is_undone_before_anything_was_written_changes_nothing(site):
    batches(site, 6)
    table = DeltaTable(site.table.uri)
    newest = table.version()
    table.restore(2)
    table.restore(newest)
    batches(site, 1)
    assert_ledger_is_true(site)


def test_the_first_reprocessing_does_not_count_before_its_commit(site):
    """The entry is written before, and a kill may come between."""
    batches(site, 1)
    times = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)
    beyond = EntryRange("clicks", "id", 0, 3, 9)
    part = ReprocessedEntry(1, *times, (beyond,), 6, 0, 60, checkpoint=1)
    ReprocessedFolder(site.lake, site.pipeline.name).write(part)
    known = history(site)
    assert (known.reprocessed, known.unrecorded_parts) == ([], [])


def test_a_reset_that_reads_records_again_is_an_overlap(site):
    site.send(10, 0)
    site.run()
    [entry] = counted(site)
    site.ledger.write(replace(entry, checkpoint=2))
    result = HopComparison(
        site.ledger.counted({1: 0, 2: 0}), CompletenessBounds(0), has_steps=False
    )
    [gap] = result.breaks()
    assert (gap.start, gap.end, gap.is_gap) == (0, 10, False)


def test_windows_before_the_ledger_of_a_table_that_has_rows_are_unknown(site):
    site.send(10, 0)
    site.run()
    storage.delete(site.ledger.uri)
    site.send(10, 0)
    site.run()
    site.send(10, 0)
    site.run()
    first, second = counted(site)
    assert (first.unknown_before, second.unknown_before) == (60, 0)


def test_what_goes_from_a_join_into_steps_that_do_not_count_is_unknown(site):
    """Also an event that has waited; what the read tasks hand to the join is none of it."""
    site.send(10, 0)
    site.run()
    planned = replace(site.started().end._checkpoint.batch(0), batch_id=0)
    rows = CountedRows("grouped does not say", come_from=Hop.JOIN)
    rule = LedgerRule(60, "at", "meta.id")
    ledger = Ledger(site.ledger, 2, rule, rows, latest_ahead_us=0)
    read, joined, waited = (
        LedgerLine(LedgerKey(hop, fate, 60, "clicks", 0), Sums(n, n, n))
        for hop, fate, n in [
            (Hop.READ, Fate.OUT, 7),
            (Hop.JOIN, Fate.OUT, 3),
            (Hop.JOIN, Fate.WAITING, 4),
        ]
    )
    nothing = OffsetRange(TopicPartition("clicks", 0), 10, 10)
    waiting = Waiting((), (waited,))
    report = RangeReport(
        nothing, 10, 0, 0, -1, (), ledger=(read, joined, *waiting.lines), waiting=waiting
    )
    ledger.record(RecordedBatch(planned, [report], [], {}, adds_to_rows=True))
    [entry] = [each for each in site.ledger.counted({2: 0}) if each.checkpoint == 2]
    assert added(entry.lines) == {line.key: line.sums for line in (read, joined, waited)} | {
        LedgerKey(Hop.STEPS, Fate.UNKNOWN, 60, "clicks", 0): Sums(3, 3, 3)
    }
    assert (entry.waited, entry.waiting) == ({"clicks": {0: ()}}, {"clicks": {0: (waited,)}})


def test_rows_that_the_commit_rejects_are_dead_in_their_windows(site):
    site.send(10, 0)
    site.run()
    driver = site.started()
    rule = LedgerRule(60, "at", "meta.id")
    ledger = Ledger(site.ledger, 2, rule, CountedRows(), latest_ahead_us=0)
    planned = replace(driver.end._checkpoint.batch(0), batch_id=0)
    ledger.record(RecordedBatch(planned, [], [], {}, adds_to_rows=True))
    rows = [
        '{"at": "1970-01-01T00:02:03.5+00:00", "meta": {"id": "e1"}}',
        '{"at": "1970-01-01T00:02:59", "meta": {"id": "e1"}}',
        '{"at": null}',
        '{"at": "24.11.2026"}',
        '{"at": 123}',
    ]
    rejected = [RejectedValues(row, "not-unique", "") for row in rows]
    ledger.correct(CommitRejection(rejected, []), "clicks")
    [entry] = site.ledger.counted({2: 0})
    [id_hash] = hash_texts(pa.array(["e1"])).tolist()
    assert added(entry.lines) == {
        LedgerKey(Hop.SINK, fate, window, "clicks", -1): sums
        for window, dead in [(120, Sums(2, 0, id_hash * 2 % 2**64)), (None, Sums(3, 0, 0))]
        for fate, sums in [(Fate.DEAD, dead), (Fate.OUT, Sums() - dead)]
    }


def test_rows_that_the_commit_rejects_are_known_by_their_places_where_events_have_no_id(site):
    """Unless a step has changed the columns."""
    site.send(10, 0)
    site.run()
    planned = replace(site.started().end._checkpoint.batch(0), batch_id=0)
    row = '{"_topic": "clicks", "_partition": 1, "_offset": 7}'
    rejection = CommitRejection([RejectedValues(row, "conflicting-key", "")], [])
    hashes = []
    for number, changed in ((2, ()), (3, ("_offset",))):
        ledger = Ledger(
            site.ledger, number, LEDGER_RULE, CountedRows(changed=changed), latest_ahead_us=0
        )
        ledger.record(RecordedBatch(planned, [], [], {}, adds_to_rows=True))
        ledger.correct(rejection, "clicks")
        [entry] = site.ledger.counted({number: 0})
        sums = added(entry.lines)
        hashes.append(sums[LedgerKey(Hop.SINK, Fate.DEAD, None, "clicks", -1)].hash)
    [hash_] = hash_positions("clicks", 1, np.array([7])).tolist()
    assert hashes == [hash_, 0]


def test_partitions_that_no_entry_knows_are_looked_up_in_the_sink(site):
    site.send(3, 3)
    site.run()
    ids, topic_id = CheckpointIds(site.pipeline.name, 1), site.cluster.live("clicks").topic_id
    new = f"{ids.batch}/clicks/{topic_id}/2"

    def versions(names):
        return site.table.versions(names) | {name: 5 for name in names if name == new}

    found = read_history(site.lake, site.pipeline.name, versions, partitions={"clicks": 3})
    assert found.recorded[1][("clicks", topic_id, 2)] == 5


def test_a_checkpoint_has_a_number_that_no_entry_has_although_no_sink_records_it(site):
    """A sink without positions, and a checkpoint that is lost."""
    site.send(3, 3)
    site.run()
    storage.delete(site.checkpoints.uri)
    resets = Resets(site.pipeline, site.checkpoints, None, site.cluster, ledger=site.ledger)
    assert resets.to_start(Start.EARLIEST).number == 2


def test_rows_that_the_commit_drops_as_duplicates_are_deduplicated_in_their_windows(site):
    site.send(10, 0)
    site.run()
    driver = site.started()
    rule = LedgerRule(60, "at", "meta.id")
    ledger = Ledger(site.ledger, 2, rule, CountedRows(), latest_ahead_us=0)
    planned = replace(driver.end._checkpoint.batch(0), batch_id=0)
    ledger.record(RecordedBatch(planned, [], [], {}, adds_to_rows=True))
    duplicates = pa.table(
        {
            "at": pa.array([123_000_000, 60_000_000, 179_999_999], pa.timestamp("us", "UTC")),
            "meta": [{"id": "e1"}, {"id": "e2"}, {"id": "e3"}],
        }
    )
    ledger.correct(CommitRejection([], [], duplicates), "clicks")
    [entry] = site.ledger.counted({2: 0})
    first, second, third = hash_texts(pa.array(["e1", "e2", "e3"])).tolist()
    assert added(entry.lines) == {
        LedgerKey(Hop.SINK, fate, window, "clicks", -1): sums
        for window, repeated in [
            (120, Sums(2, 0, (first + third) % 2**64)),
            (60, Sums(1, 0, second)),
        ]
        for fate, sums in [(Fate.DEDUPLICATED, repeated), (Fate.OUT, Sums() - repeated)]
    }


@pytest.mark.parametrize(
    ("come_from", "sent"),
    [(Hop.READ, (Hop.READ, Fate.LATE)), (Hop.JOIN, (Hop.JOIN, Fate.UNMATCHED))],
)
def test_what_the_side_table_drops_is_kept_when_the_batch_is_repeated(site, come_from, sent):
    """Its commit is not repeated, so that nobody says it again; that of the sink is."""
    site.send(10, 0)
    site.run()
    planned = replace(site.started().end._checkpoint.batch(0), batch_id=0)
    duplicates = pa.table({"at": pa.array([60_000_000], pa.timestamp("us", "UTC"))})
    batch = RecordedBatch(planned, [], [], {}, adds_to_rows=True)

    def attempt(batch):
        rows = CountedRows(come_from=come_from)
        ledger = Ledger(site.ledger, 2, LedgerRule(60, "at", "id"), rows, latest_ahead_us=0)
        ledger.record(batch)
        return ledger

    def lines():
        [entry] = [each for each in site.ledger.counted({2: 0}) if each.checkpoint == 2]
        return added(entry.lines)

    first = attempt(batch)
    first.correct_for_side_table(
        CommitRejection([RejectedValues("{}", "not-unique", "")], []), "clicks"
    )
    first.correct_for_side_table(CommitRejection([], [], duplicates), "clicks")
    (hop, fate) = sent
    corrected = {
        LedgerKey(hop, fate, None, "clicks", -1): Sums(-1),
        LedgerKey(hop, Fate.DEAD, None, "clicks", -1): Sums(1),
        LedgerKey(hop, fate, 60, "clicks", -1): Sums(-1),
        LedgerKey(hop, Fate.DEDUPLICATED, 60, "clicks", -1): Sums(1),
    }
    assert lines() == corrected
    first.correct(CommitRejection([], [], duplicates), "clicks")
    attempt(replace(batch, is_in_side_table=True))
    assert lines() == corrected
    attempt(batch)
    assert lines() == {}


def test_a_snapshot_keeps_what_it_had(site):
    assert lake_snapshot(site.table.uri, {}) is None
    site.send(10, 0)
    site.run()
    snapshot = lake_snapshot(site.table.uri, {})
    site.send(10, 0)
    site.run()
    batch = CheckpointIds(site.pipeline.name, 1).batch
    assert snapshot.versions([batch, "unheard-of"]) == {batch: 0}
    assert sum(rows.num_rows for rows in snapshot.batches(["offset"])) == 8
