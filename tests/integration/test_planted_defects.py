"""Planted defects: the ledger names each with its hop, and nothing else.

Real Kafka, Spark, lake and PostgreSQL make what is then damaged. Where the defect is in code that
runs in Spark's workers, what it would leave is planted in the entry of its batch.
"""

import shutil
import uuid
from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.integration.flow import Flow
from tests.integration.test_ledger import START_MS, at, balance, run, send_hours
from tests.integration.test_pipeline_sinks import Database

from headrace import Count, Lake, LateData, Stats, filter_rows
from headrace.kafka.dead_letters.writer import DeadLetterWriter
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.sums import Fate, Hop, LedgerLine, Sums
from headrace.pipelines.source.staging import Staging
from headrace.storage import files as storage

HOUR_S = 3600
STATS = Stats(
    "per_minute", by=("category",), every=timedelta(minutes=1), measures={"clicks": Count()}
)


def hour(n):
    return START_MS // 1000 + n * HOUR_S


def found(result):
    """The hops of all differences, with the hour and how many are missing: None: no hour."""
    differences = {
        (str(each.hop), None if w.start is None else int(w.start.timestamp()), each.number)
        for w in result.windows
        for each in w.differences
    }
    breaks = {(str(gap.hop), None, gap.end - gap.start) for gap in result.breaks}
    letters = {(str(each.hop), None, each.number) for each in result.letters.differences}
    return differences | breaks | letters


@pytest.fixture(scope="module")
def good(broker, spark, tmp_path_factory):
    """A flow of two batches with late events and dead letters, whose ledger balances."""
    flow = Flow(broker, spark, tmp_path_factory.mktemp("good"), partitions=2, event_id="event_id")
    pipeline = flow.pipeline(late_data=LateData.DEAD_LETTER)
    send_hours(flow, range(4))
    run(flow, pipeline)
    late = [at(n, 0) for n in range(900, 907)]
    flow.send([*late, b"no event", *(at(n, 3) for n in range(1000, 1020))], partition=0)
    run(flow, pipeline)
    assert found(balance(flow, pipeline)) == set()
    return flow


class Damaged:
    """A copy of the lake of a good flow, to be damaged."""

    def __init__(self, flow, folder):
        self.flow, self.pipeline = flow, flow.pipeline(late_data=LateData.DEAD_LETTER)
        self.lake = str(folder / "lake")
        shutil.copytree(flow.lake, self.lake)
        self.table = DeltaTable(f"{self.lake}/fused")
        self.ledger = LedgerFolder(self.lake, "fused")

    def rows(self, condition):
        rows = pl.from_arrow(self.table.to_pyarrow_table())
        return rows.sql(f"SELECT * FROM self WHERE {condition}").to_arrow()

    def append(self, rows):
        write_deltalake(self.table, rows, mode="append")

    def entry(self, batch, change):
        [span] = [each for each in self.ledger.spans() if each.first == batch]
        self.ledger.write(change(self.ledger.read(span)))

    def found(self):
        lake, self.flow.lake = self.flow.lake, self.lake
        try:
            return found(balance(self.flow, self.pipeline))
        finally:
            self.flow.lake = lake


@pytest.fixture
def damaged(good, tmp_path):
    return Damaged(good, tmp_path)


def test_a_batch_whose_rows_are_lost(damaged):
    damaged.table.delete("n >= 1000")
    assert damaged.found() == {("table", hour(3), 20)}


def test_records_that_a_batch_has_not_read(damaged):
    def later(entry):
        first, *others = entry.ranges
        return replace(entry, ranges=(replace(first, start=first.start + 3), *others))

    damaged.entry(1, later)
    assert damaged.found() == {("offsets", None, 3)}


def test_an_entry_that_is_gone_is_no_defect_of_the_pipeline(damaged):
    [_, span] = damaged.ledger.spans()
    storage.delete_files(damaged.ledger.uri, [span.name])
    assert damaged.found() == set()


def test_a_batch_whose_rows_are_there_twice(damaged):
    damaged.append(damaged.rows("n >= 1000"))
    assert damaged.found() == {("table", hour(3), -20)}


def test_one_event_is_lost_and_another_one_is_there_twice(damaged):
    damaged.table.delete("event_id = 'e105'")
    damaged.append(damaged.rows("event_id = 'e106'"))
    assert damaged.found() == {("table", hour(1), 0)}


