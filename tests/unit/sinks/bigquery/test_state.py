"""The commit state of a pipeline by BigQuery's clock, and what an operator says of a batch."""

import base64
import json
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pytest
from google.api_core import exceptions
from google.cloud.bigquery_storage_v1.types import BatchCommitWriteStreamsResponse, WriteStream

from headrace import BigQuery
from headrace.errors import CommitUnknownError, SinkError, SinkUnavailableError, TableMismatchError
from headrace.settings import Secret
from headrace.sinks.api import DeclaredRows, SinkContext, Transaction
from headrace.sinks.bigquery.connection import TableAddress, Tables
from headrace.sinks.bigquery.state import (
    OUTCOME_LABEL,
    CommitState,
    Prepared,
    StateStore,
    state_address,
)
from headrace.sinks.bigquery.table import TableSpec, TargetTable

SCHEMA = pa.schema([("id", pa.int64())])


class Rest(ThreadingHTTPServer):
    """Tables by REST, as far as a commit state needs them, with a clock of its own."""

    def __init__(self, now):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.now, self.tables, self.etag, self.refuses_changes = now, {}, 0, False
        self.lost_answers, self.ignores_changes = 0, False
        self.answers_of_proxy = {}
        self.address = TableAddress("p", "d", "t", f"http://127.0.0.1:{self.server_port}")

    def put(self, path, resource):
        self.etag += 1
        self.tables[path] = resource | {"kind": "bigquery#table", "etag": str(self.etag)}
        return self.tables[path]

    def states(self, streams):
        return StateStore(Tables(self.address), streams, self.address, "p")

    def state(self):
        """What is kept of the pipeline."""
        resource = self.tables[state_address(self.address, "p").path]
        text = "".join(field["description"] for field in resource["schema"]["fields"])
        return msgspec.json.decode(zlib.decompress(base64.b85decode(text)))

    def say(self, outcome):
        path = state_address(self.address, "p").path
        self.put(path, self.tables[path] | {"labels": {OUTCOME_LABEL: outcome}})


class _Handler(BaseHTTPRequestHandler):
    server: Rest

    def do_GET(self):
        self._answer(self.server.tables.get(self._path))

    def do_POST(self):
        body = self._body()
        made = {"creationTime": str(self.server.etag)}
        table = body["tableReference"]["tableId"]
        path = f"{self._path}/{table}"
        is_new = path not in self.server.tables
        self._answer_change(self.server.put(path, body | made) if is_new else None, 409)

    def do_PATCH(self):
        there = self.server.tables[self._path]
        body = self._body()
        if self.server.refuses_changes:
            self._answer(None, 503)
        elif self.headers["If-Match"] != there["etag"]:
            self._answer(None, 412)
        else:
            body = {} if self.server.ignores_changes else body
            self._answer_change(self.server.put(self._path, there | body))

    @property
    def _path(self):
        return unquote(self.path).removeprefix("/bigquery/v2/")

    def _body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer_change(self, resource, status=404):
        self.server.lost_answers -= 1
        if self.server.lost_answers >= 0:
            self.close_connection = True
        else:
            self._answer(resource, status)

    def _answer(self, resource, status=404):
        status = status if resource is None else 200
        body = json.dumps(resource or {"error": {"code": status, "message": "no"}}).encode()
        status, body, date = self.server.answers_of_proxy.get(self._path, (status, body, None))
        self.send_response_only(status)
        self.send_header("Date", format_datetime(self.server.now, True) if date is None else date)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(params=[2020, 2100])
def rest(request):
    """Years before and after the clock of this machine."""
    server = Rest(datetime(request.param, 5, 1, 12, tzinfo=UTC))
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Gone:
    """Streams that BigQuery does not know."""

    def call(self, method, **fields):
        raise exceptions.NotFound("Requested entity was not found")


class Refused:
    """Streams that are known, and not committed."""

    state = WriteStream()

    def call(self, method, **fields):
        if method == "get_write_stream":
            return self.state
        return BatchCommitWriteStreamsResponse(stream_errors=[{"error_message": "no partition"}])


def prepare(rest, streams):
    states = rest.states(streams)
    before = states.settled_state()
    prepared = Prepared({"app": 1}, ["a", "b"], 7, states.now_ms)
    assert states.replace(before, CommitState({"app": 0}, prepared)) is not None


