"""The sink for OpenSearch under its contract, on a real server; and what is its alone."""

import json
import math
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.integration.http_proxy import FaultyProxy
from tests.integration.opensearch_server import SCARCE, OpenSearchServer

from headrace import OpenSearch, Unique, WriteMode
from headrace.errors import SinkError, SinkUnavailableError, TableMismatchError
from headrace.model import EventField, FieldType
from headrace.runtime.servers.ports import free_ports
from headrace.settings import Secret
from headrace.sinks.api import SinkContext, Transaction
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import NOON, batch, row, schema, table

UTC_TIME = pa.timestamp("us", "UTC")


@pytest.fixture
def index():
    """A name that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


def context_of(server, **changes):
    return SinkContext("p", "unused", {}, {"url": Secret(server.url)}, event_time="at", **changes)


def lab_of(server, sink, **changes):
    def read():
        documents = server.documents(f"{sink.index}*").values()
        return [values | {"at": datetime.fromisoformat(values["at"])} for values in documents]

    return SinkLab(sink, context_of(server), read, **changes)


BY_ID = Unique(by=["id"])


class TestAppend(SinkContract):
    @pytest.fixture
    def lab(self, opensearch, index):
        sink = OpenSearch(index, unique=BY_ID)
        return lab_of(opensearch, sink, bad_row=row(9, "x" * 40_000))


@pytest.fixture(scope="module")
def opensearch_2(tmp_path_factory, stop_at_end):
    """An OpenSearch of release 2 for this module."""
    server = OpenSearchServer(tmp_path_factory.mktemp("opensearch"), "opensearch-2", SCARCE)
    stop_at_end(server.folder)
    server.run()
    yield server
    server.kill()


@pytest.mark.drill
class TestAppendIntoRelease2(SinkContract):
    @pytest.fixture
    def lab(self, opensearch_2, index):
        sink = OpenSearch(index, unique=BY_ID, index_by="day")
        return lab_of(opensearch_2, sink, bad_row=row(9, "x" * 40_000))


@pytest.mark.drill
class TestUpsertIntoRelease2(SinkContract):
    @pytest.fixture
    def lab(self, opensearch_2, index):
        sink = OpenSearch(index, mode=WriteMode.UPSERT, key=("id",), newest_by="at")
        return lab_of(opensearch_2, sink, bad_row={**row(9), "at": None})


@pytest.mark.drill
class TestDataStreamOfRelease2(SinkContract):
    @pytest.fixture
    def lab(self, opensearch_2, index):
        sink = OpenSearch(index, unique=BY_ID, data_stream=True)
        return lab_of(opensearch_2, sink, bad_row={**row(9), "at": None})


class TestDataStream(SinkContract):
    @pytest.fixture
    def lab(self, opensearch, index):
        sink = OpenSearch(index, unique=BY_ID, data_stream=True)
        return lab_of(opensearch, sink, bad_row={**row(9), "at": None})


class TestByDay(SinkContract):
    @pytest.fixture
    def lab(self, opensearch, index):
        sink = OpenSearch(index, unique=BY_ID, index_by="day")
        return lab_of(opensearch, sink, bad_row={**row(9), "at": None})


class TestUpsert(SinkContract):
    @pytest.fixture
    def lab(self, opensearch, index):
        sink = OpenSearch(index, mode=WriteMode.UPSERT, key=("id",), newest_by="at")
        early = {**row(9), "at": datetime(1969, 1, 1, tzinfo=UTC)}
        return lab_of(opensearch, sink, bad_row=early)


EVERY_TYPE = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("small", pa.int32()),
        ("price", pa.float64()),
        ("exact", pa.decimal128(38, 18)),
        ("is_new", pa.bool_()),
        ("at", UTC_TIME),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("more", pa.string()),
        ("repo", pa.struct([("name", pa.string()), ("stars", pa.int64()), ("key", pa.binary())])),
        ("tags", pa.list_(pa.string())),
        ("times", pa.list_(UTC_TIME)),
        ("prices", pa.map_(pa.string(), pa.float64())),
    ]
)
ANY = {"more": EventField("more", FieldType.JSON, nullable=True)}


def rows_of(columns, *rows):
    return pa.Table.from_pylist([dict(values) for values in rows], columns)


def opened(server, sink, columns, **changes):
    return sink.open(context_of(server, **changes), columns)


def write(driver, rows):
    """What becomes of the rows of a task: those that are rejected, and its counts."""
    writer = driver.writers(uuid.uuid4().hex)
    rejected = writer.write(rows)
    return list(rejected), writer.close()


def test_values_are_kept_as_they_are(opensearch, index):
    text = 'ż"ó\n\0\u2028😀'
    values = {
        "id": text,
        "n": 2**63 - 1,
        "small": -(2**31),
        "price": -0.0,
        "exact": Decimal("12345678901234567890.123456789012345678"),
        "is_new": False,
        "at": datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        "day": date(9999, 12, 31),
        "raw": b"\0\xff",
        "more": '{"b.c": [1,\n 12345678901234567890123, 1.10], "": null}',
        "repo": {"name": text, "stars": 2**53 + 1, "key": b"\xfe"},
        "tags": ["a", None, ""],
        "times": [datetime(2038, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)],
        "prices": [("a.b", 0.1), ("", None)],
    }
    empty = dict.fromkeys(EVERY_TYPE.names) | {"id": "empty"}
    sink = OpenSearch(index, unique=BY_ID)
    driver = opened(opensearch, sink, EVERY_TYPE, fields=ANY)
    assert write(driver, rows_of(EVERY_TYPE, values, empty))[0] == []
    documents = opensearch.documents(index, parse_float=str, parse_int=str)
    assert documents == {
        text: {
            "id": text,
            "n": "9223372036854775807",
            "small": "-2147483648",
            "price": "-0.0",
            "exact": "12345678901234567890.123456789012345678",
            "is_new": False,
            "at": "0001-01-01T00:00:00.000001+00:00",
            "day": "9999-12-31",
            "raw": "AP8=",
            "more": {"b.c": ["1", "12345678901234567890123", "1.10"], "": None},
            "repo": {"name": text, "stars": "9007199254740993", "key": "/g=="},
            "tags": ["a", None, ""],
            "times": ["2038-01-01T00:00:00.999999+00:00"],
            "prices": {"a.b": "0.1", "": None},
        },
        "empty": empty,
    }


def test_what_json_does_not_have_is_rejected_by_its_column(opensearch, index):
    nested = pa.schema(
        [
            ("id", pa.int64()),
            ("list", pa.list_(pa.float64())),
            ("map", pa.map_(pa.string(), pa.struct([("x", pa.float32())]))),
            ("numbered", pa.map_(pa.int64(), pa.binary())),
            ("more", pa.string()),
        ]
    )
    driver = opened(opensearch, OpenSearch(index, unique=BY_ID), nested, fields=ANY)
    rows = rows_of(
        nested,
        {"id": 1, "list": [1.0], "map": [("a", {"x": 0.5})], "more": "[1]"},
        {"id": 2, "list": [1.0, math.nan]},
        {"id": 3, "list": [], "map": [("a", {"x": 1.0}), ("b", {"x": -math.inf})]},
        {"id": 4, "more": "{"},
        {"id": 5, "numbered": [(7, b"a")]},
    )
    rejected, _ = write(driver, rows)
    assert [(row.index, row.reason, row.detail) for row in rejected] == [
        (1, "wrong-value", "column 'list' has NaN or infinity, which JSON lacks"),
        (2, "wrong-value", "column 'map' has NaN or infinity, which JSON lacks"),
        (3, "wrong-value", "column 'more' has a text that is not one JSON value"),
    ]
    documents = opensearch.documents(index)
    assert sorted(documents) == ["1", "5"]
    assert documents["5"]["numbered"] == {"7": "YQ=="}


def test_ids_are_told_apart_whatever_is_in_them(opensearch, index):
    columns = pa.schema([("a", pa.string()), ("b", pa.string()), ("at", UTC_TIME)])
    driver = opened(opensearch, OpenSearch(index, unique=Unique(by=["a", "b"])), columns)
    pairs = [("x", "y"), ('x","', "y"), ("x", '","y'), ("", ""), (None, "y"), ("x", "z" * 600)]
    rejected, _ = write(driver, rows_of(columns, *({"a": a, "b": b} for a, b in pairs)))
    assert [(row.index, row.reason) for row in rejected] == [
        (4, "missing-value"),
        (5, "bad-key"),
    ]
    expected = [json.dumps(pair, separators=(",", ":")) for pair in pairs[:4]]
    assert sorted(opensearch.documents(index)) == sorted(expected)


def test_an_event_is_one_document_until_its_topic_is_made_again(opensearch, index):
    columns = pa.schema(
        [
            ("id", pa.int64()),
            ("_topic_id", pa.string()),
            ("_partition", pa.int32()),
            ("_offset", pa.int64()),
            ("_event_index", pa.int32()),
        ]
    )
    driver = opened(opensearch, OpenSearch(index), columns)
    places = [("t", 0, 7, None), ("t", 0, 8, 0), ("t", 0, 8, 1), ("t", 1, 7, None)]
    rows = rows_of(columns, *(dict(zip(columns.names, (1, *at), strict=True)) for at in places))
    for _ in range(2):
        write(driver, rows)
    again = rows.set_column(1, "_topic_id", pa.array(["u"] * 4))
    write(driver, again)
    names = ["0:7", "0:8:0", "0:8:1", "1:7"]
    assert sorted(opensearch.documents(index)) == [f"{id_}:{at}" for id_ in "tu" for at in names]


@pytest.mark.parametrize(
    ("index_by", "names"),
    [
        ("hour", ["2026.11.30.23", "2026.12.01.00"]),
        ("day", ["2026.11.30", "2026.12.01"]),
        ("month", ["2026.11", "2026.12"]),
    ],
)
def test_a_row_that_is_read_again_goes_into_the_index_of_its_time(
    opensearch, index, index_by, names
):
    sink = OpenSearch(index, unique=BY_ID, index_by=index_by)
    last = datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC)
    rows = [{**row(number), "at": last + timedelta(microseconds=number)} for number in (0, 1)]
    for _ in range(2):
        assert write(opened(opensearch, sink, schema()), table(rows))[0] == []
    for number, name in enumerate(names):
        assert list(opensearch.documents(f"{index}-{name}")) == [str(number)]


def test_the_newest_row_of_a_key_stays_in_whatever_order_they_come(opensearch, index):
    sink = OpenSearch(index, mode=WriteMode.UPSERT, key=("id",), newest_by="at")
    driver = opened(opensearch, sink, schema())

    def figures(*rows):
        pieces = write(driver, table(rows))[1]
        return driver.commit(pieces, Transaction({"app": len(seen)}, {}), 0).figures

    def at(name, minutes):
        return {**row(1, name), "at": NOON + timedelta(minutes=minutes)}

    seen = []
    for rows, name, older in [
        ([at("b", 2), at("a", 1)], "b", 1),
        ([at("old", 1)], "b", 1),
        ([at("c", 2)], "c", 0),
        ([at("d", 3), at("e", 3)], "e", 1),
        ([at("late", 0), at("f", 4)], "f", 1),
    ]:
        seen.append(name)
        assert figures(*rows)["opensearch_older_rows"] == older
        assert opensearch.documents(index)["1"]["name"] == name


def test_rows_of_newer_code_are_reprocessed_beside_the_pipeline(opensearch, index):
    sink = OpenSearch(index, mode=WriteMode.UPSERT, key=("id",), newest_by="at")
    context = context_of(opensearch)
    live = sink.open(context, schema())
    live.commit(write(live, table([row(1, "old"), row(2, "newest")]))[1], batch(0), 0)
    assert sink.reprocessing_fault(None, None) is None
    driver = sink.open_to_reprocess(context, schema(), None)
    older = {**row(2, "older"), "at": NOON}
    pieces = write(driver, table([row(1, "new"), older]))[1]
    live.commit([], batch(1), 0)
    part = Transaction({"app reprocess": 1}, {"app reprocess": None})
    assert driver.commit(pieces, part, 0).is_new
    assert live.commit([], batch(2), 0).is_new
    names = {id_: values["name"] for id_, values in opensearch.documents(index).items()}
    assert names == {"1": "new", "2": "newest"}
    assert "exist" in OpenSearch(index).reprocessing_fault(None, None).message


def test_one_bad_row_in_a_thousand_is_named_and_the_others_go_in(opensearch, index):
    opensearch.call(
        "PUT",
        index,
        {"mappings": {"properties": {"name": {"type": "ip"}, "id": {"type": "long"}}}},
    )
    driver = opened(opensearch, OpenSearch(index, unique=BY_ID), schema())
    rows = [row(n, "not one" if n % 1_000 == 500 else "10.0.0.1") for n in range(5_000)]
    rejected, pieces = write(driver, table(rows))
    assert [rejection.index for rejection in rejected] == [500, 1_500, 2_500, 3_500, 4_500]
    assert {(rejection.reason, rejection.detail) for rejection in rejected} == {
        (
            "wrong-value",
            "field 'name' is ip, and the row has string: 'not one' is not an IP string literal.",
        )
    }
    assert driver.commit(pieces, batch(0), 0).rows == 4_995
    assert opensearch.count(index) == 4_995


def test_what_the_server_is_too_busy_for_is_sent_again_until_it_is_there(opensearch, index):
    sink = OpenSearch(index, unique=BY_ID)
    sink.apply(context_of(opensearch), schema())
    name = f"_index_template/headrace-{index}"
    [known] = opensearch.call("GET", name)["index_templates"]
    known["index_template"]["template"]["settings"] = {"number_of_shards": 5}
    opensearch.call("PUT", name, known["index_template"])
    opensearch.call("DELETE", index)
    driver = opened(opensearch, sink, schema())
    assert (
        opensearch.call("GET", f"{index}/_settings")[index]["settings"]["index"]["number_of_shards"]
        == "5"
    )
    rejected, pieces = write(driver, table([row(n, "x" * 500) for n in range(5_000)]))
    done = driver.commit(pieces, batch(0), 0)
    assert (rejected, opensearch.count(index)) == ([], 5_000)
    assert done.figures["opensearch_resent_rows"] > 0
    assert (done.rows, done.figures["opensearch_repeated_rows"]) == (5_000, 0)


def test_bulks_are_made_as_small_as_the_server_takes_them(opensearch, index):
    driver = opened(opensearch, OpenSearch(index, unique=BY_ID, text=("name",)), schema())
    rows = [row(n, "word " * 10_000) for n in range(60)]
    rows[7] = row(7, "word " * 300_000)
    rejected, _ = write(driver, table(rows))
    assert [(rejection.index, rejection.reason) for rejection in rejected] == [(7, "row-too-large")]
    assert opensearch.count(index) == 59


def test_a_blocked_index_is_waited_for_with_its_name(opensearch, index):
    driver = opened(opensearch, OpenSearch(index, unique=BY_ID), schema())
    impatient = replace(driver.writers, max_wait_seconds=0.0)
    blocks = [("write", f"403 cluster_block_exception: index [{index}] blocked by")]
    blocks += [("read_only_allow_delete", f"429 cluster_block_exception: index [{index}] blocked")]
    for block, reason in blocks:
        opensearch.call("PUT", f"{index}/_settings", {f"index.blocks.{block}": True})
        with pytest.raises(SinkUnavailableError, match=re.escape(reason)):
            impatient("a" * 32).write(table([row(1)]))
        opensearch.call("PUT", f"{index}/_settings", {f"index.blocks.{block}": None})
    opensearch.call("POST", f"{index}/_close")
    with pytest.raises(SinkUnavailableError, match="400 index_closed_exception: closed"):
        impatient("a" * 32).write(table([row(1)]))
    opensearch.call("POST", f"{index}/_open")
    assert write(driver, table([row(1)]))[0] == []
    assert list(opensearch.documents(index)) == ["1"]


@pytest.fixture
def proxy(opensearch):
    proxy = FaultyProxy(opensearch.url, lambda *_: False)
    yield proxy
    proxy.close()


def test_answers_that_are_lost_repeat_nothing(opensearch, index, proxy):
    losses = iter([True, False, True])
    proxy.lose_answer = lambda _, path: "_bulk" in path and next(losses, False)
    settings = {"url": Secret(proxy.endpoint)}
    context = SinkContext("p", "unused", {}, settings, event_time="at")
    driver = OpenSearch(index, unique=BY_ID).open(context, schema())
    assert write(driver, table([row(n) for n in range(100)]))[0] == []
    assert write(driver, table([row(n) for n in range(50, 150)]))[0] == []
    assert len(proxy.lost) == 2
    assert opensearch.count(index) == 150


def test_a_position_whose_answer_is_lost_is_read_again(opensearch, index, proxy):
    settings = {"url": Secret(proxy.endpoint)}
    context = SinkContext("p", "unused", {}, settings, event_time="at")
    driver = OpenSearch(index, unique=BY_ID).open(context, schema())
    losses = iter([True, False, True])
    proxy.lose_answer = lambda method, path: (
        method == "PUT" and "_doc" in path and next(losses, False)
    )
    assert driver.commit([], batch(0), 0).is_new
    assert driver.commit([], batch(1), 0).is_new
    assert dict(driver.positions.versions(["app"])) == {"app": 1}
    assert len(proxy.lost) == 1
    assert driver.commit([], batch(2), 0).is_new
    assert not driver.commit([], batch(2), 0).is_new
    assert len(proxy.lost) == 2


@pytest.mark.parametrize(
    ("theirs", "outcome"),
    [
        (batch(0), nullcontext()),
        (Transaction({"app": 7}, {"app": None}), pytest.raises(SinkError, match="another driver")),
    ],
)
def test_what_another_driver_commits_in_between_is_seen(opensearch, index, proxy, theirs, outcome):
    """The same batch is there once; where it is another one, the commit fails."""
    context = context_of(opensearch)
    others = OpenSearch(index, unique=BY_ID).open(context, schema())

    def commit_between(method, path):
        if method == "PUT" and "_doc" in path and others.positions.versions(["app"]) == {}:
            assert others.commit([], theirs, 0).is_new
        return False

    proxy.lose_answer = commit_between
    settings = {"url": Secret(proxy.endpoint)}
    driver = OpenSearch(index, unique=BY_ID).open(replace(context, settings=settings), schema())
    with outcome:
        assert not driver.commit([], batch(0), 0).is_new
    assert others.positions.versions(["app"]) == theirs.versions


@pytest.mark.parametrize(
    ("at", "theirs", "outcome"),
    [
        # Theirs comes first, and the answer that ours conflicts with it is lost.
        ("PUT", batch(0), nullcontext(False)),
        # Ours is recorded without an answer, and theirs after it.
        ("GET", batch(0), nullcontext(True)),
        ("GET", Transaction({"reprocess": 1}, {"reprocess": None}), nullcontext(False)),
        ("GET", batch(1), pytest.raises(SinkError, match="another driver has recorded other")),
    ],
)
def test_another_driver_beside_a_lost_answer_doubles_no_row(
    opensearch, index, proxy, at, theirs, outcome
):
    """A batch that is recorded is refused only where the other driver is at another one."""
    sink, context = OpenSearch(index, unique=BY_ID), context_of(opensearch)
    others, rows = sink.open(context, schema()), table([row(1), row(2)])
    driver = sink.open(replace(context, settings={"url": Secret(proxy.endpoint)}), schema())
    pieces = [write(writing, rows)[1] for writing in (driver, others)]
    asked = []

    def lose_first(method, path):
        if "/_doc/" in path:
            asked.append(method)
            if asked in (["GET", "PUT"], ["GET", "PUT", "GET"]) and method == at:
                others.commit(pieces[1], theirs, 0)
        return asked == ["GET", "PUT"]

    proxy.lose_answer = lose_first
    with outcome as is_new:
        done = driver.commit(pieces[0], batch(0), 0)
        assert (done.is_new, done.rows) == (is_new, 2)
    assert len(proxy.lost) == 1
    proxy.lose_answer = lambda *_: False
    restarted = sink.open(context, schema())
    number = restarted.positions.versions(["app"])["app"]
    assert restarted.commit(write(restarted, rows)[1], batch(number + 1), 0).is_new
    assert sorted(opensearch.documents(index)) == ["1", "2"]


def test_an_index_that_is_another_one_than_before_is_refused_until_a_reset(opensearch, index):
    sink, context = OpenSearch(index, unique=BY_ID), context_of(opensearch)
    driver = sink.open(context, schema())
    driver.commit(write(driver, table([row(1)]))[1], batch(0), 0)
    opensearch.call("DELETE", index)
    pieces = write(driver, table([row(2)]))[1]
    with pytest.raises(SinkError, match="recreated, restored or replaced while rows were written"):
        driver.commit(pieces, batch(1), 0)
    again = sink.open(context, schema())
    pieces = write(again, table([row(2)]))[1]
    with pytest.raises(TableMismatchError, match="rows of earlier batches may be gone"):
        again.commit(pieces, batch(1), 0)
    assert again.commit(pieces, replace(batch(1), begins_elsewhere=True), 0).is_new
    assert again.commit([], batch(2), 0).is_new


@pytest.mark.parametrize(
    "server", ["opensearch", pytest.param("opensearch_2", marks=pytest.mark.drill)]
)
def test_an_index_that_was_restored_while_closed_is_refused_and_a_reopened_one_is_not(
    request, server, index
):
    server = request.getfixturevalue(server)
    sink, context = OpenSearch(index, unique=BY_ID), context_of(server)
    snapshot = f"_snapshot/{index}/first"
    driver = sink.open(context, schema())
    driver.commit(write(driver, table([row(1)]))[1], batch(0), 0)
    repository = {"type": "fs", "settings": {"location": f"snapshots-{index}"}}
    server.call("PUT", f"_snapshot/{index}", repository)
    server.call("PUT", f"{snapshot}?wait_for_completion=true", {"indices": index})
    server.call("POST", f"{index}/_close")
    server.call("POST", f"{index}/_open")
    assert driver.commit(write(driver, table([row(2)]))[1], batch(1), 0).is_new
    # The second time, the index has been restored before.
    for number in (2, 4):
        server.call("POST", f"{index}/_close")
        restored = f"{snapshot}/_restore?wait_for_completion=true"
        server.call("POST", restored, {"indices": index, "include_global_state": False})
        assert server.documents(index).keys() == {"1"}
        with pytest.raises(SinkError, match="restored or replaced while rows were written"):
            driver.commit([], batch(number), 0)
        driver = sink.open(context, schema())
        with pytest.raises(TableMismatchError, match="rows of earlier batches may be gone"):
            driver.commit([], batch(number), 0)
        assert driver.commit([], replace(batch(number), begins_elsewhere=True), 0).is_new
        assert driver.commit([], batch(number + 1), 0).is_new
    server.call("DELETE", f"_snapshot/{index}")


def test_another_node_is_asked_where_one_does_not_answer(opensearch, index):
    [port] = free_ports(1)
    settings = {"url": Secret(f"http://127.0.0.1:{port}, {opensearch.url}/")}
    context = SinkContext("p", "unused", {}, settings, event_time="at")
    driver = OpenSearch(index, unique=BY_ID).open(context, schema())
    assert write(driver, table([row(1)]))[0] == []
    settings = {"url": Secret(f"http://127.0.0.1:{port}")}
    with pytest.raises(SinkUnavailableError, match=f"127.0.0.1:{port}.*refused"):
        OpenSearch(index).changes(replace(context, settings=settings), schema())


def test_plan_shows_what_apply_changes_and_refuses_what_needs_another_index(opensearch, index):
    sink, context = OpenSearch(index, unique=BY_ID, index_by="day"), context_of(opensearch)
    template = f"index template headrace-{index}"
    assert sink.changes(context, schema()) == [f"gets {template}"]
    assert sink.apply(context, schema()) == [f"gets {template}"]
    assert sink.changes(context, schema()) == []
    write(sink.open(context, schema()), table([row(1)]))
    day = f"{index}-2019.11.24"
    wider = schema().append(pa.field("repo", pa.struct([("stars", pa.int64())])))
    expected = [f"gets repo.stars in {template}", f"gets repo.stars in index {day}"]
    assert sink.changes(context, wider) == expected
    assert sink.apply(context, wider) == expected
    assert sink.changes(context, wider) == []
    other = schema().set(1, pa.field("name", pa.int64()))
    reason = f"field 'name' is keyword, and the rows need long (index {day})"
    for refused in (sink.changes, sink.apply, sink.open):
        with pytest.raises(TableMismatchError, match=re.escape(reason)):
            refused(context, other)
    opensearch.call("DELETE", day)
    assert sink.apply(context, other) == [f"gets its patterns and fields in {template}"]


def test_indices_of_another_name_are_left_alone(opensearch, index):
    other = {"mappings": {"properties": {"id": {"type": "keyword"}}}}
    for name in (f"{index}-eu-2019.11.24", f"{index}-2019.11", f"{index}-x"):
        opensearch.call("PUT", name, other)
    driver = opened(opensearch, OpenSearch(index, unique=BY_ID, index_by="day"), schema())
    assert write(driver, table([row(1)]))[0] == []
    more = OpenSearch(f"{index}-eu", unique=BY_ID, index_by="month")
    assert write(opened(opensearch, more, schema()), table([row(2)]))[0] == []
    assert list(opensearch.documents(f"{index}-eu-2019.11")) == ["2"]
    # Names of its indices match the patterns of both.
    longer = OpenSearch(f"{index}-2019", unique=BY_ID, index_by="day")
    for columns in (schema().append(pa.field("a", pa.int64())), schema()):
        opened(opensearch, longer, columns)


def test_pipelines_with_other_fields_share_indices_that_are_made_later(opensearch, index):
    sink = OpenSearch(index, unique=BY_ID, index_by="day")
    template = f"_index_template/headrace-{index}"
    fields = {name: schema().append(pa.field(name, pa.int64())) for name in ("a", "b")}
    drivers = {name: opened(opensearch, sink, columns) for name, columns in fields.items()}

    def written(name, number):
        rows = rows_of(fields[name], row(number) | {name: number})
        return replace(drivers[name].writers, max_wait_seconds=0.0)("x" * 32).write(rows)

    assert [written(name, number) for number, name in enumerate(fields)] == [[], []]
    assert sink.changes(context_of(opensearch), fields["a"]) == []
    [known] = opensearch.call("GET", template)["index_templates"]
    there = known["index_template"]["template"]["mappings"]["properties"]
    assert there.keys() == {*schema().names, "a", "b"}
    # An index that something else has made lacks a field until the next start.
    for path in (template, f"{index}-2019.11.24"):
        opensearch.call("DELETE", path)
    strict = {"dynamic": "strict", "properties": {"id": {"type": "long"}}}
    opensearch.call("PUT", f"{index}-2019.11.24", {"mappings": strict})
    with pytest.raises(SinkUnavailableError, match="dynamic introduction of"):
        written("a", 2)
    drivers["a"] = opened(opensearch, sink, fields["a"])
    assert written("a", 2) == []


def test_a_template_by_which_the_server_would_guess_fields_becomes_strict(opensearch, index):
    sink, context = OpenSearch(index, unique=BY_ID, index_by="day"), context_of(opensearch)
    sink.apply(context, schema())
    template = f"_index_template/headrace-{index}"
    [known] = opensearch.call("GET", template)["index_templates"]
    theirs = known["index_template"]
    theirs["template"]["settings"] = {"number_of_shards": 2}
    theirs["template"]["mappings"]["dynamic"] = True
    opensearch.call("PUT", template, theirs)
    expected = [f"gets dynamic: strict in index template headrace-{index}"]
    assert sink.changes(context, schema()) == expected
    assert sink.apply(context, schema()) == expected
    assert sink.changes(context, schema()) == []
    assert write(opened(opensearch, sink, schema()), table([row(1)]))[0] == []
    day = f"{index}-2019.11.24"
    with pytest.raises(AssertionError, match="strict_dynamic_mapping_exception"):
        opensearch.call("PUT", f"{day}/_doc/2", {"guessed": 1})
    settings = opensearch.call("GET", f"{day}/_settings")[day]["settings"]
    assert settings["index"]["number_of_shards"] == "2"


@pytest.mark.parametrize("declared", [{}, {"index_by": "day"}, {"data_stream": True}])
def test_a_server_guesses_no_fields_where_an_operators_template_matches_too(
    opensearch, index, declared
):
    theirs = {"index_patterns": [f"{index}*"], "priority": 500}
    if "data_stream" in declared:
        theirs["data_stream"] = {}
    opensearch.call("PUT", f"_index_template/{index}", theirs)
    sink, context = OpenSearch(index, unique=BY_ID, **declared), context_of(opensearch)
    sink.apply(context, schema())
    assert sink.changes(context, schema()) == []
    driver = sink.open(context, schema())
    assert write(driver, table([row(1)]))[0] == []
    [known] = opensearch.call("GET", f"{index}*/_mapping").values()
    assert known["mappings"]["dynamic"] == "strict"
    # It is changed while the pipeline runs, and the next index is not there yet.
    opensearch.call("PUT", f"_index_template/{index}", theirs | {"priority": 900})
    changes = [f"gets priority 901 in index template headrace-{index}"]
    assert sink.changes(context, schema()) == changes
    opensearch.call("DELETE", f"_data_stream/{index}" if sink.data_stream else f"{index}*")
    reason = (
        f"index template {index} counts for it, and not headrace-{index}, whose priority is 501"
    )
    with pytest.raises(SinkError, match=reason):
        write(driver, table([row(1)]))
    assert opensearch.documents(f"{index}*") == {}
    assert write(sink.open(context, schema()), table([row(1)]))[0] == []
    opensearch.call("DELETE", f"_index_template/{index}")


@pytest.mark.parametrize("declared", [{"index_by": "day"}, {"data_stream": True}])
def test_a_server_guesses_no_fields_where_index_and_template_are_deleted(
    opensearch, index, declared
):
    sink = OpenSearch(index, unique=BY_ID, **declared)
    driver = opened(opensearch, sink, schema())
    write(driver, table([row(1)]))
    path = f"_data_stream/{index}" if sink.data_stream else f"{index}-2019.11.24"
    # Without its index, the template is enough.
    opensearch.call("DELETE", path)
    assert write(driver, table([row(1)]))[0] == []
    opensearch.call("DELETE", path)
    opensearch.call("DELETE", f"_index_template/headrace-{index}")
    with pytest.raises(SinkError, match="was deleted; the next start puts it"):
        write(driver, table([row(1)]))
    assert opensearch.documents(f"{index}*") == {}
    assert write(opened(opensearch, sink, schema()), table([row(1)]))[0] == []
    assert opensearch.documents(f"{index}*").keys() == {"1"}


@pytest.mark.parametrize(("theirs", "pattern"), [(None, ""), ("hour", "-0*.*.*.*")])
def test_a_server_guesses_no_fields_where_the_template_is_that_of_another_index_by(
    opensearch, index, theirs, pattern
):
    sink = OpenSearch(index, unique=BY_ID, index_by="day")
    driver = opened(opensearch, sink, schema())
    opened(opensearch, OpenSearch(index, unique=BY_ID, index_by=theirs), schema())
    reason = (
        f"index {index}-2019.11.24'): index template headrace-{index} is for {index}{pattern}: "
        "another pipeline with another index_by"
    )
    with pytest.raises(SinkError, match=re.escape(reason)):
        write(driver, table([row(1)]))
    assert opensearch.documents(f"{index}*") == {}
    assert write(opened(opensearch, sink, schema()), table([row(1)]))[0] == []
    # An index that exists has its fields, whatever the template is.
    opened(opensearch, OpenSearch(index, unique=BY_ID, index_by=theirs), schema())
    assert write(driver, table([row(2)]))[0] == []


def test_an_old_index_that_is_read_only_hinders_no_start(opensearch, index):
    sink = OpenSearch(index, unique=BY_ID, index_by="day")
    write(opened(opensearch, sink, schema()), table([row(1)]))
    block = {"index.blocks.read_only": True}
    opensearch.call("PUT", f"{index}-2019.11.24/_settings", block)
    wider = schema().append(pa.field("a", pa.int64()))
    expected = [f"gets a in index template headrace-{index}"]
    assert sink.apply(context_of(opensearch), wider) == expected
    opensearch.call("PUT", f"{index}-2019.11.24/_settings", {"index.blocks.read_only": None})
    assert sink.apply(context_of(opensearch), wider) == [f"gets a in index {index}-2019.11.24"]


def test_pipelines_that_start_together_create_an_index_once(opensearch, index):
    sink = OpenSearch(index, unique=BY_ID)
    with ThreadPoolExecutor(4) as threads:
        drivers = list(threads.map(lambda _: opened(opensearch, sink, schema()), range(4)))
    assert write(drivers[0], table([row(1)]))[0] == []


def test_an_index_that_keeps_no_documents_is_refused(opensearch, index):
    opensearch.call("PUT", index, {"mappings": {"_source": {"enabled": False}}})
    with pytest.raises(TableMismatchError, match="keeps no documents as they are sent"):
        opened(opensearch, OpenSearch(index, unique=BY_ID), schema())


def test_a_row_of_a_data_stream_is_there_once_until_the_stream_rolls_over(opensearch, index):
    sink = OpenSearch(index, unique=BY_ID, data_stream=True)
    context, template = context_of(opensearch), f"index template headrace-{index}"
    expected = [f"gets {template}", "is created as a data stream"]
    assert sink.changes(context, schema()) == expected
    assert sink.apply(context, schema()) == expected
    assert sink.changes(context, schema()) == []
    driver = sink.open(context, schema())
    for repeated in (0, 1):
        pieces = write(driver, table([row(1)]))[1]
        done = driver.commit(pieces, batch(repeated), 0)
        assert done.figures["opensearch_repeated_rows"] == repeated
    [document] = opensearch.documents(index).values()
    assert document["@timestamp"] == document["at"]
    opensearch.call("POST", f"{index}/_rollover")
    assert write(driver, table([row(1)]))[0] == []
    assert opensearch.count(index) == 2
    # The index that is written to gets new fields, and those of the template come with it.
    wider = schema().append(pa.field("a", pa.int64()))
    [stream] = opensearch.call("GET", f"_data_stream/{index}")["data_streams"]
    newest = stream["indices"][-1]["index_name"]
    changes = [f"gets a in {template}", f"gets a in index {newest}"]
    assert sink.apply(context, wider) == changes
    opensearch.call("POST", f"{index}/_rollover")
    assert sink.changes(context, wider) == []


def test_what_is_no_data_stream_is_refused_and_an_index_is_none(opensearch, index):
    context, stream = context_of(opensearch), OpenSearch(index, unique=BY_ID, data_stream=True)
    opensearch.call("PUT", index)
    with pytest.raises(TableMismatchError, match="an index or an alias, and no data stream"):
        stream.open(context, schema())
    opensearch.call("DELETE", index)
    first = f".ds-{index}-000001"
    opensearch.call("PUT", first)
    with pytest.raises(TableMismatchError, match=f"{first}.* already exists: delete that index"):
        stream.open(context, schema())
    opensearch.call("DELETE", first)
    stream.open(context, schema())
    with pytest.raises(TableMismatchError, match="data_stream=True writes to a data stream"):
        OpenSearch(index, unique=BY_ID).open(context, schema())
    opensearch.call("DELETE", f"_data_stream/{index}")
    driver = OpenSearch(index, unique=BY_ID).open(context, schema())
    assert write(driver, table([row(1)]))[0] == []
    assert "@timestamp" not in opensearch.documents(index)["1"]


def test_an_alias_is_refused(opensearch, index):
    opensearch.call("PUT", f"{index}-000001", {"aliases": {index: {"is_write_index": True}}})
    with pytest.raises(TableMismatchError, match=f"an alias or a data stream, of {index}-000001"):
        OpenSearch(index, unique=BY_ID).open(context_of(opensearch), schema())
