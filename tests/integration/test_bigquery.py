"""The sink of BigQuery under its contract, on a stand-in with its protocol, and under faults."""

import re
import shutil
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.bigquery_proxy import (
    APPEND,
    COMMIT,
    CREATE,
    FINALIZE,
    LOSE_ANSWER,
    LOSE_REQUEST,
    BigQueryProxy,
)
from tests.integration.bigquery_server import DATASET
from tests.integration.flow import Flow, click

from headrace import BigQuery
from headrace.errors import (
    CommitUnknownError,
    SinkError,
    SinkUnavailableError,
    TableMismatchError,
)
from headrace.model.event import event_schema
from headrace.pipelines.source.record_columns import row_columns
from headrace.service.status import State
from headrace.settings import Secret
from headrace.sinks.api import SinkContext, Transaction
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.connection import Streams, TableAddress, Tables
from headrace.sinks.bigquery.state import (
    MAX_STREAM_AGE_MS,
    OUTCOME_LABEL,
    BigQueryPositions,
    CommitState,
    Prepared,
    StateStore,
)
from headrace.sinks.bigquery.streams import StreamsOutcome, commit_streams
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import batch, row, schema, table, written

PAGE = Path(__file__).parents[2] / "docs" / "bigquery.md"


class Target:
    """A table of its own, which is not there yet."""

    def __init__(self, server, **settings):
        self.server = server
        self.name = f"clicks_{uuid.uuid4().hex[:8]}"
        self.sink = BigQuery(self.name)
        self.context = SinkContext("p", "unused", {}, server.settings | settings, event_time="at")
        values = {name: secret.reveal() for name, secret in self.context.settings.items()}
        self.address = TableAddress(
            values["project"],
            values["dataset"],
            self.name,
            values["endpoint"],
            values["storage_endpoint"],
        )

    def create(self, *fields, **more):
        body = {"tableReference": {"tableId": self.name}, "schema": {"fields": list(fields)}}
        self.server.request("POST", f"/datasets/{DATASET}/tables", body | more)

    def open(self, columns=None):
        return self.sink.open(self.context, schema() if columns is None else columns)

    def resource(self):
        return self.server.request("GET", f"/datasets/{DATASET}/tables/{self.name}")

    def delete(self):
        self.server.request("DELETE", f"/datasets/{DATASET}/tables/{self.name}")

    def rows(self):
        return [
            {"id": int(id_), "name": name, "at": _time(int(at))} for id_, name, at in self.cells()
        ]

    def cells(self):
        """Rows as lists: an ARRAY and a STRUCT are lists, too."""
        path = f"/datasets/{DATASET}/tables/{self.name}/data"
        answer = self.server.request("GET", f"{path}?formatOptions.useInt64Timestamp=true")
        return [_plain(row) for row in answer.get("rows", [])]

    def ids(self):
        return sorted(row["id"] for row in self.rows())

    def states(self, tables=None):
        tables = tables or Tables(self.address)
        return StateStore(tables, Streams(self.address), self.address, "p")

    def versions(self):
        return BigQueryPositions(self.address, "p").versions(["app"])


def _plain(value):
    if isinstance(value, dict):
        return _plain(value["v"] if "v" in value else value["f"])
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _time(us):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def _field(name, type_, mode="NULLABLE"):
    return {"name": name, "type": type_, "mode": mode}


@pytest.fixture(autouse=True)
def few_tables(bigquery):
    yield
    bigquery.drop_tables()


@pytest.fixture
def target(bigquery):
    return Target(bigquery)


@pytest.fixture
def proxy(bigquery):
    proxy = BigQueryProxy(bigquery.storage_port, refuses=lambda row: row.get("name") == "odd")
    yield proxy
    proxy.close()


@pytest.fixture
def faulty(bigquery, proxy):
    return Target(bigquery, storage_endpoint=Secret(f"http://127.0.0.1:{proxy.port}"))


