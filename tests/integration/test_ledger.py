"""The ledger on the real broker, Spark and table: balanced, and a planted difference is named."""

import json
from dataclasses import replace
from datetime import datetime

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from tests.integration.flow import NOW_MS, Flow, click

from headrace import Kafka, Lake, LateData, Metadata, Source, Topic
from headrace.cli import main
from headrace.cli.session import UNBALANCED
from headrace.ledger.balance import Balance
from headrace.ledger.request import ReconcileRequest
from headrace.ledger.sums import Fate, Hop
from headrace.ledger.windows import WindowState
from headrace.operations.reconciling.reconcile import reconcile
from headrace.project.loaded import LoadedProject
from headrace.service.status import State
from headrace.settings.model import KafkaSettings, LedgerSettings

HOUR_MS = 3_600_000
START_MS = NOW_MS // HOUR_MS * HOUR_MS - 12 * HOUR_MS
RECOUNT = ReconcileRequest(recount=True)


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=2, event_id="event_id")


def at(n, hour):
    return click(n, event_time=START_MS + hour * HOUR_MS + n)


def run(flow, pipeline):
    outcome = flow.run(pipeline)[pipeline.name]
    assert outcome.state is State.FINISHED, outcome.reason
    return outcome


def balance(flow, *pipelines, request=RECOUNT):
    kafka = KafkaSettings(bootstrap_servers=flow.broker.bootstrap_servers)
    settings = flow.settings(kafka=kafka)
    project = LoadedProject(settings, pipelines)
    result = reconcile(project, pipelines[:1], request)
    return result.books[0]


def states(balance):
    return [window.state for window in balance.windows]


def totals(balance):
    fates = {fate: sum(w.fates.get(fate, 0) for w in balance.windows) for fate in Fate}
    read = sum(window.read for window in balance.windows)
    return {"read": read} | {fate: number for fate, number in fates.items() if number}


def send_hours(flow, hours, first=0, events=40):
    for hour in hours:
        flow.send(at(first + 100 * hour + n, hour) for n in range(events))


def test_every_record_is_in_one_fate_and_windows_balance_with_the_table(flow):
    pipeline = flow.pipeline(late_data=LateData.DEAD_LETTER)
    send_hours(flow, range(4))
    run(flow, pipeline)
    flow.send([b"no event", *(at(n, 0) for n in range(900, 907)), at(999, 3)], partition=0)
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert not result.breaks
    assert totals(result) == {"read": 169, Fate.OUT: 161, Fate.LATE: 7, Fate.DEAD: 1}
    assert [window.fates.get(Fate.LATE) for window in result.windows] == [None, 7, None, None, None]
    assert [window.rows for window in result.windows] == [0, 40, 40, 40, 41]
    assert set(states(result)) <= {WindowState.BALANCED, WindowState.CLOSING, WindowState.OPEN}
    assert states(result)[1] is WindowState.BALANCED
    assert states(result)[-1] is WindowState.OPEN
    [commit, *_] = DeltaTable(f"{flow.lake}/fused").history(1)
    complete = datetime.fromisoformat(commit["headrace"]["complete_until"])
    assert START_MS + HOUR_MS < complete.timestamp() * 1000 < START_MS + 3 * HOUR_MS


def test_a_compacted_topic_is_read_whatever_number_of_tombstones_it_has(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path, partitions=1, event_id="event_id", compaction=True)
    pipeline = flow.pipeline()
    flow.send([value for n in range(400) for value in (at(n, 0), None)], keys=[b"key"] * 800)
    flow.send([None] * 300, keys=[b"key"] * 300)
    outcome = run(flow, pipeline)
    assert (outcome.rows_in, outcome.rows_out, outcome.tombstones) == (1100, 400, 700)
    assert (outcome.dead_letters, flow.dead()) == (0, [])
    result = balance(flow, pipeline)
    assert totals(result) == {"read": 1100, Fate.OUT: 400, Fate.TOMBSTONE: 700}
    assert WindowState.UNBALANCED not in states(result)


