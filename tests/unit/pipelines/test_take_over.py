"""A pipeline without state on a machine that lacks its checkpoint: it goes on from the table."""

import itertools
from dataclasses import replace

import pytest
from deltalake import DeltaTable
from tests.unit.pipelines.spark_like import (
    CHECKPOINTS,
    CRASHES,
    PIPELINE,
    TABLE,
    Crashed,
    Site,
    bad,
    once,
    without_kafka,
)

from headrace.errors import (
    CheckpointBehindTableError,
    CheckpointLostError,
    NothingCommittedError,
    RetentionPassedError,
    SinkError,
    TableBehindCheckpointError,
)
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.source.offsets import NOTHING_READ
from headrace.pipelines.source.planning.initial import read_initial
from headrace.sinks.api import Transaction
from headrace.storage import files as storage


@pytest.fixture
def site(tmp_path, monkeypatch):
    without_kafka(monkeypatch)
    site = Site(tmp_path / "first", str(tmp_path / "lake"))
    site.cluster.create("clicks", 2)
    site.send(10, 5)
    site.run()
    return site


def go_on(site, **options):
    site.run(start=site.started_without_state, **options)


@pytest.mark.parametrize("crash", CRASHES)
def test_a_fresh_machine_goes_on_exactly_where_the_table_stands(site, tmp_path, crash):
    for number in range(3):
        site.send(5, 10)
        with pytest.raises(Crashed):
            go_on(site, crash=crash)
        site = site.fresh(tmp_path / f"machine {number}")
    go_on(site)
    assert (site.rows(), site.letter_counts()) == (once(25, 35), bad(25, 35))


STATES = ("before", *CRASHES, "after")


@pytest.mark.parametrize(
    ("checkpoint", "table"), list(itertools.combinations_with_replacement(STATES, 2))
)
def test_any_checkpoint_that_is_not_ahead_of_the_table_goes_on_exactly(
    site, tmp_path, checkpoint, table
):
    kept = {"before": site.keep(tmp_path / "before")}
    for number, crash in enumerate(CRASHES):
        site.send(3, 2)
        with pytest.raises(Crashed):
            site.run(crash=crash)
        kept[crash] = site.keep(tmp_path / f"kept {number}")
    site.send(1, 1)
    site.run()
    kept["after"] = site.keep(tmp_path / "after")
    site.restore(kept[checkpoint], CHECKPOINTS)
    site.restore(kept[table], TABLE)
    site.send(4, 4)
    go_on(site)
    assert (site.rows(), site.letter_counts()) == (once(30, 20), bad(30, 20))


@pytest.mark.parametrize("place", ["planned", "files written", "letters written"])
def test_the_driver_that_was_there_before_loses_at_its_commit(site, tmp_path, place):
    newcomer = site.fresh(tmp_path / "newcomer")
    site.send(10, 10)
    before = site.started()
    site.beside[place] = newcomer.started_without_state
    with pytest.raises(SinkError, match="another driver"):
        before.batch()
    with pytest.raises(CheckpointBehindTableError, match="it has rows of checkpoint 2"):
        site.run()
    newcomer.run()
    assert (site.rows(), set(site.letter_counts())) == (once(20, 15), set(bad(20, 15)))


def test_a_commit_while_the_positions_are_read_makes_the_newcomer_begin_again(
    site, tmp_path, monkeypatch
):
    newcomer = site.fresh(tmp_path / "newcomer")
    site.send(10, 10)
    before = site.started()
    live = site.cluster.live
    meanwhile = [before.batch]

    def live_after_a_batch(topic):
        while meanwhile:
            meanwhile.pop()()
        return live(topic)

    sink = newcomer.sink()
    number = newcomer.checks.number_to_take_over()
    with monkeypatch.context() as patch:
        patch.setattr(site.cluster, "live", live_after_a_batch)
        with pytest.raises(SinkError, match="another driver"):
            newcomer.checks.resets.take_over(number, sink)
    go_on(newcomer)
    site.send(1, 1)
    go_on(newcomer)
    assert site.rows() == once(21, 16)


def test_a_machine_that_is_lost_while_it_takes_over_leaves_the_positions(site, tmp_path):
    second, third = site.fresh(tmp_path / "second"), site.fresh(tmp_path / "third")
    site.send(10, 10)
    with pytest.raises(Crashed):
        go_on(second, crash="committed")
    storage.delete(second.root)
    go_on(third)
    assert site.rows() == once(20, 15)
    assert third.checkpoints.current().number == 3


def test_two_machines_that_take_over_from_one_another_lose_and_repeat_nothing(site, tmp_path):
    sites = [site.fresh(tmp_path / str(number)) for number in range(2)]
    for number in range(6):
        site.send(3, 4)
        go_on(sites[number % 2])
    assert (site.rows(), site.letter_counts()) == (once(28, 29), bad(28, 29))


def test_a_topic_that_was_made_again_is_refused(site, tmp_path):
    site.cluster.create("clicks", 2)
    with pytest.raises(NothingCommittedError, match="records no offsets of clicks, id"):
        go_on(site.fresh(tmp_path / "fresh"))


