"""Which server has a row: what ``check`` finds wrong, and which rows go where."""

import pyarrow as pa
import pytest

from headrace import ByServer, Count, Postgres, Secret, Stats, Unique, WriteMode
from headrace.errors import TableMismatchError
from headrace.model import FieldType
from headrace.sinks.api import DeclaredRows
from headrace.sinks.postgres.servers.writer import ServersWriter, check_rows, pieces_by_server

COLUMNS = {
    "account": FieldType.STRING,
    "id": FieldType.LONG,
    "n": FieldType.LONG,
    "at": FieldType.TIMESTAMP,
}
SHARDS = ByServer("account", {"acme": "eu", "globex": "ap"}, otherwise="us")


@pytest.mark.parametrize(
    ("server", "messages"),
    [
        (SHARDS, []),
        (ByServer("id", {7: "eu"}), []),
        (ByServer(7, {"acme": "eu"}), ["ByServer.field is 7"]),
        (ByServer("account", {}), ["ByServer.servers is {}"]),
        (ByServer("account", ["eu", "us"]), ["ByServer.servers is ['eu', 'us']"]),
        (ByServer("account", {"a": "e u"}), ["ByServer.servers: that of 'a' is 'e u'"]),
        (ByServer("account", {"a": None}), ["ByServer.servers: that of 'a' is ''"]),
        (ByServer("account", {"a": "eu"}, otherwise=5), ["ByServer.otherwise is 5"]),
        (ByServer("shop", {"a": "eu"}), ["ByServer.field: 'shop' is no column of the rows"]),
        (ByServer("at", {"a": "eu"}), ["ByServer.field: 'at' is timestamp"]),
        (
            ByServer("account", {7: "eu"}),
            ["ByServer.servers has other values than 'account', which is string"],
        ),
        (
            ByServer("id", {True: "eu"}),
            ["ByServer.servers has other values than 'id', which is long"],
        ),
    ],
)
def test_each_mistake_is_a_fault(server, messages):
    faults = list(Postgres("t", server=server).faults(DeclaredRows(COLUMNS, "at")))
    assert [fault.message for fault in faults] == messages
    assert all(fault.remedy for fault in faults)


def test_values_have_one_type_also_where_steps_hide_the_column():
    [fault] = Postgres("t", server=ByServer("x", {7: "eu", "a": "us"})).faults(
        DeclaredRows(None, None)
    )
    assert fault.message == "ByServer.servers has values that are neither all str nor all int"


@pytest.mark.parametrize(
    ("sink", "is_one"),
    [
        (Postgres("t", WriteMode.UPSERT, ("id",), "at", server=SHARDS), False),
        (Postgres("t", WriteMode.UPSERT, ("account", "id"), "at", server=SHARDS), True),
        (Postgres("t", WriteMode.ADD, ("id", "at", "account"), server=SHARDS), True),
        (Postgres("t", unique=Unique(["id"]), server=SHARDS), False),
        (Postgres("t", unique=Unique(["account", "id"]), server=SHARDS), True),
        (Postgres("t", server=SHARDS), True),
    ],
)
def test_rows_of_a_key_are_at_one_server(sink, is_one):
    faults = [fault.message for fault in sink.faults(DeclaredRows(COLUMNS, "at"))]
    expected = "Postgres.server divides by 'account', which is not in the key"
    assert faults == [expected] * (not is_one)


def test_all_its_servers_must_be_named_by_the_project():
    settings = {"eu.url": Secret("postgresql://eu/t"), "us.url": Secret("postgresql://us/t")}
    sink = Postgres("t", server=SHARDS)
    [fault] = sink.settings_faults(settings)
    assert fault.message == "Postgres.server is 'ap', and there is no [sinks.postgres.ap]"
    assert (sink.needed_settings, sink.label) == ((), "postgres t at ap, eu, us")
    assert sink.resolved_target(settings) == "public.t at ap, eu, us"


def test_two_pipelines_shard_a_table_in_one_way():
    sink, other = Postgres("t", server=SHARDS), Postgres("t", server=ByServer("n", {1: "eu"}, "us"))
    assert list(sink.faults_beside(sink)) == []
    [fault] = sink.faults_beside(other)
    assert fault.message.startswith("table 't' is declared with server=ByServer(")


def test_statistics_are_at_one_server():
    sink = Stats("t", by=(), every=None, measures={"n": Count()}, server=SHARDS)
    messages = [fault.message for fault in sink.faults(DeclaredRows(COLUMNS, "at"))]
    assert any(message.startswith("Stats.server is ByServer(") for message in messages)


def test_rows_of_several_servers_are_neither_counted_nor_written_again():
    sink = Postgres("t", WriteMode.UPSERT, ("account", "id"), "at", server=SHARDS)
    assert sink.reprocessing_fault(None, None).message.startswith("Postgres with several servers")
    assert not Postgres("t", server=SHARDS).tells_rows_apart


def test_another_map_has_another_number():
    same = ByServer("account", {"globex": "ap", "acme": "eu"}, otherwise="us")
    others = [
        ByServer("name", dict(SHARDS.servers), "us"),
        ByServer("account", {"acme": "eu"}, "us"),
        ByServer("account", dict(SHARDS.servers), "ap"),
        ByServer("account", dict(SHARDS.servers)),
    ]
    assert same.number == SHARDS.number
    assert len({SHARDS.number, *(other.number for other in others)}) == 5
    assert all(0 < other.number < 2**63 for other in others)


class Rows:
    """A writer that takes all rows."""

    def __init__(self, task_id):
        self.rows = []

    def write(self, rows):
        self.rows += rows["account"].to_pylist()
        return []

    def close(self):
        return [",".join(map(str, self.rows))]

    def abort(self):
        self.rows = None


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view()], ids=["text", "large", "view"]
)
@pytest.mark.parametrize("otherwise", [None, "us"])
def test_each_row_goes_to_its_server(kind, otherwise):
    sharding = ByServer("account", dict(SHARDS.servers), otherwise)
    accounts = ["acme", None, "globex", "other", "acme"]
    rows = pa.table({"account": pa.array(accounts, kind)})
    check_rows("t", sharding, rows.schema)
    writer = ServersWriter(dict.fromkeys(sharding.names, Rows), sharding, "0" * 32)
    rejected = writer.write(rows) + writer.write(rows.slice(0, 0))
    pieces = {"eu": ["acme,acme"], "ap": ["globex"]}
    if otherwise:
        assert rejected == []
        pieces["us"] = ["None,other"]
    else:
        assert [(row.index, row.reason) for row in rejected] == [(1, "no-server"), (3, "no-server")]
    assert pieces_by_server(writer.close()) == pieces


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_an_integer_has_a_server_too(kind):
    sharding = ByServer("account", {7: "eu"}, "us")
    rows = pa.table({"account": pa.array([7, 8, None], kind)})
    check_rows("t", sharding, rows.schema)
    writer = ServersWriter({"eu": Rows, "us": Rows}, sharding, "0" * 32)
    assert writer.write(rows) == []
    assert pieces_by_server(writer.close()) == {"eu": ["7"], "us": ["8,None"]}


def test_a_column_of_another_type_is_refused():
    rows = pa.schema([("account", pa.float64())])
    with pytest.raises(TableMismatchError, match="column 'account' of its rows is double"):
        check_rows("t", SHARDS, rows)