def test_a_pipeline_that_began_with_an_empty_topic_knows_all_rows(flow):
    pipeline = flow.pipeline()
    flow.send([])
    run(flow, pipeline)
    flow.send(click(n) for n in range(20))  # of just now
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert totals(result) == {"read": 20, Fate.OUT: 20}
    assert WindowState.UNKNOWN not in states(result)


def test_events_without_an_id_are_compared_by_their_places(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path)
    places = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)
    pipeline = flow.pipeline(source=Source(flow.topic, metadata=places))
    send_hours(flow, range(2))
    run(flow, pipeline)
    assert WindowState.UNBALANCED not in states(balance(flow, pipeline))
    table = DeltaTable(f"{flow.lake}/fused")
    table.update(updates={"_offset": "_offset + 1"}, predicate="event_id = 'e3'")
    [window] = [each for each in balance(flow, pipeline).windows if each.differences]
    assert (window.differences[0].number, window.differences[0].ids_differ) == (0, True)


def test_a_reset_to_the_table_is_neither_gap_nor_overlap_and_one_to_the_start_overlaps(flow):
    pipeline = flow.pipeline()
    for hours in (range(1), range(1, 2)):
        send_hours(flow, hours)
        run(flow, pipeline)
        flow.reset(pipeline, "table")
    result = balance(flow, pipeline)
    assert (totals(result), result.breaks) == ({"read": 80, Fate.OUT: 80}, ())
    flow.reset(pipeline, "earliest")
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert [(gap.partition, gap.is_gap) for gap in result.breaks] == [
        (f"{flow.name}/0", False),
        (f"{flow.name}/1", False),
    ]
    assert Balance.of(result).is_unbalanced


def test_a_sink_without_positions_counts_a_batch_when_spark_has_ended_it(flow):
    target = Topic(f"{flow.name}-out", event=flow.topic.event, event_id="event_id")
    flow.create(target.name, 1)
    pipeline = flow.pipeline(sink=Kafka(target))
    send_hours(flow, range(2))
    run(flow, pipeline)
    assert totals(balance(flow, pipeline, request=ReconcileRequest())) == {
        "read": 80,
        Fate.OUT: 80,
    }
    recounted = balance(flow, pipeline)
    assert recounted.not_recounted == (f"kafka {target.name}",)
    assert WindowState.UNKNOWN not in states(recounted)
    flow.forget_newest_commit()
    assert balance(flow, pipeline).unknown


def test_tables_that_two_pipelines_write_can_not_be_recounted(flow):
    pipeline, other = flow.pipeline(), flow.pipeline("other", sink=Lake("fused"))
    send_hours(flow, range(1))
    run(flow, pipeline)
    result = balance(flow, pipeline, other)
    assert {window.unknown for window in result.windows} == {"lake fused has rows of other too"}


def test_without_a_ledger_nothing_is_written_and_nothing_is_known(flow):
    flow.more_settings = {"ledger": LedgerSettings(enabled=False)}
    pipeline = flow.pipeline()
    send_hours(flow, range(1))
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert (result.windows, result.unknown) == ((), "it has no entries in the ledger")


PROJECT = """
from headrace import EpochMillis, Lake, Pipeline, Topic

class Click:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int
    price: float | None

clicks = Topic("{topic}", event=Click, key="event_id", event_id="event_id",
               event_time="event_time", partitions=2)
fused = Pipeline("fused", clicks, Lake("fused", partition_by=("day", "hour", "category")))
"""


@pytest.fixture
def command(flow):
    """``command("--json")``: the result of ``headrace reconcile fused --recount``."""
    module = f"flow_{flow.name.replace('-', '_')}"
    (flow.folder / f"{module}.py").write_text(PROJECT.format(topic=flow.name))
    (flow.folder / "headrace.toml").write_text(
        f'[project]\nname = "flow"\nmodules = ["{module}"]\nlake = "{flow.lake}"\n'
        f'[kafka]\nbootstrap_servers = "{flow.broker.bootstrap_servers}"\n'
    )
    call = ["reconcile", "fused", "--recount", "--project", str(flow.folder)]
    return lambda *options: CliRunner().invoke(main, [*call, *options])