def test_the_age_of_streams_is_counted_by_the_clock_of_bigquery(rest):
    prepare(rest, Gone())
    rest.now += timedelta(days=1)
    assert rest.states(Gone()).settled_state().state.versions == {"app": 0}
    prepare(rest, Gone())
    rest.now += timedelta(days=2, seconds=1)
    with pytest.raises(CommitUnknownError) as refused:
        rest.states(Gone()).settled_state()
    assert refused.value.prepared.startswith(f"{rest.now.year}-05-02 12:00:00")
    assert f"--set_label {OUTCOME_LABEL}:committed p:d.headrace_t_p_" in refused.value.remedy


def opened(rest):
    settings = {
        "project": "p",
        "dataset": "d",
        "endpoint": rest.address.endpoint,
        "storage_endpoint": "http://127.0.0.1:1",
    }
    secrets = {name: Secret(value) for name, value in settings.items()}
    context = SinkContext("p", "unused", {}, secrets)
    return BigQuery("t", partition_by=None).open(context, SCHEMA)


def test_a_commit_is_prepared_at_the_time_of_bigquery(rest):
    driver = opened(rest)
    rest.refuses_changes = True  # of the commit state, which is made before: it is not settled
    driver.commit([], Transaction({"app": 1}, {}), 0)
    assert rest.state()["prepared"]["at_ms"] == int(rest.now.timestamp() * 1000)


def test_of_a_batch_that_bigquery_does_not_commit_an_operator_may_say_that_it_is_void(rest):
    prepare(rest, Refused())
    remedy = f"--set_label {OUTCOME_LABEL}:void p:d.headrace_t_p_"
    rest.say("committed")
    with pytest.raises(SinkError, match=f"no partition.*{remedy}"):
        rest.states(Refused()).settled_state()
    rest.say("void")
    assert rest.states(Refused()).settled_state().state.versions == {"app": 0}
    assert rest.state()["prepared"] is None


def test_void_is_not_believed_of_streams_that_are_committed(rest):
    committed = Refused()
    committed.state = WriteStream(commit_time={"seconds": 1})
    prepare(rest, committed)
    rest.say("void")
    assert rest.states(committed).settled_state().state.versions == {"app": 1}


PAGE = b"<html>proxy</html>"


@pytest.mark.parametrize(
    "answer",
    [
        (404, PAGE, None),
        (404, b"{}", None),
        (404, b'{"error": "no route"}', None),
        (404, b'{"error": {"code": 7, "message": "no route"}}', None),
        (404, b"[]", None),
        (409, PAGE, None),
        (412, PAGE, None),
        (400, PAGE, None),
        (200, PAGE, None),
        (200, b"", None),
        (200, b"null", None),
        (200, b'{"status": "please log in"}', None),
        (200, b'{"kind": "bigquery#table", "etag": "1"}', "soon"),
        (200, b'{"kind": "bigquery#table", "etag": "1"}', ""),
    ],
)
def test_what_a_proxy_answers_is_no_word_on_tables(rest, answer):
    """It is waited for BigQuery, and its table and positions stand."""
    driver = opened(rest)
    driver.commit([], Transaction({"app": 1}, {}), 0)
    state = state_address(rest.address, "p")
    for address in (rest.address, state):
        rest.answers_of_proxy = {address.path: answer}
        with pytest.raises(SinkUnavailableError, match="this is no answer of BigQuery"):
            rest.states(Gone()).settled_state()
    tables = Tables(rest.address)
    rest.answers_of_proxy = dict.fromkeys((state.path, state.path.rpartition("/")[0]), answer)
    for change in (lambda: tables.insert(state, {}), lambda: tables.patch(state, {}, "0")):
        with pytest.raises(SinkUnavailableError, match="this is no answer of BigQuery"):
            change()
    rest.answers_of_proxy = {}
    assert rest.states(Gone()).settled_state().state.versions == {"app": 1}


def test_a_table_that_is_made_again_under_a_driver_gets_no_batch(rest):
    """The next start refuses it, unless the pipeline has written nothing yet."""
    for batch in range(2):
        driver = opened(rest)
        if batch:
            driver.commit([], Transaction({"app": 0}, {}), 0)
        rest.put(rest.address.path, rest.tables[rest.address.path] | {"creationTime": f"n{batch}"})
        with pytest.raises(SinkUnavailableError, match="recreated since the start"):
            driver.commit([], Transaction({"app": 1}, {}), 0)
    with pytest.raises(TableMismatchError, match="recreated"):
        opened(rest)