@pytest.fixture
def impatient(monkeypatch):
    """What is not taken at once fails the batch."""
    monkeypatch.setattr(connection, "TASK_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(connection, "COMMIT_WAIT_SECONDS", 0.0)


class TestBigQuery(SinkContract):
    @pytest.fixture
    def lab(self, target):
        target.create(
            _field("id", "INTEGER", "REQUIRED"),
            _field("name", "STRING"),
            _field("at", "TIMESTAMP"),
            timePartitioning={"type": "DAY", "field": "at"},
        )
        bad = {**row(9), "id": None}
        lab = SinkLab(target.sink, target.context, target.rows, bad_row=bad)
        yield lab
        lab.close()


def test_rows_that_bigquery_rejects_are_dead_letters_and_the_others_go_in(faulty, proxy):
    """An append with such a row takes none of its rows; one row in a thousand is refused.

    The proxy leaves what is behind it without an answer: it might arrive when other rows are at its
    offsets, so these go into another stream.
    """
    driver = faulty.open()
    writer = driver.writers("a" * 32)
    rows = [row(n, "odd" if n % 1_000 == 500 else "a" * 300) for n in range(10_000)]
    rejected = writer.write(table(rows))
    assert [each.index for each in rejected] == list(range(500, 10_000, 1_000))
    assert {(each.reason, each.detail) for each in rejected} == {
        ("rejected-by-bigquery", "too odd")
    }
    assert driver.commit(writer.close(), batch(0), 0).rows == 9_990
    assert faulty.ids() == [n for n in range(10_000) if n % 1_000 != 500]
    assert proxy.calls.count(CREATE) > 1


@pytest.mark.parametrize("count", [1, 2])
def test_a_batch_whose_rows_are_all_refused_has_none(faulty, count):
    driver = faulty.open()
    writer = driver.writers("a" * 32)
    rejected = writer.write(table([row(n, "odd") for n in range(count)]))
    assert [each.index for each in rejected] == list(range(count))
    assert list(writer.close()) == []


def test_a_row_that_is_too_large_for_the_server_is_a_dead_letter_and_the_others_go_in(target):
    """The stand-in takes 4 MB, as servers of gRPC do by default."""
    driver = target.open()
    writer = driver.writers("a" * 32)
    rows = [row(1), row(2, "x" * 5_000_000), row(3), row(4, "x" * 12_000_000)]
    rejected = writer.write(table(rows))
    assert [(each.index, each.reason) for each in rejected] == [
        (1, "row-too-large"),
        (3, "row-too-large"),
    ]
    driver.commit(writer.close(), batch(0), 0)
    assert target.ids() == [1, 3]


@pytest.mark.parametrize("plan", [LOSE_REQUEST, LOSE_ANSWER])
@pytest.mark.parametrize("method", [CREATE, APPEND, FINALIZE])
def test_a_task_whose_connection_is_cut_sends_again_and_rows_go_in_once(
    faulty, proxy, method, plan
):
    driver = faulty.open()
    proxy.plan(method, plan, plan)
    driver.commit(written(driver, *(row(n) for n in range(5))), batch(0), 0)
    assert faulty.ids() == list(range(5))
    assert proxy.calls.count(method) == 3


@pytest.mark.parametrize("plan", [LOSE_REQUEST, LOSE_ANSWER])
def test_a_commit_whose_connection_is_cut_is_made_once(faulty, proxy, plan):
    driver = faulty.open()
    proxy.plan(COMMIT, plan, plan)
    assert driver.commit(written(driver, row(1)), batch(0), 0).is_new
    assert faulty.ids() == [1]
    assert faulty.versions() == {"app": 0}


@pytest.mark.parametrize("plan", [LOSE_REQUEST, LOSE_ANSWER])
@pytest.mark.usefixtures("impatient")
def test_a_driver_that_dies_between_preparation_and_answer_leaves_a_batch_that_a_start_settles(
    faulty, proxy, plan
):
    dead = faulty.open()
    dead.commit(written(dead, row(1)), batch(0), 0)
    proxy.plan(COMMIT, plan)
    with pytest.raises(SinkUnavailableError):
        dead.commit(written(dead, row(2)), batch(1), 0)
    assert faulty.ids() == ([1] if plan == LOSE_REQUEST else [1, 2])
    driver = faulty.open()
    assert faulty.ids() == [1, 2]
    assert driver.positions.versions(["app"]) == {"app": 1}
    assert not driver.commit(written(driver, row(2)), batch(1), 0).is_new
    driver.commit(written(driver, row(3)), batch(2), 0)
    assert faulty.ids() == [1, 2, 3]


@pytest.mark.usefixtures("impatient")
def test_the_positions_of_a_commit_under_way_are_known_without_a_start(faulty, proxy):
    """As where a checkpoint is lost: the number of the next one must not be taken already."""
    dead = faulty.open()
    proxy.plan(COMMIT, LOSE_REQUEST)
    with pytest.raises(SinkUnavailableError):
        dead.commit(written(dead, row(1)), batch(0), 0)
    assert faulty.versions() == {"app": 0}
    assert faulty.ids() == [1]


@pytest.mark.usefixtures("impatient")
def test_a_zombie_that_commits_old_streams_changes_nothing(faulty, proxy):
    zombie = faulty.open()
    proxy.plan(COMMIT, LOSE_REQUEST)
    with pytest.raises(SinkUnavailableError):
        zombie.commit(written(zombie, row(1)), batch(0), 0)
    [stream] = proxy.streams
    driver = faulty.open()
    driver.commit(written(driver, row(2)), batch(1), 0)
    assert (
        commit_streams(Streams(faulty.address), faulty.address, [stream])
        is StreamsOutcome.COMMITTED
    )
    with pytest.raises(SinkError, match="another driver"):
        zombie.commit(written(zombie, row(9)), batch(0), 0)
    assert faulty.ids() == [1, 2]


@pytest.mark.usefixtures("impatient")
def test_a_batch_that_another_driver_has_settled_as_gone_is_never_committed(bigquery, target):
    """The streams are gone for everyone: what a zombie does with their names has no effect."""
    zombie = target.open()
    pieces = written(zombie, row(1))
    bigquery.kill()
    bigquery.start()
    for driver in (zombie, target.open()):
        with pytest.raises(SinkUnavailableError, match="expired"):
            driver.commit(pieces, batch(0), 0)
    driver = target.open()
    assert driver.commit(written(driver, row(1)), batch(0), 0).is_new
    assert target.ids() == [1]


def test_a_record_that_is_written_although_its_answer_is_lost_is_ones_own(target):
    target.open()

    class Lossy(Tables):
        lost = 0

        def insert(self, address, body):
            return self._lose(super().insert(address, body))

        def patch(self, address, body, etag):
            return self._lose(super().patch(address, body, etag))

        def _lose(self, resource):
            if self.lost % 2 == 0:
                self.lost += 1
                raise SinkUnavailableError("BigQuery", "the answer was lost")
            return resource

    states = target.states(Lossy(target.address))
    for number in range(2):
        stored = states.replace(states.settled_state(), CommitState({"app": number}))
        assert stored is not None
        assert states.settled_state() == stored
        states = target.states(Lossy(target.address))
    assert target.versions() == {"app": 1}


def test_of_two_that_replace_a_record_one_does(target):
    target.open()
    first, second = target.states(), target.states()
    before, also_before = first.settled_state(), second.settled_state()
    assert first.replace(before, CommitState({"app": 1})) is not None
    assert second.replace(also_before, CommitState({"app": 2})) is None
    assert target.versions() == {"app": 1}


def _forgotten(target, at_ms):
    """A prepared commit of streams that BigQuery does not know."""
    target.open()
    states = target.states()
    prepared = Prepared({"app": 1}, ["gone"], 7, at_ms)
    created = target.resource()["creationTime"]
    assert (
        states.replace(states.settled_state(), CommitState({"app": 0}, prepared, created))
        is not None
    )


def test_a_batch_whose_streams_have_expired_is_written_again(target):
    _forgotten(target, int(datetime.now(UTC).timestamp() * 1000))
    driver = target.open()
    assert target.versions() == {"app": 0}
    assert driver.commit(written(driver, row(1)), batch(1), 0).is_new
    assert target.ids() == [1]


@pytest.mark.parametrize("outcome", ["committed", "void"])
def test_where_a_committed_stream_may_be_forgotten_too_an_operator_decides(target, outcome):
    # A minute more, since the clock is that of the server's answers.
    old = int(datetime.now(UTC).timestamp() * 1000) - MAX_STREAM_AGE_MS - 60_000
    _forgotten(target, old)
    with pytest.raises(CommitUnknownError) as refused:
        target.open()
    state = refused.value.state.rpartition(".")[2]
    assert "7" in str(refused.value)
    assert f"bq update --set_label {OUTCOME_LABEL}:committed" in refused.value.remedy
    path = f"/datasets/{DATASET}/tables/{state}"
    target.server.request("PATCH", path, {"labels": {OUTCOME_LABEL: outcome}})
    target.open()
    assert target.versions() == {"app": 1 if outcome == "committed" else 0}


def test_positions_of_thousands_of_partitions_are_recorded(target):
    driver = target.open()
    many = {f"headrace.p/1/topic/{uuid.uuid4().hex}/{n}": 2**40 + n * 7919 for n in range(5_000)}
    driver.commit(written(driver, row(1)), Transaction(many, {}), 0)
    few = dict.fromkeys(list(many)[:10], 5)
    driver.commit([], Transaction(few, {}), 0)
    assert BigQueryPositions(target.address, "p").versions(many) == many | few


def test_pipelines_of_one_table_have_records_of_their_own(target):
    driver = target.open()
    driver.commit(written(driver, row(1)), batch(0), 0)
    assert BigQueryPositions(target.address, "other.pipeline").versions(["app"]) == {}


def test_a_table_that_was_made_again_is_refused(target):
    driver = target.open()
    driver.commit(written(driver, row(1)), batch(0), 0)
    target.delete()
    for ask in (target.open, target.versions):
        with pytest.raises(TableMismatchError, match="recreated"):
            ask()
    target.create(_field("id", "INTEGER"))
    with pytest.raises(TableMismatchError, match="recreated"):
        target.open()


def test_apply_makes_the_table_and_adds_what_it_lacks(target):
    sink = BigQuery(target.name, partition_by="hour", cluster_by=["name"])
    layout = "partitioned by hour of 'at' (10,000 partitions: 416 days), clustered by name"
    made = [f"is created, {layout}"]
    assert sink.changes(target.context, schema()) == made
    assert sink.apply(target.context, schema()) == made
    assert sink.apply(target.context, schema()) == []
    resource = target.resource()
    assert resource["timePartitioning"]["type"] == "HOUR"
    assert resource["clustering"] == {"fields": ["name"]}
    wider = (
        schema()
        .append(pa.field("tags", pa.list_(pa.string())))
        .append(pa.field("price", pa.decimal128(38, 20)))
    )
    added = ["gets column 'tags', ARRAY<STRING>", "gets column 'price', BIGNUMERIC"]
    assert sink.changes(target.context, wider) == added
    assert sink.apply(target.context, wider) == added
    assert sink.changes(target.context, wider) == []


@pytest.mark.parametrize(
    ("fields", "more", "reason"),
    [
        ([_field("id", "STRING")], {}, "column 'id' is STRING, and the rows have INTEGER"),
        ([_field("id", "INTEGER", "REPEATED")], {}, "column 'id' is ARRAY<INTEGER>"),
        ([_field("other", "STRING", "REQUIRED")], {}, "column 'other' is REQUIRED"),
        ([_field("id", "INTEGER")], {"clustering": {"fields": ["id"]}}, "clustered by"),
        ([_field("id", "INTEGER")], {"timePartitioning": None}, "without partitions"),
    ],
)
def test_a_table_that_differs_is_refused(target, fields, more, reason):
    layout = {"timePartitioning": {"type": "DAY", "field": "at"}} | more
    target.create(*fields, _field("at", "TIMESTAMP"), **layout)
    for ask in (target.sink.changes, target.sink.apply, target.sink.open):
        with pytest.raises(TableMismatchError, match=reason):
            ask(target.context, schema())


def test_a_member_that_the_server_does_not_add_is_refused(target):
    """The stand-in adds columns, and answers a change of members without making it."""
    item = pa.struct([("sku", pa.string())])
    wide = pa.struct([*item, ("weight", pa.float64())])
    target.open(schema().append(pa.field("items", pa.list_(item))))
    wider = schema().append(pa.field("items", pa.list_(wide)))
    assert target.sink.changes(target.context, wider) == ["gets column 'items.weight', FLOAT"]
    for make in (target.sink.apply, target.sink.open):
        with pytest.raises(TableMismatchError, match=r"gets column 'items\.weight', FLOAT"):
            make(target.context, wider)


class Inner:
    note: str
    size: int | None


class Event:
    text: str
    any: Any
    tags: list[str]
    maybe_tags: list[str] | None
    holes: list[int | None]
    matrix: list[list[int]]
    inner: Inner
    inners: list[Inner]
    counts: dict[str, int]


VALUES = {
    "text": "a\0b ż",
    "any": '{"z": 1, "a": [1.5, null]}',
    "tags": [],
    "maybe_tags": None,
    "holes": [1, None],
    "matrix": [[1], []],
    "inner": {"note": "n", "size": 7},
    "inners": [{"note": "n", "size": 7}, {"note": "", "size": None}],
    "counts": [("b", 1), ("a", 2)],
    "number": -(2**63),
    "real": -0.5,
    "flag": False,
    "when": datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "local": datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
    "day": date(1, 1, 1),
    "small": Decimal("12345678901234567890123456789.000000001"),
    "wide": Decimal("-1234567890.123456789012345678"),
    "raw": b"\x00\xff",
}
MORE_TYPES = {
    "number": pa.int64(),
    "real": pa.float64(),
    "flag": pa.bool_(),
    "when": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "day": pa.date32(),
    "small": pa.decimal128(38, 9),
    "wide": pa.decimal128(28, 18),
    "raw": pa.binary(),
}


def event_table(*rows):
    declared = event_schema(Event)
    columns = pa.schema([*row_columns(declared, ()), *MORE_TYPES.items()])
    return pa.Table.from_pylist(list(rows), columns), {f.name: f for f in declared.fields}


@pytest.fixture
def of_every_type(target):
    """A table with a column of each type, and the writer of a task."""
    rows, fields = event_table(VALUES)
    target.context = replace(target.context, fields=fields, event_time="when")
    driver = target.open(rows.schema)
    return target, driver, driver.writers("a" * 32)


def test_each_value_is_kept_as_it_is(of_every_type):
    target, driver, writer = of_every_type
    nothing = dict.fromkeys(VALUES) | {"tags": [], "inners": []}
    rows, _ = event_table(VALUES, nothing)
    assert writer.write(rows) == []
    driver.commit(writer.close(), batch(0), 0)
    columns = {f["name"]: (f["type"], f["mode"]) for f in target.resource()["schema"]["fields"]}
    assert columns == {
        "text": ("STRING", "NULLABLE"),
        "any": ("JSON", "NULLABLE"),
        "tags": ("STRING", "REPEATED"),
        "maybe_tags": ("JSON", "NULLABLE"),
        "holes": ("JSON", "NULLABLE"),
        "matrix": ("JSON", "NULLABLE"),
        "inner": ("RECORD", "NULLABLE"),
        "inners": ("RECORD", "REPEATED"),
        "counts": ("JSON", "NULLABLE"),
        "number": ("INTEGER", "NULLABLE"),
        "real": ("FLOAT", "NULLABLE"),
        "flag": ("BOOLEAN", "NULLABLE"),
        "when": ("TIMESTAMP", "NULLABLE"),
        "local": ("DATETIME", "NULLABLE"),
        "day": ("DATE", "NULLABLE"),
        "small": ("NUMERIC", "NULLABLE"),
        "wide": ("BIGNUMERIC", "NULLABLE"),
        "raw": ("BYTES", "NULLABLE"),
    }
    first, second = sorted(target.cells(), key=lambda cells: cells[0] is None)
    assert dict(zip(columns, first, strict=True)) == {
        "text": "a\0b ż",
        "any": '{"z":1,"a":[1.5,null]}',
        "tags": [],
        "maybe_tags": None,
        "holes": "[1,null]",
        "matrix": "[[1],[]]",
        "inner": ["n", "7"],
        "inners": [["n", "7"], ["", None]],
        "counts": '{"b":1,"a":2}',
        "number": str(-(2**63)),
        "real": "-0.5",
        "flag": "false",
        "when": str((VALUES["when"] - _time(0)) // timedelta(microseconds=1)),
        "local": "9999-12-31T23:59:59.999999",
        "day": "0001-01-01",
        "small": "12345678901234567890123456789.000000001",
        "wide": "-1234567890.123456789012345678",
        "raw": "AP8=",
    }
    assert {name for name, value in zip(columns, second, strict=True) if value} == set()


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"tags": None}, "null-in-array", "column 'tags' is null, and an ARRAY"),
        ({"tags": ["a", None]}, "null-in-array", "column 'tags' holds a null"),
        ({"inners": [None]}, "null-in-array", "column 'inners' holds a null"),
    ],
)
def test_a_row_with_a_value_that_would_change_is_a_dead_letter(
    of_every_type, changes, reason, detail
):
    target, driver, writer = of_every_type
    rows, _ = event_table(VALUES, VALUES | changes, VALUES)
    rejected = [(each.index, each.reason, each.detail) for each in writer.write(rows)]
    assert rejected == [(1, reason, detail)]
    assert driver.commit(writer.close(), batch(0), 0).rows == 2
    assert len(target.cells()) == 2