def test_records_that_retention_took_unread_are_refused(site, tmp_path):
    site.send(10, 0)
    site.cluster.delete_before("clicks", 0, 15)
    with pytest.raises(RetentionPassedError):
        go_on(site.fresh(tmp_path / "fresh"))


def test_when_all_had_been_read_is_kept_unless_its_loss_is_accepted(site, tmp_path):
    """By that time a start knows whether tombstones may be gone."""
    caught_up = CheckpointIds(PIPELINE.name, 1).caught_up
    site.sink().commit((), Transaction({caught_up: 7}, {}), 0)

    def begins(current):
        return read_initial(site.checkpoints.checkpoint(current).uri, "clicks").caught_up_ms

    assert begins(site.reset()) == 7
    assert begins(site.reset(accept_loss=True)) == NOTHING_READ
    fresh = site.fresh(tmp_path / "fresh")
    go_on(fresh)
    newest = CheckpointIds(PIPELINE.name, fresh.checkpoints.current().number)
    assert site.table.versions([newest.caught_up]) == {newest.caught_up: 7}


def test_a_partition_that_was_added_meanwhile_is_read_from_its_begin(site, tmp_path):
    site.cluster.add_partitions("clicks", 3)
    site.send(0, 0, 9)
    fresh = site.fresh(tmp_path / "fresh")
    go_on(fresh)
    assert fresh.checkpoints.current().start == "table"
    assert fresh.checks.checkpoint().number == 2


def test_a_restored_table_is_refused(site, tmp_path):
    version = DeltaTable(site.table.uri).version()
    site.send(10, 3)
    site.run()
    DeltaTable(site.table.uri).restore(version)
    with pytest.raises(TableBehindCheckpointError, match="RESTORE"):
        go_on(site.fresh(tmp_path / "fresh"))


def test_a_reset_by_an_operator_is_not_taken_over(site):
    site.reset()
    assert site.checks.number_to_take_over() is None


def test_a_driver_that_commits_after_a_reset_makes_the_next_start_refuse(site, tmp_path):
    before = site.started()
    resetter = site.fresh(tmp_path / "resetter")
    resetter.reset()
    site.send(10, 10)
    before.batch()
    with pytest.raises(CheckpointBehindTableError, match="since the reset") as caught:
        resetter.run()
    assert "headrace checkpoint reset clicks-to-lake --to table" in str(caught.value)
    resetter.reset()
    resetter.run()
    assert site.rows() == once(20, 15)


@pytest.mark.parametrize("place", ["planned", "files written", "letters written"])
def test_a_driver_that_commits_before_the_first_batch_of_a_reset_wins(site, tmp_path, place):
    before = site.started()
    resetter = site.fresh(tmp_path / "resetter")
    resetter.reset()
    site.send(10, 10)
    resetter.beside[place] = before.batch
    with pytest.raises(SinkError, match="another driver"):
        resetter.run()
    with pytest.raises(CheckpointBehindTableError, match="since the reset"):
        resetter.run()
    resetter.reset()
    resetter.run()
    assert site.rows() == once(20, 15)


def test_the_first_batch_after_a_reset_fences_a_driver_that_still_runs(site, tmp_path):
    before = site.started()
    resetter = site.fresh(tmp_path / "resetter")
    resetter.reset()
    site.send(10, 10)
    resetter.run()
    with pytest.raises(SinkError, match="another driver"):
        before.batch()
    resetter.run()
    assert site.rows() == once(20, 15)


def test_without_positions_in_the_table_a_lost_checkpoint_is_refused(site, tmp_path):
    site.restore(tmp_path / "nothing", TABLE)
    site.cluster.commit(PIPELINE.consumer_group, "clicks", {0: 10})
    with pytest.raises(CheckpointLostError, match="consumer group"):
        go_on(site.fresh(tmp_path / "fresh"))


def test_where_a_pipeline_began_is_recorded_before_it_has_read_anything(site, tmp_path):
    """A machine that is lost before the first record must not start over, such as at the latest."""
    ids = CheckpointIds(PIPELINE.name, 1)
    fresh = site.fresh(tmp_path / "fresh")
    fresh.lake = str(tmp_path / "other lake")
    fresh.cluster.create("clicks", 1)
    driver = fresh.started()
    driver.batch_of_nothing()
    names = ids.partitions({"clicks": driver.offset(-1)})
    assert set(fresh.table.versions(names.values()).values()) == {0}


def test_a_sink_without_positions_has_no_place_to_go_on_from(site, tmp_path):
    site.cluster.commit(PIPELINE.consumer_group, "clicks", {0: 10})
    checks = replace(site.checks, root=str(tmp_path / "fresh"), positions=None)
    assert checks.number_to_take_over() is None
    with pytest.raises(CheckpointLostError, match="consumer group"):
        checks.checkpoint()


def test_under_another_name_a_pipeline_begins_anew(site):
    renamed = replace(PIPELINE, name="clicks-again")
    checks = replace(site.checks, pipeline=renamed)
    current = checks.checkpoint()
    assert (current.number, current.begun, current.start) == (1, False, "")
