"""What every sink must do, as a suite of pytest tests.

A test module subclasses :class:`SinkContract` and gives the fixture ``lab``::

    class TestOpenSearch(SinkContract):
        @pytest.fixture
        def lab(self, opensearch):
            return SinkLab(OpenSearch("clicks"), context_of(opensearch), read=opensearch.rows)

Each test gets a lab of its own: another target, or an empty one. The rows are those of
:mod:`headrace.testing.sink_lab`.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from headrace.errors import SinkError
from headrace.model import Guarantee
from headrace.sinks.api import (
    CommitRejection,
    CommitResult,
    DeclaredRows,
    Recountable,
    RejectedRow,
    Transaction,
)
from headrace.testing.sink_lab import (
    COLUMNS,
    SinkLab,
    batch,
    committed,
    row,
    snapshot_ids,
    snapshot_of,
    table,
    written,
)


class SinkContract:
    """The suite. What a sink without positions can't promise is not asked of it.

    A sink that is a :class:`~headrace.sinks.api.Recountable` is asked for its snapshots, too.
    """

    def test_the_declaration_is_a_value(self, lab: SinkLab) -> None:
        copy = pickle.loads(pickle.dumps(lab.sink))
        assert copy == lab.sink
        assert (copy.kind, copy.target) == (lab.sink.kind, lab.sink.target)

    def test_a_sound_declaration_has_no_faults(self, lab: SinkLab) -> None:
        assert list(lab.sink.faults(DeclaredRows(COLUMNS, "at"))) == []
        assert list(lab.sink.faults(DeclaredRows(None, "at"))) == []

    def test_writers_travel_to_the_tasks(self, lab: SinkLab) -> None:
        driver = lab.open()
        # As Spark sends it to its executors.
        writers = pickle.loads(pickle.dumps(driver.writers))
        writer = writers("a" * 32)
        writer.write(table([row(1)]))
        driver.commit(writer.close(), batch(0), 0)
        assert lab.ids() == [1]

    def test_rows_are_read_back_as_they_were(self, lab: SinkLab) -> None:
        driver = lab.open()
        rows = [row(1), row(2, None), row(3, ""), row(4, "ż\"ó,ł\nć\\ '; --"), row(5, " ")]
        done = committed(driver, written(driver, *rows))
        assert (done.is_new, done.rows) == (True, 5)
        actual = sorted(lab.read(), key=lambda values: values["id"])
        assert [{name: values[name] for name in COLUMNS} for values in actual] == rows

    def test_the_tasks_of_a_batch_become_visible_together(self, lab: SinkLab) -> None:
        driver = lab.open()
        # The pieces of two tasks.
        pieces = [*written(driver, row(1), row(2)), *written(driver, row(3))]
        if lab.sink.guarantee is Guarantee.EXACTLY_ONCE:
            assert lab.ids() == []
        driver.commit(pieces, batch(0), 0)
        assert lab.ids() == [1, 2, 3]

    def test_many_writes_of_a_task_are_one(self, lab: SinkLab) -> None:
        driver = lab.open()
        writer = driver.writers("b" * 32)
        for start in range(0, 3_000, 1_000):
            writer.write(table([row(start + number) for number in range(1_000)]))
        driver.commit(writer.close(), batch(0), 0)
        assert lab.ids() == list(range(3_000))

    def test_a_task_without_rows_has_no_pieces(self, lab: SinkLab) -> None:
        writer = lab.open().writers("c" * 32)
        assert list(writer.close()) == []

    def test_an_attempt_that_is_aborted_or_dies_leaves_nothing(self, lab: SinkLab) -> None:
        driver = lab.open()
        aborted, dead = driver.writers("d" * 32), driver.writers("e" * 32)
        aborted.write(table([row(1)]))
        aborted.abort()
        # Neither closed nor aborted, as when its process is killed.
        dead.write(table([row(1)]))
        driver.commit(written(driver, row(1)), batch(0), 0)
        if lab.sink.guarantee is Guarantee.EXACTLY_ONCE:
            assert lab.ids() == [1]
        assert set(lab.ids()) == {1}

    def test_what_is_discarded_is_gone(self, lab: SinkLab) -> None:
        driver = lab.open()
        driver.commit(written(driver, row(1)), batch(0), 0)
        stored = lab.stored() if lab.stored else 0
        driver.discard(written(driver, row(2)))
        if lab.sink.guarantee is Guarantee.EXACTLY_ONCE:
            assert lab.ids() == [1]
        assert (lab.stored() if lab.stored else 0) == stored

    def test_a_start_clears_away_what_a_killed_one_left(self, lab: SinkLab) -> None:
        lab.open().commit([], batch(0), 0)
        stored = lab.stored() if lab.stored else 0
        # Staged and not committed, as by a driver that is killed.
        written(lab.open(), row(1))
        driver = lab.open()
        driver.commit(written(driver, row(2)), batch(1), 0)
        if lab.sink.guarantee is Guarantee.EXACTLY_ONCE:
            assert lab.ids() == [2]
        if not lab.leftovers_stay:
            assert (lab.stored() if lab.stored else 0) == stored

    def test_a_row_that_can_not_be_taken_is_named_and_the_others_go_in(self, lab: SinkLab) -> None:
        driver = lab.open()
        writer = driver.writers("f" * 32)
        rejected: Sequence[RejectedRow] = ()
        if lab.bad_row is not None:
            rejected = writer.write(table([row(1), lab.bad_row, row(2)]))
            assert [rejection.index for rejection in rejected] == [1]
            assert all(rejection.reason and rejection.detail for rejection in rejected)
        else:
            writer.write(table([row(1), row(2)]))
        done = committed(driver, writer.close())
        assert (lab.ids(), done.rows) == ([1, 2], 2)

    def test_a_batch_that_is_repeated_adds_nothing(self, lab: SinkLab) -> None:
        driver = lab.open()
        driver.commit(written(driver, row(1)), batch(0), 0)
        # As after a crash between the commit of the sink and the end of the batch.
        reopened = lab.open()
        done = committed(reopened, written(reopened, row(1)))
        if lab.sink.guarantee is not Guarantee.AT_LEAST_ONCE:
            assert (done.is_new, lab.ids()) == (False, [1])
        assert set(lab.ids()) == {1}

    def test_positions_are_recorded_with_the_rows(self, lab: SinkLab) -> None:
        driver = lab.open()
        for number in range(3):
            driver.commit(written(driver, row(number)), batch(number), 0)
        driver.commit([], batch(3), 0)
        store = lab.sink.position_store(lab.context)
        assert (store is None) == (lab.open().positions is None)
        if lab.sink.guarantee is not Guarantee.AT_LEAST_ONCE:
            assert store is not None
        if store is not None:
            assert dict(store.versions(["app", "other"])) == {"app": 3}
            assert store.restored({"pipeline": "p"}) is None
        assert lab.ids() == [0, 1, 2]

    def test_of_two_drivers_one_commits(self, lab: SinkLab) -> None:
        first, second = lab.open(), lab.open()
        first.commit(written(first, row(1)), batch(0), 0)
        first.commit(written(first, row(2)), batch(1), 0)
        # The second driver knows of no commit of the first, as one on another machine does not.
        pieces = written(second, row(9))
        if second.positions is None:
            return
        try:
            second.commit(pieces, Transaction({"app": 7}, {"app": 0}), 0)
        except SinkError:
            assert set(lab.ids()) - {9} == {1, 2}
            if lab.sink.guarantee is Guarantee.EXACTLY_ONCE:
                assert lab.ids() == [1, 2]
        else:
            raise AssertionError("a driver that is behind has committed")

    def test_many_positions_are_recorded_and_one_may_fall(self, lab: SinkLab) -> None:
        driver = lab.open()
        if driver.positions is None:
            return
        many = {f"app/{number}": 2**40 + number for number in range(200)}
        driver.commit(written(driver, row(1)), Transaction(many, {"app/0": None}), 0)
        driver.commit([], Transaction({"app/7": 3}, {"app/7": many["app/7"]}), 0)
        assert dict(driver.positions.versions(many)) == many | {"app/7": 3}

    def test_figures_are_there_from_the_start_to_the_end(self, lab: SinkLab) -> None:
        driver = lab.open()
        before = dict(driver.figures())
        driver.commit(written(driver, row(1)), batch(0), 0)
        assert driver.figures().keys() == before.keys()

    def test_a_snapshot_of_an_empty_target_has_no_rows(self, lab: SinkLab) -> None:
        with snapshot_of(lab) as snapshot:
            if snapshot is not None:
                assert snapshot_ids(snapshot) == []
                assert dict(snapshot.versions(["app"])) == {}

    def test_a_snapshot_has_no_rows_that_are_not_committed(self, lab: SinkLab) -> None:
        written(lab.open(), row(1))
        with snapshot_of(lab) as snapshot:
            if snapshot is not None:
                assert snapshot_ids(snapshot) == []
                assert dict(snapshot.versions(["app"])) == {}

    def test_a_snapshot_is_of_one_moment(self, lab: SinkLab) -> None:
        driver = lab.open()
        driver.commit(written(driver, row(1), row(2)), batch(0), 0)
        with snapshot_of(lab) as snapshot:
            # While the snapshot is open, so it must not show this row.
            driver.commit(written(driver, row(3)), batch(1), 0)
            if snapshot is not None:
                assert dict(snapshot.versions(["app", "other"])) == {"app": 0}
                assert snapshot_ids(snapshot) == [1, 2]
        with snapshot_of(lab) as snapshot:
            if snapshot is not None:
                assert dict(snapshot.versions(["app"])) == {"app": 1}
                assert snapshot_ids(snapshot) == [1, 2, 3]

    def test_a_snapshot_tells_rows_by_id_and_event_time(self, lab: SinkLab) -> None:
        driver = lab.open()
        rows = [row(1), row(2, None), row(3, "")]
        driver.commit(written(driver, *rows), batch(0), 0)
        with snapshot_of(lab) as snapshot:
            if snapshot is not None:
                assert {"at", "id"} <= set(snapshot.column_names)
                parts = snapshot.batches(["at", "id"])
                shown = [values for part in parts for values in part.to_pylist()]
                assert all(list(values) == ["at", "id"] for values in shown)
                expected = [{"at": values["at"], "id": values["id"]} for values in rows]
                assert sorted(shown, key=lambda values: values["id"]) == expected

    def test_a_snapshot_has_each_row_that_commits_took(self, lab: SinkLab) -> None:
        if not isinstance(lab.sink, Recountable):
            return
        assert lab.sink.position_store(lab.context) is not None
        driver, taken = lab.open(), 0
        for number in range(2):
            done = driver.commit(written(driver, row(1), row(1)), batch(number), 0)
            if isinstance(done, CommitRejection):
                done = driver.commit(done.pieces, batch(number), 0)
            assert isinstance(done, CommitResult)
            taken += done.rows
        with snapshot_of(lab) as snapshot:
            ids = None if snapshot is None else snapshot_ids(snapshot)
        if ids is not None:
            assert ids == lab.ids()
        if lab.sink.keeps_each_row:
            assert ids is not None
            assert len(ids) == taken