def test_a_time_beyond_the_years_of_bigquery_is_a_dead_letter(target):
    columns = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), *_NESTED])
    sink = target.open(columns)
    first, last = -719_162, 2_932_896
    us = 86_400_000_000
    values = {
        "day": [first - 1, first, last, last + 1, 0, 0, None, 0],
        "at": [0, first * us, (last + 1) * us - 1, 0, first * us - 1, (last + 1) * us, 0, 0],
    }
    nested = [{"days": []}] * 7 + [{"days": [0, first - 1]}]
    arrays = [
        pa.array(values["day"], pa.int32()).cast(pa.date32()),
        pa.array(values["at"], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([{"days": each["days"]} for each in nested], _INT_DAYS).cast(_NESTED[0][1]),
    ]
    writer = sink.writers("a" * 32)
    rejected = writer.write(pa.table(arrays, schema=columns))
    assert [(each.index, each.reason) for each in rejected] == [
        (place, "wrong-value") for place in (0, 3, 4, 5, 7)
    ]
    detail = "column 'nested'.days, in a list, has a time outside the years 1 to 9999"
    assert rejected[-1].detail == detail


_NESTED = [("nested", pa.struct([("days", pa.list_(pa.date32()))]))]
_INT_DAYS = pa.struct([("days", pa.list_(pa.int32()))])


def test_json_has_no_nan(target):
    kind = pa.map_(pa.string(), pa.list_(pa.float64()))
    columns = pa.schema([("at", pa.timestamp("us", "UTC")), ("m", kind)])
    writer = target.open(columns).writers("a" * 32)
    maps = [[("a", [1.0])], [("a", [float("nan")])], None, [("a", [None, float("inf")])]]
    rejected = writer.write(
        pa.table([pa.array([None] * 4, columns[0].type), pa.array(maps, kind)], schema=columns)
    )
    assert [(each.index, each.reason) for each in rejected] == [
        (1, "wrong-value"),
        (3, "wrong-value"),
    ]


def test_rows_of_any_size_are_sent_in_requests_that_servers_take(target):
    """The stand-in takes 4 MB a request, as servers of gRPC do by default."""
    driver = target.open()
    writer = driver.writers("a" * 32)
    rows = [row(n, "x" * (2_500_000 if n == 7 else 1_000 * (n % 50))) for n in range(300)]
    rejected = writer.write(table([*rows[:9], row(999, "x" * 9_500_000), *rows[9:]]))
    assert [(each.index, each.reason) for each in rejected] == [(9, "row-too-large")]
    driver.commit(writer.close(), batch(0), 0)
    assert {each["id"]: len(each["name"]) for each in target.rows()} == {
        each["id"]: len(each["name"]) for each in rows
    }


def test_a_pipeline_writes_each_event_once_repeated_and_without_its_checkpoint(
    bigquery, broker, spark, tmp_path
):
    """The pipeline of the page."""
    flow = Flow(broker, spark, tmp_path)
    flow.sinks = {"bigquery": bigquery.settings}
    [block, *_] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"impressions": flow.topic}
    exec(compile(block, PAGE.name, "exec"), names)
    pipeline = names["impressions_to_bigquery"]
    name, table_name = pipeline.name, pipeline.sink.table

    def run(count, times=1):
        outcome = flow.run(pipeline)[name]
        assert outcome.state is State.FINISHED, outcome.reason
        sql = f"SELECT event_id, COUNT(*) FROM {table_name} GROUP BY event_id"
        counts = {event_id: int(rows) for event_id, rows in bigquery.query(sql)}
        assert counts == dict.fromkeys((f"e{n}" for n in range(count)), times)
        return outcome

    flow.send([click(n) for n in range(500)] + [b"not json"])
    outcome = run(500)
    assert (outcome.rows_out, outcome.dead_letters) == (500, 1)
    flow.forget_newest_commit(name)
    flow.send([click(n) for n in range(500, 600)])
    run(600)
    shutil.rmtree(flow.checkpoint(name).parent)
    flow.reset(pipeline, "table")
    flow.send([click(n) for n in range(600, 650)])
    run(650)
    flow.reset(pipeline, "earliest")
    run(650, times=2)