def test_a_deleted_row_and_a_row_that_is_there_twice_are_found_by_their_ids(flow, command):
    """The command names the hop, and ends with an exit code of its own."""
    pipeline = flow.pipeline()
    send_hours(flow, range(3))
    run(flow, pipeline)
    result = command()
    assert result.exit_code == 0, result.output
    assert "balanced" in result.output
    table = DeltaTable(f"{flow.lake}/fused")
    table.delete("event_id = 'e101'")
    result = balance(flow, pipeline)
    [window] = [each for each in result.windows if each.state is WindowState.UNBALANCED]
    [difference] = window.differences
    assert (window.start.timestamp(), difference.hop) == (START_MS / 1000 + 3600, Hop.TABLE)
    assert (difference.number, difference.ids_differ) == (1, True)
    assert WindowState.UNBALANCED not in states(balance(flow, pipeline, request=ReconcileRequest()))
    result = command()
    assert result.exit_code == UNBALANCED
    assert "1 missing at table" in result.output
    [shown] = json.loads(command("--json").output)["pipelines"]
    [window] = [each for each in shown["windows"] if each["state"] == "unbalanced"]
    assert (window["differences"][0]["hop"], window["differences"][0]["number"]) == ("table", 1)
    hour = window["start"].replace(":00:00Z", ":30:00Z")
    assert command("--window", hour).exit_code == UNBALANCED
    assert command("--window", "2001-01-01").exit_code == 0
    table.update(updates={"event_id": "'e103'"}, predicate="event_id = 'e102'")
    [window] = [each for each in balance(flow, pipeline).windows if each.differences]
    assert window.differences[0].number == 1


@pytest.mark.parametrize("build", [Flow.pipeline, Flow.stepped])
def test_the_side_table_is_recounted_and_a_row_that_is_lost_there_is_named(flow, build):
    pipeline = build(flow, late_data=Lake("late", partition_by=("day",)))
    send_hours(flow, range(4))
    run(flow, pipeline)
    flow.send([*(at(n, 0) for n in range(900, 907)), at(999, 3)], partition=0)
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert totals(result)[Fate.LATE] == 7
    assert [window.side_rows for window in result.windows] == [7, 0, 0, 0]
    assert set(states(result)) <= {WindowState.BALANCED, WindowState.CLOSING, WindowState.OPEN}
    table = DeltaTable(f"{flow.lake}/late")
    rows = table.to_pyarrow_table()
    table.delete("event_id = 'e901'")
    assert side_differences(balance(flow, pipeline)) == [(Hop.SIDE_TABLE, 1, 0)]
    write_deltalake(table, rows.slice(0, 3), mode="append")
    assert side_differences(balance(flow, pipeline)) == [(Hop.SIDE_TABLE, -2, 0)]


def side_differences(result):
    """Hop, number and window of each difference."""
    return [
        (each.hop, each.number, number)
        for number, window in enumerate(result.windows)
        for each in window.differences
    ]


def test_events_that_were_counted_by_other_fields_or_sent_elsewhere_are_unknown(flow):
    flow.topic = replace(flow.topic, event_id=None)
    pipeline = flow.pipeline(late_data=LateData.DEAD_LETTER)
    send_hours(flow, range(4))
    run(flow, pipeline)
    flow.send([at(n, 0) for n in range(900, 907)], partition=0)
    run(flow, pipeline)
    assert WindowState.UNKNOWN not in states(balance(flow, pipeline))
    pipeline = flow.pipeline(late_data=Lake("late"))
    flow.send([at(n, 0) for n in range(910, 913)], partition=0)
    run(flow, pipeline)
    first, *others = balance(flow, pipeline).windows
    assert (first.state, first.side_rows) == (WindowState.UNKNOWN, 3)
    assert not {WindowState.UNKNOWN, WindowState.UNBALANCED} & {other.state for other in others}
    flow.topic = replace(flow.topic, event_id="event_id")
    pipeline = flow.pipeline(late_data=Lake("late"))
    send_hours(flow, [5], first=5000)
    run(flow, pipeline)
    windows = balance(flow, pipeline).windows
    assert not any(window.differences for window in windows)
    assert {window.state for window in windows[:4]} == {WindowState.UNKNOWN}
