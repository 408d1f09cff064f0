"""Checkpoint and table out of step, in each direction, at each point where a crash leaves them."""

import itertools
import shutil
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.pipelines.spark_like import (
    CHECKPOINTS,
    CRASHES,
    ROWS,
    TABLE,
    Crashed,
    Frame,
    Site,
    bad,
    once,
    without_kafka,
)

from headrace.errors import (
    CheckpointBehindTableError,
    CheckpointLostError,
    ClaimLostError,
    NothingCommittedError,
    RetentionPassedError,
    SinkError,
    TableBehindCheckpointError,
)
from headrace.model import TopicPartition
from headrace.pipelines.ledger.reprocessed import ReprocessedFolder
from headrace.pipelines.reprocessing.part import ReprocessedPart
from headrace.pipelines.reprocessing.plan import ReprocessPlan
from headrace.pipelines.reprocessing.ranges import TimeRange
from headrace.pipelines.source.planning.initial import read_initial
from headrace.pipelines.start.checkpoint import CurrentCheckpoint
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.table import LakeTable
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.layout import TableLayout


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A driver whose dead letters and committed offsets go to lists, and that can be killed."""
    return new_site(tmp_path, monkeypatch)


def new_site(folder, monkeypatch):
    without_kafka(monkeypatch)
    site = Site(folder, str(folder / "lake"))
    site.cluster.create("clicks", 2)
    site.send(10, 5)
    site.run()
    return site


@pytest.mark.parametrize("crash", CRASHES)
def test_a_batch_that_was_cut_short_is_repeated_without_a_trace(site, crash):
    site.send(10, 30)
    with pytest.raises(Crashed):
        site.run(crash=crash)
    # Never ahead of the table: the last crash alone is behind the commit for the group.
    assert committed(site) == ((20, 35) if crash == "group shown" else (10, 5))
    site.run()
    assert (site.rows(), site.letter_counts()) == (once(20, 35), bad(20, 35))
    assert committed(site) == (20, 35)


def committed(site):
    """The offsets of both partitions that are committed for the group."""
    return tuple(site.committed[TopicPartition("clicks", partition)] for partition in (0, 1))


def test_what_a_task_wrote_whose_executor_died_is_in_no_batch(site, monkeypatch):
    """Spark runs the task again elsewhere, and hands over what that attempt has written."""
    task = Frame.task

    def task_twice(frame, range_):
        task(frame, range_)
        return task(frame, range_)

    monkeypatch.setattr(Frame, "task", task_twice)
    site.send(10, 30)
    site.run()
    assert (site.rows(), site.letter_counts()) == (once(20, 35), bad(20, 35))


STATES = ("before", *CRASHES, "after")


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Each state of the lake, by its name, and the site that has been through all of them."""
    folder, kept = tmp_path_factory.mktemp("history"), {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        site = new_site(folder / "site", monkeypatch)

        def keep(state):
            kept[state] = site.keep(folder / f"kept {state}")

        keep("before")
        for crash in CRASHES:
            site.send(3, 2)
            with pytest.raises(Crashed):
                site.run(crash=crash)
            keep(crash)
        site.send(1, 1)
        site.run()
        keep("after")
    return kept, site


@pytest.mark.parametrize(("checkpoint", "table"), list(itertools.product(STATES, STATES)))
def test_any_checkpoint_with_any_table_goes_on_exactly_or_is_refused(
    history, tmp_path, monkeypatch, checkpoint, table
):
    without_kafka(monkeypatch)
    kept, former = history
    folder = shutil.copytree(former.folder, tmp_path / "site")
    site = replace(deepcopy(former), folder=folder, lake=str(folder / "lake"))
    site.restore(kept[checkpoint], CHECKPOINTS)
    site.restore(kept[table], TABLE)
    site.send(4, 4)
    if refused(site):
        assert checkpoint != table
        site.reset()
        site.run()
    assert (site.rows(), site.letter_counts()) == (once(30, 20), bad(30, 20))


def refused(site):
    try:
        site.run()
    except (CheckpointBehindTableError, TableBehindCheckpointError):
        return True
    return False


def test_a_checkpoint_from_a_backup_is_behind_its_table(site, tmp_path):
    kept = site.keep(tmp_path / "kept")
    site.send(10, 0)
    site.run()
    site.restore(kept, CHECKPOINTS)
    site.send(0, 7)
    with pytest.raises(CheckpointBehindTableError) as caught:
        site.run()
    error = caught.value
    facts = (error.partition, error.checkpoint_offset, error.table_offset)
    assert facts == ("clicks[0]", 10, 20)
    assert "headrace checkpoint reset clicks-to-lake --to table" in str(error)
    site.reset()
    site.run()
    assert site.rows() == once(20, 12)


def test_a_table_from_a_backup_is_behind_its_checkpoint_also_when_nothing_is_new(site, tmp_path):
    kept = site.keep(tmp_path / "kept")
    site.send(10, 0)
    site.run()
    site.restore(kept, TABLE)
    with pytest.raises(TableBehindCheckpointError, match="--to table") as caught:
        site.run()
    assert (caught.value.checkpoint_offset, caught.value.table_offset) == (20, 10)
    site.reset()
    site.run()
    assert site.rows() == once(20, 5)


def test_a_table_that_is_gone_is_refused_and_has_no_place_to_go_on_from(site, tmp_path):
    site.restore(tmp_path / "nothing", TABLE)
    with pytest.raises(TableBehindCheckpointError, match=r"--to earliest.*--to committed"):
        site.run()
    with pytest.raises(NothingCommittedError, match="records no offsets"):
        site.reset()


def test_a_restored_version_of_the_table_is_refused_and_filled_again(site):
    version = DeltaTable(site.table.uri).version()
    for _ in range(2):
        site.send(10, 3)
        site.run()
    DeltaTable(site.table.uri).restore(version)
    assert site.rows() == once(10, 5)
    with pytest.raises(TableBehindCheckpointError, match="RESTORE"):
        site.run()
    site.reset()
    site.send(1, 1)
    site.run()
    assert site.rows() == once(31, 12)
    site.send(1, 1)
    site.run()
    assert site.rows() == once(32, 13)


@pytest.mark.parametrize("way", ["backup", "RESTORE"])
def test_a_table_as_it_was_before_a_reset_is_filled_again_from_there(site, tmp_path, way):
    kept, version = site.keep(tmp_path / "kept"), DeltaTable(site.table.uri).version()
    site.reset()
    site.send(10, 3)
    site.run()
    if way == "backup":
        site.restore(kept, TABLE)
    else:
        DeltaTable(site.table.uri).restore(version)
    with pytest.raises(TableBehindCheckpointError, match="--to table"):
        site.run()
    site.reset()
    site.run()
    assert site.rows() == once(20, 8)


RANGES = [
    TimeRange(datetime(2026, 11, d, tzinfo=UTC), datetime(2026, 11, 30, tzinfo=UTC)) for d in (1, 8)
]


@pytest.mark.parametrize(("batches", "recorded"), [(0, 2), (1, 2), (0, 1)])
def test_a_restore_that_took_what_was_reprocessed_names_what_brings_it_back(
    site, batches, recorded
):
    version = DeltaTable(site.table.uri).version()
    topic_id = site.cluster.live("clicks").topic_id
    for number, times in enumerate(RANGES, 1):
        plan = ReprocessPlan("clicks-to-lake", times, topic_id, 1, (), 1)
        part = ReprocessedPart(number, [])
        if number <= recorded:
            entry = part.entry(plan, site.pipeline.sources[0].topic, 60, None)
            ReprocessedFolder(site.lake, plan.pipeline).write(entry)
        site.sink().commit((), part.transaction(plan), 0)
    site.send(batches, batches)
    site.run()
    DeltaTable(site.table.uri).restore(version)
    with pytest.raises(TableBehindCheckpointError) as caught:
        site.run()
    assert caught.value.reason.endswith(
        "rows of its batches from it" if batches else "rows that were reprocessed from it"
    )
    times = ("2026-11-01T00:00:00+00:00", "2026-11-08T00:00:00+00:00")
    remedies = [
        f"`headrace reprocess clicks-to-lake --from {start} --to 2026-11-30T00:00:00+00:00`"
        for start in times
    ]
    unknown = ["`headrace reprocess clicks-to-lake --from ... --to ...`"]
    expected = remedies if recorded == len(RANGES) else unknown
    assert str(caught.value).endswith(
        "`headrace checkpoint reset clicks-to-lake --to table` (state of stateful steps starts "
        f"over). What was reprocessed since, reprocess again after that: {', '.join(expected)}."
    )


def test_a_restored_version_that_has_all_batches_is_no_loss(site):
    version = DeltaTable(site.table.uri).version()
    table = LakeTable(WriteSpec(site.table.uri, ROWS, TableLayout()))
    table.commit([], Transaction({"other": 1}, {"other": None}))
    DeltaTable(site.table.uri).restore(version)
    site.send(1, 1)
    site.run()
    assert site.rows() == once(11, 6)


def test_all_that_is_lost_but_the_table_is_a_lost_checkpoint(site, tmp_path):
    site.restore(tmp_path / "nothing", CHECKPOINTS)
    with pytest.raises(CheckpointLostError, match=r"checkpoint 1.*--to table"):
        site.run()
    site.send(0, 9)
    assert site.reset().number == 2
    site.run()
    assert site.rows() == once(10, 14)


def test_a_lost_current_json_is_a_lost_checkpoint(site, tmp_path):
    Path(site.lake, CHECKPOINTS, "clicks-to-lake", "current.json").unlink()
    site.restore(tmp_path / "nothing", TABLE)
    with pytest.raises(CheckpointLostError, match="checkpoint 1 exists"):
        site.run()


def test_an_older_current_json_is_refused(site):
    site.reset()
    site.send(1, 0)
    site.run()
    site.checkpoints.write(CurrentCheckpoint(1, "", begun=True))
    site.send(1, 0)
    with pytest.raises(CheckpointBehindTableError, match=r"rows of checkpoint 2.*says 1"):
        site.run()


def test_a_reset_whose_first_position_is_gone_is_a_lost_checkpoint(site):
    site.reset()
    initial = "clicks-to-lake/2/headrace/initial-clicks.json"
    Path(site.lake, CHECKPOINTS, initial).unlink()
    with pytest.raises(CheckpointLostError, match="its position of clicks is missing"):
        site.run()


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_in_the_first_batch_after_a_reset_is_repeated_too(site, crash):
    site.reset()
    site.send(3, 3)
    with pytest.raises(Crashed):
        site.run(crash=crash)
    site.run()
    assert (site.rows(), site.letter_counts()) == (once(13, 8), bad(13, 8))


def test_a_reset_to_the_table_needs_the_old_checkpoint_for_nothing(site, tmp_path):
    """Also a partition that has never moved is in the table's positions."""
    quiet = Site(tmp_path / "quiet", str(tmp_path / "quiet"), site.cluster)
    site.cluster.create("clicks", 2)
    quiet.send(5, 0)
    quiet.run()
    quiet.restore(tmp_path / "nothing", CHECKPOINTS)
    quiet.send(0, 5)
    quiet.reset()
    quiet.run()
    assert quiet.rows() == once(5, 5)


def test_records_that_retention_took_are_left_out_only_on_request(site):
    site.send(10, 10)
    site.cluster.delete_before("clicks", 0, 15)
    with pytest.raises(RetentionPassedError, match="5 offsets are gone"):
        site.reset()
    assert site.checkpoints.current().number == 1
    site.reset(accept_loss=True)
    site.run()
    expected = once(20, 15)
    assert site.rows() == Counter(one for one in expected if one[0] or not 10 <= one[1] < 15)


def test_a_partition_that_was_added_and_cut_meanwhile_begins_at_its_earliest_on_request(site):
    site.cluster.add_partitions("clicks", 3)
    site.send(1, 1, 20)
    site.cluster.delete_before("clicks", 2, 10)
    with pytest.raises(RetentionPassedError, match="10 offsets are gone"):
        site.reset()
    checkpoint = site.checkpoints.checkpoint(site.reset(accept_loss=True))
    assert read_initial(checkpoint.uri, "clicks").partitions == {0: 10, 1: 5, 2: 10}
    site.run()
    site.send(0, 0, 3)
    site.run()
    expected = once(11, 6, 23)
    assert site.rows() == Counter(one for one in expected if one[0] != 2 or one[1] >= 10)


def test_a_reset_to_the_table_takes_partitions_in_that_were_added(site):
    site.cluster.add_partitions("clicks", 3)
    checkpoint = site.checkpoints.checkpoint(site.reset())
    assert read_initial(checkpoint.uri, "clicks").partitions == {0: 10, 1: 5, 2: 0}
    site.send(0, 0, 3)
    site.run()
    assert site.rows() == once(10, 5, 3)


def test_a_topic_that_was_made_again_has_no_place_in_the_table(site):
    site.cluster.create("clicks", 2)
    with pytest.raises(NothingCommittedError, match="records no offsets of clicks, id"):
        site.reset()


@pytest.mark.parametrize("place", ["planned", "files written", "letters written"])
def test_of_two_drivers_on_two_machines_with_one_batch_one_adds_it(site, tmp_path, place):
    """The second one has a project folder of its own, so that no lock is in its way."""
    other = site.other(tmp_path / "other")
    site.send(10, 10)
    first, second = site.started(), other.started()
    site.beside[place] = lambda: (second.batch(), site.send(5, 5), second.batch())
    with suppress(SinkError, FileExistsError):
        while first.batch():
            pass
    site.run()
    assert site.rows() == once(25, 20)
    assert set(site.letter_counts()) == set(bad(25, 20))


@pytest.mark.parametrize("look", [1, 2])
def test_a_driver_that_has_lost_its_claim_commits_nothing(site, look):
    """It looks before dead letters, and once more before the commit."""
    rows, letters = site.rows(), site.letter_counts()
    site.send(10, 10)
    looks = iter(range(1, look + 1))

    def check():
        if next(looks) == look:
            raise ClaimLostError("clicks")

    site.check_claim = check
    with pytest.raises(ClaimLostError):
        site.started().batch()
    assert site.rows() == rows
    assert (site.letter_counts() == letters) == (look == 1)
    site.check_claim = bool
    site.run()
    assert (site.rows(), site.letter_counts()) == (once(20, 15), bad(20, 15))


def test_what_a_second_driver_finds_done_it_does_not_do_again(site, tmp_path):
    other = site.other(tmp_path / "other")
    site.send(10, 10)
    with pytest.raises(Crashed):
        site.run(crash="committed")
    other.run(crash="files written")
    assert (site.rows(), site.letter_counts()) == (once(20, 15), bad(20, 15))


def test_offsets_are_in_the_history_for_people(site):
    site.send(0, 4)
    site.run()
    entry = DeltaTable(site.table.uri).history(1)[0]["headrace"]
    assert entry == {
        "pipeline": "clicks-to-lake",
        "checkpoint": 1,
        "batch": 1,
        "offsets": {"clicks[1]": [5, 9]},
    }


def test_a_batch_without_rows_moves_the_table_too(site):
    site.send(1, 0)
    site.run()
    site.cluster.skip("clicks", 1)
    site.run()
    assert TopicPartition("clicks", 1) in site.committed