def test_apply_whose_answers_are_lost_reports_what_it_did(rest):
    settings = {"project": "p", "dataset": "d", "endpoint": rest.address.endpoint}
    secrets = {name: Secret(value) for name, value in settings.items()}
    context = SinkContext("p", "unused", {}, secrets)
    sink = BigQuery("t", partition_by=None)
    wider = SCHEMA.append(pa.field("name", pa.string()))
    for schema, changes in ((SCHEMA, ["is created"]), (wider, ["gets column 'name', STRING"])):
        rest.lost_answers = 1
        assert sink.apply(context, schema) == changes
        assert sink.apply(context, schema) == []


def test_the_commit_state_has_a_name_that_bigquery_takes():
    longest = "ż" * 450
    rows = DeclaredRows({}, None)
    assert list(BigQuery(longest, partition_by=None).faults(rows)) == []
    [fault] = BigQuery(f"{longest}a", partition_by=None).faults(rows)
    assert "at most 900 bytes" in fault.remedy
    name = state_address(TableAddress("p", "d", longest), "p" * 100).table
    assert len(name.encode()) <= 1_024


def test_members_of_structs_have_names_of_columns(rest):
    context = SinkContext("p", "unused", {}, {"project": Secret("p"), "dataset": Secret("d")})
    context.settings["endpoint"] = Secret(rest.address.endpoint)
    for member in ("b.c", "A"):
        kind = pa.list_(pa.struct([("a", pa.int64()), (member, pa.int64())]))
        with pytest.raises(TableMismatchError, match=member):
            BigQuery("t").changes(context, pa.schema([("s", kind)]))


SMALL = pa.struct([("sku", pa.string())])
WIDE = pa.struct([("sku", pa.string()), ("weight", pa.float64())])


def ordered(item):
    """Items as a struct, in a list, and in a list of a member."""
    return pa.schema(
        [
            ("item", item),
            ("items", pa.list_(item)),
            ("box", pa.struct([("items", pa.list_(item))])),
        ]
    )


def takes_rows(target):
    """Whether a task appends a row with each member."""
    item = {"sku": "a", "weight": 1.5}
    row = {"item": item, "items": [item], "box": {"items": [item]}}
    rows = pa.Table.from_pylist([row], ordered(WIDE))
    is_rejected = any(fault.rows.any() for fault in target.form.rejected(rows))
    return not is_rejected and target.form.converted(rows).to_pylist() == [row]


def spec(rest, schema):
    return TableSpec(rest.address, schema, {}, None, None, ())


def test_a_field_that_a_class_in_a_list_gains_becomes_a_member(rest):
    tables = Tables(rest.address)
    TargetTable(tables, spec(rest, ordered(SMALL))).make()
    wide = TargetTable(tables, spec(rest, ordered(WIDE)))
    members = ("item.weight", "items.weight", "box.items.weight")
    added = [f"gets column {path!r}, FLOAT" for path in members]
    assert wide.changes() == added
    target, changes = wide.make()
    assert (changes, wide.changes()) == (added, [])
    assert takes_rows(target)


def test_a_member_that_is_not_added_although_the_change_is_taken_is_refused(rest):
    """As by stand-ins that add columns alone: each batch would fail in the tasks."""
    tables = Tables(rest.address)
    TargetTable(tables, spec(rest, ordered(SMALL))).make()
    rest.ignores_changes = True
    with pytest.raises(TableMismatchError, match=r"did not make it: gets column 'item\.weight'"):
        TargetTable(tables, spec(rest, ordered(WIDE))).make()


def test_a_table_that_another_start_makes_at_the_same_time_gets_the_columns_it_lacks(rest):
    class Late(Tables):
        """Another start, of an older class, makes the table before this one does."""

        def insert(self, address, body):
            TargetTable(Tables(rest.address), spec(rest, ordered(SMALL))).make()
            return super().insert(address, body)

    target, _ = TargetTable(Late(rest.address), spec(rest, ordered(WIDE))).make()
    assert takes_rows(target)
