"""Iceberg tables in the REST catalog of a real SeaweedFS, and by pipelines through Spark."""

import uuid
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.integration.flow import NOW_MS, Flow, click
from tests.integration.http_proxy import FaultyProxy
from tests.integration.test_ledger import at, balance, run, send_hours, states

from headrace import Iceberg, Lake, Unique
from headrace.errors import SinkUnavailableError
from headrace.ledger.balance import Balance
from headrace.ledger.sums import Hop
from headrace.ledger.windows import WindowState
from headrace.service.status import State
from headrace.settings import Secret
from headrace.sinks.api import SinkContext, Transaction
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import batch, row, schema, written


@pytest.fixture
def namespace():
    return f"n{uuid.uuid4().hex[:8]}"


@pytest.fixture
def context(seaweed):
    return SinkContext(
        "p", "s3://unused", {}, seaweed.sinks, event_time="at", storage=seaweed.settings.options
    )


@pytest.fixture
def lab(namespace, context):
    sink = Lake("clicks", partition_by=["hour"], format=Iceberg(namespace))
    lab = SinkLab(sink, context, read=lambda: sink.read(context).to_pylist(), leftovers_stay=True)
    lab.open()
    yield lab
    lab.close()


class TestRest(SinkContract):
    @pytest.fixture
    def lab(self, lab):
        return lab


class TestLostAnswers:
    @pytest.fixture
    def proxy(self, seaweed):
        proxy = FaultyProxy(seaweed.catalog, lambda *_: False)
        yield proxy
        proxy.close()

    @pytest.fixture
    def behind(self, lab, proxy):
        settings = {**lab.context.settings, "uri": Secret(proxy.endpoint)}
        behind = SinkLab(lab.sink, replace(lab.context, settings=settings), read=lab.read)
        yield behind
        behind.close()

    def test_a_commit_whose_answer_is_lost_is_in_the_table_once(self, behind, proxy):
        driver = behind.open()
        losses = iter([True] * 2)
        proxy.lose_answer = lambda method, path: method == "POST" and next(losses, False)
        for number in range(3):
            assert driver.commit(written(driver, row(number)), batch(number), 0).is_new
        assert len(proxy.lost) == 2
        assert behind.ids() == [0, 1, 2]

    def test_a_batch_is_repeated_where_the_catalog_is_away_after_its_commit(self, behind, proxy):
        driver = behind.open()
        is_away = []

        def lose(method, _):
            is_away.extend([True] * (method == "POST"))
            return bool(is_away)

        proxy.lose_answer = lose
        pieces = written(driver, row(1))
        with pytest.raises(SinkUnavailableError):
            driver.commit(pieces, batch(0), 0)
        driver.discard(pieces)
        proxy.lose_answer = lambda *_: False
        again = behind.open()
        assert not again.commit(written(again, row(1)), batch(0), 0).is_new
        assert behind.ids() == [1]

    def test_a_lost_answer_is_told_from_another_driver_that_was_faster(self, behind, lab, proxy):
        driver, other = behind.open(), lab.open()
        pieces, faster = written(driver, row(1)), written(other, row(1))

        def commit_first(method, _):
            if method == "POST":
                proxy.lose_answer = lambda *_: False
                other.commit(faster, batch(0), 0)
            return False

        proxy.lose_answer = commit_first
        assert not driver.commit(pieces, batch(0), 0).is_new
        assert behind.ids() == [1]

    def test_rows_that_are_written_once_more_are_there_once(self, behind, proxy):
        """Of ids: the answers to two commits of a reprocessing are lost."""
        driver = behind.open()
        driver.commit(written(driver, row(1), row(2)), batch(0), 0)
        again = behind.sink.open_to_reprocess(behind.context, schema(), "id")
        losses = iter([True] * 2)
        proxy.lose_answer = lambda method, path: method == "POST" and next(losses, False)
        for number, name in enumerate(("y", "z"), 1):
            again.begin([], lambda _: None)
            pieces = written(again, row(1), row(2, name=name), row(3))
            part = Transaction({"part": number}, {"part": number - 1 or None})
            again.commit(pieces, part, 0)
            again.discard(pieces)
        assert len(proxy.lost) == 2
        names = {values["id"]: values["name"] for values in behind.read()}
        assert behind.ids() == [1, 2, 3]
        assert names[2] == "z"

    def test_a_merge_whose_answer_is_lost_keeps_each_row_once(self, behind, proxy):
        driver = behind.open()
        for number in range(3):
            driver.commit(written(driver, row(number)), batch(number), 0)
        losses = iter([True])
        proxy.lose_answer = lambda method, path: method == "POST" and next(losses, False)
        done = behind.sink.merge_small_files(behind.context)
        assert (len(proxy.lost), done.merged, done.written) == (1, 3, 1)
        assert behind.ids() == [0, 1, 2]


def test_files_of_another_writer_in_between_are_kept(lab):
    driver = lab.open()
    driver.commit(written(driver, row(1)), batch(0), 0)
    other = CatalogTable.of(lab.context, lab.sink.format.namespace, "clicks").existing()
    other.delete("id = 1")
    assert driver.commit(written(driver, row(2)), batch(1), 0).is_new
    assert lab.ids() == [2]


def test_files_are_merged_and_orphans_looked_for_on_s3(lab):
    driver = lab.open()
    for number in range(3):
        driver.commit(written(driver, row(number)), batch(number), 0)
    done = lab.sink.merge_small_files(lab.context)
    assert (done.merged, done.written) == (3, 1)
    assert lab.sink.remove_dead_files(lab.context).vacuumed == 0
    assert lab.ids() == [0, 1, 2]