def test_two_events_are_swapped(damaged):
    names = {"event_id": "CASE event_id WHEN 'e105' THEN 'e205' ELSE 'e105' END"}
    damaged.table.update(updates=names, predicate="event_id IN ('e105', 'e205')")
    assert damaged.found() == {("table", hour(1), 0), ("table", hour(2), 0)}


def test_an_event_is_an_hour_off(damaged):
    moved = {"event_time": "event_time + INTERVAL '1 hour'"}
    damaged.table.update(updates=moved, predicate="event_id = 'e105'")
    assert damaged.found() == {("table", hour(1), 1), ("table", hour(2), -1)}


def test_a_row_of_the_sink_is_deleted(damaged):
    damaged.table.delete("event_id = 'e105'")
    assert damaged.found() == {("table", hour(1), 1)}


def without(entry, hop, fate, number=1):
    """The entry as if some events of a fate had not been counted."""
    for line in entry.lines:
        if (line.key.hop, line.key.fate) == (hop, fate) and line.key.window is not None:
            less = LedgerLine(line.key, line.sums - Sums(number, 0, 1))
            return replace(entry, lines=tuple(less if x is line else x for x in entry.lines))
    raise AssertionError(entry)


def test_a_late_event_is_dropped(damaged):
    damaged.entry(1, lambda entry: without(entry, Hop.READ, Fate.LATE))
    assert damaged.found() == {("read", hour(0), 1)}


def test_a_replay_has_other_bounds(damaged):
    def longer(entry):
        first, *others = entry.ranges
        return replace(entry, ranges=(replace(first, end=first.end + 5), *others))

    damaged.entry(0, longer)
    assert damaged.found() == {("offsets", None, 5)}


def test_a_replay_that_stops_too_early(damaged):
    def shorter(entry):
        return replace(entry, ranges=tuple(replace(r, end=r.end - 3) for r in entry.ranges))

    damaged.entry(1, shorter)
    assert damaged.found() == {("offsets", None, 3)}


def test_the_sink_reports_nothing(damaged):
    def silent(entry):
        lines = (line for line in entry.lines if line.key.hop is not Hop.SINK)
        return replace(entry, lines=tuple(lines))

    damaged.entry(1, silent)
    assert {hop for hop, *_ in damaged.found()} == {"sink", "table"}


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=2, event_id="event_id")


def test_a_dead_letter_is_lost(flow, monkeypatch):
    write = DeadLetterWriter.write

    def losing(self, letters, is_repeated):
        write(self, letters[1:], is_repeated)

    pipeline = flow.pipeline()
    flow.send([*(at(n, 0) for n in range(50)), *[b"no event"] * 3], partition=1)
    monkeypatch.setattr(DeadLetterWriter, "write", losing)
    run(flow, pipeline)
    assert found(balance(flow, pipeline)) == {("dead letters", None, 1)}


class uncounted(filter_rows):  # noqa: N801  a step
    """Drops rows and counts none of them."""

    def with_ledger(self, ledger):
        return self


class silent(filter_rows):  # noqa: N801  a step
    """Counts rows where nobody reads it."""

    def with_ledger(self, ledger):
        nowhere = Staging(f"{ledger.staging._folder}-elsewhere")
        return super().with_ledger(replace(ledger, staging=nowhere))


@pytest.mark.parametrize("step", [uncounted, silent])
def test_a_filter_does_not_count_what_it_drops(flow, step):
    counting = filter_rows({"threes": "n % 3 = 0"})
    steps = [counting, step({"odd": "n % 2 = 1"})]
    pipeline = flow.pipeline("stepped", sink=Lake("stepped"), steps=steps)
    flow.send((at(100 + n, 1) for n in range(60)), partition=0)
    run(flow, pipeline)
    assert found(balance(flow, pipeline)) == {("steps", hour(1), 20)}


@pytest.fixture
def database(flow, postgres):
    columns = "event_id text, event_time timestamptz, category text, n int, price numeric"
    return Database(flow, postgres.create_database(f"ledger_{uuid.uuid4().hex[:8]}"), columns)


def test_a_counter_counts_a_row_twice(flow, database):
    pipeline = flow.pipeline("counted", sink=STATS)
    send_hours(flow, range(3))
    run(flow, pipeline)
    good = balance(flow, pipeline)
    assert found(good) == set()
    assert [window.rows for window in good.windows] == [40, 40, 40]
    database.execute(
        "UPDATE per_minute SET clicks = clicks + 1 WHERE ctid = (SELECT min(ctid) FROM per_minute"
        f" WHERE window_start >= to_timestamp({hour(2)}))"
    )
    assert found(balance(flow, pipeline)) == {("table", hour(2), -1)}