class TestPipelines:
    @pytest.fixture
    def flow(self, broker, spark, tmp_path):
        return Flow(broker, spark, tmp_path)

    def rows(self, flow, pipeline, sink):
        context = pipeline.sink_context(sink, flow.lake, {}, {}, {})
        return sink.read(context)

    def test_rows_and_late_rows_are_in_iceberg_tables_once(self, flow):
        """Fused, and in a catalog that needs no server; twice, as after a kill."""
        sink = Lake("clicks", partition_by=("day", "hour", "category"), format=Iceberg())
        late = Lake("late_clicks", format=Iceberg())
        pipeline = flow.pipeline(
            "clicks", sink=sink, late_data=late, allowed_lateness=timedelta(hours=1)
        )
        flow.send([click(n) for n in range(500)] + [b"not json"])
        assert flow.run(pipeline)["clicks"].state is State.FINISHED
        days_ago = NOW_MS - 200_000_000
        flow.send([click(n) for n in range(500, 600)] + [click(1, event_id="x", category="a/b")])
        flow.send([click(n, event_time=days_ago) for n in range(600, 603)])
        assert flow.run(pipeline)["clicks"].state is State.FINISHED
        shown = self.rows(flow, pipeline, sink)
        assert Counter(shown["event_id"].to_pylist()) == {f"e{n}": 1 for n in range(600)}
        assert sorted(self.rows(flow, pipeline, late)["n"].to_pylist()) == [600, 601, 602]
        assert len(flow.dead()) == 2

    def test_a_step_writes_the_same_table(self, flow):
        sink = Lake("doubled", partition_by=("category",), format=Iceberg("steps"))
        pipeline = flow.stepped("doubled", sink=sink)
        flow.send([click(n) for n in range(100)])
        assert flow.run(pipeline)["doubled"].state is State.FINISHED
        shown = self.rows(flow, pipeline, sink)
        assert sorted(shown["double"].to_pylist()) == [2 * n for n in range(100)]

    @pytest.mark.parametrize("path", ["fused", "stepped"])
    def test_each_event_is_there_once_in_a_unique_table(self, broker, spark, tmp_path, path):
        flow = Flow(broker, spark, tmp_path, event_id="event_id")
        unique = Unique(by=["event_id"], within=timedelta(days=7))
        sink = Lake(path, partition_by=("day", "category"), format=Iceberg(), unique=unique)
        pipeline = getattr(flow, "pipeline" if path == "fused" else path)(path, sink=sink)
        flow.send([click(n) for n in (*range(100), *range(10))], partition=0)
        run(flow, pipeline)
        flow.send([click(n) for n in range(50, 150)] + [click(5, n=1005)], partition=1)
        run(flow, pipeline)
        shown = Counter(self.rows(flow, pipeline, sink)["event_id"].to_pylist())
        assert shown == {f"e{n}": 1 for n in range(150)}
        assert [stored.letter.reason for stored in flow.dead()] == ["conflicting-key"]
        assert not Balance.of(balance(flow, pipeline)).is_unbalanced

    def test_tables_are_recounted_and_rows_that_are_lost_are_named(self, broker, spark, tmp_path):
        flow = Flow(broker, spark, tmp_path, event_id="event_id")
        late = Lake("late", format=Iceberg())
        sink = Lake("fused", partition_by=("category",), format=Iceberg())
        pipeline = flow.pipeline(sink=sink, late_data=late)
        send_hours(flow, range(4))
        run(flow, pipeline)
        flow.send([*(at(n, 0) for n in range(900, 907)), at(999, 3)], partition=0)
        run(flow, pipeline)
        assert states(balance(flow, pipeline))[0] is WindowState.BALANCED
        context = pipeline.sink_context(sink, flow.lake, {}, {}, {})
        for name, event_id in (("fused", "e102"), ("late", "e901")):
            CatalogTable.of(context, "default", name).existing().delete(f"event_id = '{event_id}'")
        windows = balance(flow, pipeline).windows
        hops = [difference.hop for window in windows for difference in window.differences]
        assert sorted(hops) == sorted([Hop.TABLE, Hop.SIDE_TABLE])

    def test_a_start_after_a_rollback_is_refused_and_a_reset_brings_the_rows_again(self, flow):
        sink = Lake("fused", format=Iceberg())
        pipeline = flow.pipeline(sink=sink)
        for first in (0, 100):
            flow.send([click(n) for n in range(first, first + 100)])
            run(flow, pipeline)
        context = pipeline.sink_context(sink, flow.lake, {}, {}, {})
        table = CatalogTable.of(context, "default", "fused").existing()
        first = table.metadata.snapshots[0].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(first).commit()
        outcome = flow.run(pipeline)["fused"]
        assert outcome.state is State.REFUSED
        assert "taken rows of its batches" in outcome.reason
        flow.reset(pipeline, "table")
        run(flow, pipeline)
        shown = Counter(self.rows(flow, pipeline, sink)["event_id"].to_pylist())
        assert shown == {f"e{n}": 1 for n in range(200)}

    def test_a_pipeline_of_a_delta_table_starts_in_an_iceberg_table_after_a_reset(self, flow):
        flow.send([click(n) for n in range(100)])
        run(flow, flow.pipeline(sink=Lake("fused")))
        sink = Lake("fused", format=Iceberg())
        pipeline = flow.pipeline(sink=sink)
        outcome = flow.run(pipeline)["fused"]
        assert outcome.state is State.REFUSED
        assert "--to earliest" in outcome.reason
        flow.reset(pipeline, "earliest")
        run(flow, pipeline)
        assert len(self.rows(flow, pipeline, sink)) == len(flow.rows()) == 100
