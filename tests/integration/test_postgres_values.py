"""Values and keys in PostgreSQL: kept as they are or refused, and one where the table says so."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.names import COLUMNS
from tests.integration.test_sinks import Database
from tests.integration.test_unique_stats import Commits

from headrace import Distinct, OnNull, Pipeline, Postgres, Stats, Topic, WriteMode
from headrace.errors import TableMismatchError
from headrace.sinks.api import DELETED
from headrace.sinks.postgres.column_types import ColumnKind, column_types
from headrace.sinks.postgres.connection import find_table
from headrace.sinks.postgres.rows.json_rows import insert_rows
from headrace.testing.sink_lab import batch

NOON = datetime(2019, 11, 24, 12, tzinfo=UTC)
UTC_TIME = pa.timestamp("us", "UTC")
# The server of the tests has no ICU, and other collations tell all texts apart: here, only the
# catalog says that this one does not.
CI = "CREATE COLLATION ci (provider = libc, locale = 'C');"
NOT_DETERMINISTIC = (
    "SET allow_system_table_mods = on;"
    "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'ci'"
)
ANY_CASE = "".join(
    f"CREATE FUNCTION {name}(text, text) RETURNS boolean IMMUTABLE LANGUAGE sql AS"
    f" 'SELECT lower($1) {operator} lower($2)';"
    f"CREATE OPERATOR {operator}# (LEFTARG = text, RIGHTARG = text, FUNCTION = {name});"
    for name, operator in {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">"}.items()
)
ANY_CASE += (
    "CREATE FUNCTION compared(text, text) RETURNS int IMMUTABLE LANGUAGE sql AS"
    " 'SELECT bttextcmp(lower($1), lower($2))';"
    "CREATE OPERATOR CLASS any_case FOR TYPE text USING btree AS OPERATOR 1 <#, OPERATOR 2 <=#,"
    " OPERATOR 3 =#, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 compared(text, text);"
)


@pytest.fixture
def database(postgres):
    """``database(ddl)``: a new database."""

    def made(ddl):
        return Database(postgres.create_database(f"values_{uuid.uuid4().hex[:8]}"), ddl)

    return made


def put(found, sink, rows, number=0):
    """Writes rows in one batch; returns the places of those that are rejected, with why."""
    driver = sink.open(found.context, rows.schema)
    writer = driver.writers(uuid.uuid4().hex)
    rejected = writer.write(rows)
    driver.commit(writer.close(), batch(number), 0)
    return [(each.index, each.reason, each.detail) for each in rejected]


ROUNDED = [
    ("numeric(10, 2)", pa.decimal128(10, 4), [Decimal("1.2300"), Decimal("1.2390")]),
    ("numeric(10, 2)", pa.float64(), [0.25, 0.1 + 0.2]),
    ("short", pa.float64(), [1.5, 1.25]),
    ("timestamptz(3)", UTC_TIME, [NOON.replace(microsecond=5000), NOON.replace(microsecond=5001)]),
    ("timestamp(0)", UTC_TIME, [NOON, NOON.replace(microsecond=500_000)]),
    ("time(0)", pa.time64("us"), [time(12), time(12, 0, 0, 1)]),
    ("date", UTC_TIME, [NOON.replace(hour=0), NOON]),
    ("varchar(3)", pa.string(), ["ab ", "abc "]),
    ("varchar(3)", pa.string(), ["żół", "long"]),
    ("char(3)", pa.string(), ["abc", "long"]),
    ("double precision", pa.int64(), [2**53, 2**53 + 1]),
    ("real", pa.int64(), [2**24, 2**24 + 1]),
    ("numeric(10, 2)[]", pa.string(), ["{1.50,NULL}", "{1.50,1.239}"]),
    ("varchar(3)[]", pa.string(), ['{"ab "}', '{"abc "}']),
    ("timestamp(0)[]", pa.string(), ['{"2019-11-24 12:00:00"}', '{"2019-11-24 12:00:00.1"}']),
]


TEXTS = [
    ("date", "2026-11-24", "2026-11-24T23:34:56Z"),
    ("date", "2026-11-24T00:00:00.000Z", "2026-11-24T23:34:56-05:00"),
    ("date", "infinity", "today"),
    ("date", "2026-01-02", "01/02/2026"),
    ("time", "12:34:56.5", "2026-11-24 12:34:56"),
    ("time(0)", "12:34:56", "12:34:56.5"),
    ("timetz", "12:34:56+05:00", "12:34:56.1234567"),
    ("timestamp", "2026-11-24T12:34:56Z", "2026-11-24T12:34:56+05:00"),
    ("timestamp", "2026-11-24 12:34:56.123456", "now"),
    ("timestamptz", "2026-11-24T12:34:56.123456000Z", "2026-11-24T12:34:56.123456789Z"),
    ("timestamptz", "2026-11-24 12:34:56+05:30", "yesterday"),
    ("timestamptz(3)", "2026-11-24T12:34:56.123Z", "2026-11-24T12:34:56.1234Z"),
    ("double precision", "0.1", "0.12345678901234567890"),
    ("real", "0.1", "0.123456789"),
    ("interval", "1 month 00:00:01.5", "0.0000001 s"),
    ("interval", "PT1.5S", "0.1234 months"),
    ("point", "(1.5,2)", "(0.12345678901234567890,2)"),
    ("date[]", "{2026-11-24,NULL}", '{2026-11-24,"2026-11-24T12:00:00Z"}'),
    ("timestamptz[]", '{{"2026-11-24 12:00:00Z"}}', "{now}"),
    ("real[]", "{0.1,2}", "{0.123456789}"),
]


@pytest.mark.parametrize("many", [1, 70])
@pytest.mark.parametrize(("type_", "kept", "changed"), TEXTS)
def test_a_text_that_its_column_would_change_is_a_dead_letter(database, type_, kept, changed, many):
    found = database(f"CREATE TABLE clicks (id int, v {type_})")
    columns = pa.schema([("id", pa.int32()), ("v", pa.string())])
    texts = [kept, changed, None, "no such value"] * many
    rows = pa.Table.from_pylist([{"id": n, "v": v} for n, v in enumerate(texts)], columns)
    rejected = put(found, Postgres("clicks"), rows)
    assert [index for index, *_ in rejected] == list(range(1, 4 * many, 2))
    assert {reason for _, reason, _ in rejected} == {"wrong-value"}
    expected = f"SELECT count(*) FROM clicks WHERE v::text = '{kept}'::{type_}::text OR v IS NULL"
    assert found.execute(expected) == [(2 * many,)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_all_texts_of_a_task_may_be_dead_letters(database, kind):
    found = database("CREATE TABLE clicks (day date)")
    texts = pa.table({"day": pa.array(["today"] * 2, kind)})
    assert [index for index, *_ in put(found, Postgres("clicks"), texts)] == [0, 1]
    assert put(found, Postgres("clicks"), texts.slice(0, 0), 1) == []
    days = pa.table({"day": pa.array(["2026-11-24"], kind)})
    assert put(found, Postgres("clicks"), days, 2) == []


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("text", " any\\n"),
        ("varchar(9)", "ab "),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
        ("json", '{"a": 1.50}'),
        ("jsonb", '{"a": 1.50}'),
        ("mood", "glad"),
        ("inet", "10.0.0.1"),
        ("numeric", "0.12345678901234567890"),
        ("numeric(4, 2)", "1.5"),
        ("bigint", "7"),
        ("boolean", "true"),
        ("int4range", "[1,5)"),
    ],
)
def test_texts_go_into_columns_that_keep_their_values(database, type_, text):
    found = database(f"CREATE TYPE mood AS ENUM ('glad'); CREATE TABLE clicks (v {type_})")
    assert put(found, Postgres("clicks"), pa.table({"v": [text]})) == []
    query = "SELECT v::text = '{}'::{}::text FROM clicks"
    assert found.execute(query.format(text, type_)) == [(True,)]


@pytest.mark.parametrize("many", [1, 200])
@pytest.mark.parametrize(("type_", "kind", "values"), ROUNDED)
def test_a_value_that_its_column_would_change_is_a_dead_letter(database, type_, kind, values, many):
    short = "CREATE DOMAIN short AS numeric(4, 1)"
    found = database(f'{short}; CREATE TABLE clicks (id int, "v 1" {type_})')
    columns = pa.schema([("id", pa.int32()), ("v 1", kind)])
    kept, changed = values
    rows = [{"id": n, "v 1": changed if n % 2 else kept} for n in range(2 * many)]
    rejected = put(found, Postgres("clicks"), pa.Table.from_pylist(rows, columns))
    assert [index for index, *_ in rejected] == list(range(1, 2 * many, 2))
    assert {reason for _, reason, _ in rejected} == {"wrong-value"}
    assert all("'v 1'" in detail for *_, detail in rejected if "too long" not in detail)
    as_text = "::text" if type_.endswith("[]") else ""
    [(value,)] = found.execute(f'SELECT DISTINCT "v 1"{as_text} FROM clicks')
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    assert value == (kept.date() if type_ == "date" else kept)


@pytest.mark.parametrize(
    ("type_", "kind", "check", "values"),
    [
        (
            "date",
            UTC_TIME,
            "v + 1 > DATE '2019-11-24'",
            [NOON.replace(hour=0), datetime(1999, 1, 1, tzinfo=UTC)],
        ),
        ("double precision", pa.int64(), "v / 2 <> 0.5", [3, 1]),
        ("real", pa.int64(), "v / 2 <> 0.5 AND id >= 0", [3, 1]),
    ],
)
def test_a_check_is_of_the_values_that_the_table_has(database, type_, kind, check, values):
    found = database(f"CREATE TABLE clicks (id int, v {type_}, CHECK ({check}))")
    kept, refused = values
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([kept, refused], kind)})
    driver = Postgres("clicks").open(found.context, rows.schema)
    writer = driver.writers(uuid.uuid4().hex)
    assert writer.write(rows) == []
    rejection = driver.commit(writer.close(), batch(0), 0)
    assert [row.reason for row in rejection.rejected] == ["check-violated"]
    driver.commit(rejection.pieces, batch(0), 0)
    [(value,)] = found.execute("SELECT v FROM clicks")
    assert value == (kept.date() if type_ == "date" else kept)


TABLE = "50% of them"


@pytest.fixture
def named(database):
    """A table with columns of all names, and the rows 1, 2 and, once more, 1."""
    columns = ", ".join(f'"{name}" text' for name in COLUMNS)
    found = database(f'CREATE TABLE "{TABLE}" ({columns}, id bigint UNIQUE)')
    return found, [{**dict(zip(COLUMNS, COLUMNS, strict=True)), "id": n} for n in (1, 2, 1)]


def test_tables_and_columns_have_any_name_also_where_a_row_is_rejected(named):
    found, rows = named
    table = pa.Table.from_pylist(rows)
    driver = Postgres(TABLE).open(found.context, table.schema)
    writer = driver.writers("task")
    assert writer.write(table) == []
    rejection = driver.commit(writer.close(), batch(0), 0)
    assert [json.loads(each.values) for each in rejection.rejected] == [rows[2]]
    driver.commit(rejection.pieces, batch(0), 0)
    assert found.execute(f'SELECT * FROM "{TABLE}"') == [(*COLUMNS, 1), (*COLUMNS, 2)]


def test_lines_of_files_go_into_columns_of_any_name(named):
    found, rows = named
    lines = [{name: json.dumps(value).encode() for name, value in row.items()} for row in rows]
    with psycopg.connect(found.url) as connection:
        faults = insert_rows(connection, find_table(connection, TABLE), lines)
    assert [fault.index for fault in faults] == [2]
    assert found.execute(f'SELECT * FROM "{TABLE}"') == [(*COLUMNS, 1), (*COLUMNS, 2)]


def test_statistics_are_of_columns_of_any_name(database):
    found = database("SELECT 1")
    measures = {f"{name} again": Distinct(name) for name in COLUMNS}
    sink = Stats(TABLE, by=COLUMNS, every=timedelta(days=1), measures=measures)
    row = dict(zip(COLUMNS, COLUMNS, strict=True)) | {"at": NOON}
    columns = pa.schema(dict.fromkeys(COLUMNS, pa.string()) | {"at": UTC_TIME})
    rows = pa.Table.from_pylist([row, row], columns)
    assert put(found, sink, rows) == put(found, sink, rows, 1) == []
    counts = ", ".join(f'"{name} again"' for name in COLUMNS)
    assert found.execute(f'SELECT {counts} FROM "{TABLE}"') == [(1,) * len(COLUMNS)]


def test_blanks_at_the_end_of_a_char_do_not_count_in_a_key(database):
    found = database("CREATE TABLE clicks (code char(5) PRIMARY KEY, n int)")
    sink = Postgres("clicks", WriteMode.UPSERT, ("code",), newest_by="n")
    rows = pa.table({"code": ["ab", "ab ", "c"], "n": pa.array([1, 2, 3], pa.int32())})
    assert put(found, sink, rows) == []
    assert found.execute("SELECT code, n FROM clicks ORDER BY n") == [("ab   ", 2), ("c    ", 3)]


@pytest.mark.parametrize(
    ("type_", "kind", "fitting"),
    [
        ("real", pa.float64(), "double precision"),
        ("real", pa.decimal128(5, 2), "numeric"),
        ("double precision", pa.decimal128(5, 2), "numeric"),
        ("time", UTC_TIME, "timestamptz"),
        ("money", pa.decimal128(10, 3), "numeric"),
        ("money", pa.float64(), "numeric"),
        ("money[]", pa.string(), "numeric"),
        ("name", pa.string(), "text"),
        ('"char"', pa.bool_(), "text"),
        ("oid", pa.int64(), "bigint"),
        ("regclass", pa.string(), "text"),
        ("bytea", pa.string(), "text"),
        ("tsvector", pa.string(), "text"),
        ("tsvector", pa.date32(), "text"),
        ("tstzrange", pa.string(), "text"),
        ("date", pa.int64(), "numeric"),
        ("timestamptz[]", pa.int16(), "numeric"),
        ("interval", pa.decimal128(10, 9), "numeric"),
        ("boolean", pa.int8(), "numeric"),
        ("varbit", pa.float64(), "numeric"),
        ("macaddr8", pa.decimal128(10, 0), "numeric"),
        ("cidr", pa.float32(), "numeric"),
        ("bytea", pa.int64(), "numeric"),
        ("bytea", pa.struct([("a", pa.string())]), "jsonb"),
        ("int4range", pa.list_(pa.int32()), "jsonb"),
        ("path", pa.list_(pa.float64()), "jsonb"),
        ("numrange", pa.list_(pa.float32()), "jsonb"),
        ("text[]", pa.map_(pa.string(), pa.int64()), "jsonb"),
        ("text", pa.binary(), "bytea"),
        ("varchar(9)", pa.large_binary(), "bytea"),
        ("bytea", UTC_TIME, "timestamptz"),
        ("part", pa.string(), "jsonb"),
        ("part[]", pa.string(), "jsonb"),
        ("short[]", pa.string(), "jsonb"),
    ],
)
def test_a_type_that_would_change_most_values_is_refused_at_the_start(
    database, type_, kind, fitting
):
    types = "CREATE DOMAIN short AS numeric(4, 1); CREATE TYPE part AS (n int, p numeric(8, 2));"
    found = database(f"{types} CREATE TABLE clicks (id int, v {type_})")
    columns = pa.schema([("id", pa.int32()), ("v", kind)])
    for look in (Postgres("clicks").changes, Postgres("clicks").open):
        with pytest.raises(TableMismatchError, match=f"column 'v' .*{fitting}"):
            look(found.context, columns)


_TEXTS = {"text", "varchar", "refcursor"}
_JSON = {*_TEXTS, "json", "jsonb"}
_NUMBERS = {*_JSON, "jsonpath", "int2", "int4", "int8", "numeric", "float4", "float8"}
KEPT = {
    ColumnKind.BOOLEAN: (["true", "false"], {*_JSON, "jsonpath", "bool"}),
    ColumnKind.INTEGER: (["0", "1", "101", "123456", "20261124"], _NUMBERS),
    ColumnKind.DECIMAL: (["1.50", "101"], _NUMBERS - {"float4", "float8"}),
    ColumnKind.DOUBLE: (["1.5", "1"], _NUMBERS - {"float4"}),
    ColumnKind.FLOAT: (["1.5", "1"], _NUMBERS),
    ColumnKind.DATE: (["2026-11-24"], {*_TEXTS, "date", "timestamp", "timestamptz"}),
    ColumnKind.TIME: (["2026-11-24 12:34:56Z"], {*_TEXTS, "date", "timestamp", "timestamptz"}),
    ColumnKind.TIME_OF_DAY: (["12:34:56"], {*_TEXTS, "time", "timetz"}),
    ColumnKind.BYTES: (["\\x", "\\x616263"], {"bytea"}),
    ColumnKind.NESTED: (["{}", '{"a":1}', "[]", "[1,2]", "[[1,2],[3,4]]"], _JSON),
    ColumnKind.VECTOR: (["[]", "[1.5,2.5]"], _JSON),
}
_ALL_TYPES = """
SELECT typname, format_type(oid, NULL) FROM pg_type
WHERE typtype IN ('b', 'r', 'm') AND typname NOT IN ('bpchar', 'gtsvector', 'xml')
    AND typcategory <> 'Z' AND (typcategory <> 'A' OR typname IN ('_text', '_doubles'))
"""


@pytest.fixture(scope="module")
def all_types(postgres):
    """A connection to a database whose table ``clicks`` has a column of each type."""
    ddl = "CREATE TYPE doubles AS RANGE (subtype = float8)"
    found = Database(postgres.create_database(f"values_{uuid.uuid4().hex[:8]}"), ddl)
    columns = ", ".join(f'"{name}" {type_}' for name, type_ in found.execute(_ALL_TYPES))
    found.execute(f"CREATE TABLE clicks ({columns})")
    with psycopg.connect(found.url) as connection:
        yield connection


@pytest.mark.parametrize("kind", KEPT)
def test_values_go_into_types_that_keep_them_and_into_no_others_that_read_their_text(
    all_types, kind
):
    texts, kept = KEPT[kind]
    columns = column_types(all_types, "clicks")
    taken = {column for column in columns if column.fault(kind) is None}
    is_valid = "SELECT bool_or(pg_input_is_valid(value, %s)) FROM unnest(%s::text[]) AS value"
    reading = {
        column.name
        for column in taken
        if all_types.execute(is_valid, (column.declared, texts)).fetchone() == (True,)
    }
    assert reading == kept


@pytest.mark.parametrize("type_", ["doubles", "doubles_multirange", "doubles[]"])
def test_a_range_of_a_type_that_rounds_texts_is_refused(database, type_):
    ddl = "CREATE TYPE doubles AS RANGE (subtype = float8)"
    found = database(f"{ddl}; CREATE TABLE clicks (v {type_})")
    with pytest.raises(TableMismatchError, match=r"'v' has parts .*jsonb"):
        Postgres("clicks").open(found.context, pa.schema([("v", pa.string())]))


VECTOR = "CREATE EXTENSION vector; CREATE TABLE clicks (id int, v {})"


@pytest.mark.parametrize("type_", ["vector", "halfvec"])
@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.float64())])
def test_a_vector_that_would_round_is_refused(database, type_, kind):
    found = database(VECTOR.format(type_))
    with pytest.raises(TableMismatchError, match=f"column 'v' is {type_}, .*jsonb"):
        Postgres("clicks").open(found.context, pa.schema([("v", kind)]))


def test_a_vector_takes_floats(database):
    found = database(VECTOR.format("vector"))
    rows = pa.table({"v": pa.array([[0.1, 1.5], None], pa.list_(pa.float32()))})
    assert put(found, Postgres("clicks"), rows) == []
    assert found.execute("SELECT v::text FROM clicks") == [("[0.1,1.5]",), (None,)]


PARTS = ["date", "timestamptz", "float8", "money", "point", "bytea", "name[]", "day"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("array", ["", "[]"])
def test_a_part_that_would_change_texts_is_refused(database, part, array):
    types = f"CREATE DOMAIN day AS date; CREATE TYPE part AS (n int, v {part});"
    found = database(f"{types} CREATE TABLE clicks (v part{array})")
    with pytest.raises(TableMismatchError, match=r"'v' has parts .*jsonb"):
        Postgres("clicks").open(found.context, pa.schema([("v", pa.string())]))
    with psycopg.connect(found.url) as connection:
        [fault] = insert_rows(connection, find_table(connection, "clicks"), [{"v": b"{}"}])
    assert fault.reason == "wrong-value"


@pytest.mark.parametrize(
    ("type_", "kept", "changed"),
    [
        ("numeric(6, 2)", 1.25, 1.239),
        ("double precision", 0.1, 2**53 + 1),
        ("real", 0.1, 2**24 + 1),
        ("date", "2019-11-24", "2019-11-24T12:00:00"),
        ("timestamptz(0)", "2019-11-24T12:00:00Z", "2019-11-24T12:00:00.5Z"),
        ("varchar(3)", "ab ", "abc "),
        ("numeric(6, 2)[]", [1.25, None], [1.25, 1.239]),
        ("jsonb", {"price": 1.239}, "\0"),
    ],
)
def test_a_line_of_a_file_with_a_value_that_its_column_would_change_is_left_out(
    database, type_, kept, changed
):
    found = database(f'CREATE TABLE clicks (id int, "v 1" {type_})')
    values = [kept, changed, None, kept, changed]
    rows = [{"id": b"%d" % n, "v 1": json.dumps(v).encode()} for n, v in enumerate(values)]
    with psycopg.connect(found.url) as connection:
        faults = insert_rows(connection, find_table(connection, "clicks"), rows)
    assert [fault.index for fault in faults] == [1, 4]
    assert found.execute("SELECT id FROM clicks ORDER BY id") == [(0,), (2,), (3,)]


@pytest.mark.parametrize(("type_", "kept", "changed"), TEXTS)
def test_a_text_in_a_line_of_a_file_is_kept_as_it_is_or_left_out(database, type_, kept, changed):
    found = database(f"CREATE TABLE clicks (id int, v {type_})")
    values = [kept, changed, None, "no such value"]
    rows = [{"id": b"%d" % n, "v": json.dumps(v).encode()} for n, v in enumerate(values)]
    with psycopg.connect(found.url) as connection:
        faults = insert_rows(connection, find_table(connection, "clicks"), rows)
    assert [(fault.index, fault.reason) for fault in faults] == [
        (1, "wrong-value"),
        (3, "wrong-value"),
    ]
    expected = f"SELECT count(*) FROM clicks WHERE v::text = '{kept}'::{type_}::text OR v IS NULL"
    assert found.execute(expected) == [(2,)]


@pytest.mark.parametrize(
    ("type_", "kept", "changed"),
    [
        ("date[]", ["2026-11-24", None], ["2026-11-24", "today"]),
        ("timestamp(0)[]", ["2026-11-24T12:00:00"], ["2026-11-24T12:00:00.1"]),
        ("timestamptz[]", ["2026-11-24T12:00:00Z"], ["2026-11-24T12:00:00.123456789Z"]),
    ],
)
def test_times_in_an_array_of_a_line_of_a_file_are_kept_as_they_are(database, type_, kept, changed):
    found = database(f"CREATE TABLE clicks (v {type_})")
    rows = [{"v": json.dumps(value).encode()} for value in (kept, changed)]
    with psycopg.connect(found.url) as connection:
        [fault] = insert_rows(connection, find_table(connection, "clicks"), rows)
    assert (fault.index, fault.reason) == (1, "wrong-value")
    assert found.execute("SELECT cardinality(v) FROM clicks") == [(len(kept),)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        *[("money", 1.999), ("name", "a"), ('"char"', "ab"), ("oid", -1), ("tsvector", "b a")],
        ("daterange", "[2026-11-24 12:00,)"),
    ],
)
def test_a_line_of_a_file_for_a_type_that_changes_values_is_left_out(database, type_, value):
    found = database(f"CREATE TABLE clicks (id int, v {type_})")
    line = {"id": b"1", "v": json.dumps(value).encode()}
    with psycopg.connect(found.url) as connection:
        table = find_table(connection, "clicks")
        [fault] = insert_rows(connection, table, [line, {"id": b"2"}])
    assert (fault.index, fault.reason) == (0, "wrong-value")
    assert found.execute("TABLE clicks") == [(2, None)]


def test_a_line_of_a_file_for_a_column_with_parts_that_round_is_left_out(database):
    found = database("CREATE TYPE part AS (price numeric(6, 2)); CREATE TABLE clicks (v part)")
    with psycopg.connect(found.url) as connection:
        table = find_table(connection, "clicks")
        [fault] = insert_rows(connection, table, [{}, {"v": b'{"price": 1.239}'}])
    assert (fault.index, fault.reason) == (1, "wrong-value")


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(
        st.decimals(
            allow_nan=False, allow_infinity=False, min_value=-9999, max_value=9999, places=4
        )
        | st.none(),
        max_size=30,
    ),
    times=st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), max_size=30),  # noqa: DTZ001
)
def test_rows_are_in_the_table_as_they_were_or_are_dead_letters(exact_table, numbers, times):
    found, number = exact_table
    rows = [
        {"id": place, "price": price, "at": at.replace(tzinfo=UTC)}
        for place, (price, at) in enumerate(zip(numbers, times, strict=False))
    ]
    columns = pa.schema([("id", pa.int32()), ("price", pa.decimal128(8, 4)), ("at", UTC_TIME)])
    found.execute("TRUNCATE clicks")
    table = pa.Table.from_pylist(rows, columns)
    rejected = {index for index, *_ in put(found, Postgres("clicks"), table, next(number))}
    there = {id_: (price, at) for id_, price, at in found.execute("TABLE clicks")}
    assert there == {
        row["id"]: (row["price"], row["at"]) for row in rows if row["id"] not in rejected
    }
    changed = {
        row["id"] for row in rows if (row["price"] or 0) * 100 % 1 or row["at"].microsecond % 1000
    }
    assert rejected == changed


@pytest.fixture(scope="module")
def exact_table(postgres):
    found = Database(
        postgres.create_database(f"values_{uuid.uuid4().hex[:8]}"),
        "CREATE TABLE clicks (id int, price numeric(8, 2), at timestamptz(3))",
    )
    return found, iter(range(10_000))


def test_a_percent_sign_in_the_name_of_a_column_is_one(database):
    found = database('CREATE TABLE clicks (id int PRIMARY KEY, "50%d" text, "%%" int)')
    columns = pa.schema([("id", pa.int32()), ("50%d", pa.string()), ("%%", pa.int32())])
    rows = [{"id": number, "50%d": "a", "%%": number} for number in (1, 2, 2)]
    driver = Postgres("clicks").open(found.context, columns)
    writer = driver.writers(uuid.uuid4().hex)
    assert writer.write(pa.Table.from_pylist(rows, columns)) == []
    refused = driver.commit(writer.close(), batch(0), 0)
    assert [(each.reason, json.loads(each.values)) for each in refused.rejected] == [
        ("not-unique", rows[2])
    ]
    driver.commit(refused.pieces, batch(0), 0)
    with psycopg.connect(found.url) as connection:
        line = {"id": b"3", "50%d": b'"b"', "%%": b"3"}
        assert insert_rows(connection, find_table(connection, "clicks"), [line]) == []
    assert found.execute("TABLE clicks ORDER BY id") == [(1, "a", 1), (2, "a", 2), (3, "b", 3)]


NAMES = pa.schema([("name", pa.string()), ("n", pa.int64())])
BY_NAME = Postgres("clicks", WriteMode.UPSERT, ("name",), newest_by="n")
ADDED = Postgres("clicks", WriteMode.ADD, ("name",))


@pytest.mark.parametrize("sink", [BY_NAME, ADDED])
@pytest.mark.parametrize(
    ("column", "index"),
    [
        ("name text", "name COLLATE ci"),
        ("name text COLLATE ci", 'name COLLATE "C"'),
        ("name text", "name any_case"),
        ("name varchar", "name any_case"),
    ],
)
def test_an_index_that_compares_keys_otherwise_than_the_column_is_refused(
    database, sink, column, index
):
    found = database(
        f"{CI}{ANY_CASE}CREATE TABLE clicks ({column}, n bigint);"
        f"CREATE UNIQUE INDEX by_name ON clicks ({index}); {NOT_DETERMINISTIC}"
    )
    for look in (sink.changes, sink.open):
        with pytest.raises(TableMismatchError, match=r"compares column 'name' .*by_name"):
            look(found.context, NAMES)


@pytest.mark.parametrize(
    ("column", "index"),
    [
        ("name varchar(9)", "name"),
        ("name text", 'name COLLATE "C"'),
        ("name text", "name text_pattern_ops"),
    ],
)
def test_an_index_that_compares_keys_in_another_order_only_is_taken(database, column, index):
    found = database(
        f"CREATE TABLE clicks ({column}, n bigint);CREATE UNIQUE INDEX by_name ON clicks ({index})"
    )
    rows = pa.Table.from_pylist([{"name": "Ann", "n": 1}, {"name": "ANN", "n": 2}], NAMES)
    assert put(found, BY_NAME, rows) == []
    assert sorted(found.execute("TABLE clicks")) == [("ANN", 2), ("Ann", 1)]


def test_texts_that_are_one_key_have_no_last_row_without_newest_by(database):
    ddl = f"{CI}CREATE TABLE clicks (name text COLLATE ci PRIMARY KEY, n int); {NOT_DETERMINISTIC}"
    found = database(ddl)
    with pytest.raises(TableMismatchError, match=r"'name' .* takes texts that differ"):
        replace(BY_NAME, newest_by=None).open(found.context, NAMES)
    BY_NAME.open(found.context, NAMES)
    ADDED.open(database(ddl).context, NAMES)


LAST_READ = replace(BY_NAME, newest_by=None)


@pytest.mark.parametrize(
    "type_",
    ["uuid", "char(4)", "bigint", "numeric", "inet", "timestamptz", "date", "boolean", "text[]"],
)
@pytest.mark.parametrize("sink", [LAST_READ, replace(LAST_READ, on_null=OnNull.DELETE)])
def test_a_text_is_no_key_of_a_type_that_takes_others_for_one_without_newest_by(
    database, sink, type_
):
    found = database(f"CREATE TABLE clicks (name {type_} PRIMARY KEY, n int)")
    columns = NAMES.append(pa.field(DELETED, pa.bool_())) if sink.null_key else NAMES
    for look in (sink.changes, sink.open):
        with pytest.raises(TableMismatchError, match=r"takes texts that differ.*newest_by.*text"):
            look(found.context, columns)
    BY_NAME.open(found.context, NAMES)


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("text", pa.string()),
        ("varchar(9)", pa.string()),
        ("short", pa.string()),
        ("mood", pa.string()),
        ("bigint", pa.int64()),
        ("numeric", pa.int64()),
    ],
)
def test_a_key_whose_texts_are_all_apart_needs_no_newest_by(database, type_, kind):
    types = "CREATE DOMAIN short AS varchar(9); CREATE TYPE mood AS ENUM ('glad');"
    found = database(f"{types} CREATE TABLE clicks (name {type_} PRIMARY KEY, n int)")
    LAST_READ.open(found.context, pa.schema([("name", kind), ("n", pa.int64())]))


DELETING = replace(LAST_READ, on_null=OnNull.DELETE)
DELETABLE = pa.schema(
    [("name", pa.string()), ("mail", pa.string()), ("price", pa.float64()), (DELETED, pa.bool_())]
)


@pytest.mark.parametrize(
    "constraint", ["NOT NULL", "CHECK (VALUE IS NOT NULL)", "CHECK (VALUE ~ '@')"]
)
def test_a_tombstone_deletes_whatever_domains_other_columns_have(database, constraint):
    found = database(
        f"CREATE DOMAIN mail AS varchar(9) {constraint}; CREATE DOMAIN mine AS mail;"
        ' CREATE DOMAIN "a {price}" AS numeric(4, 1) NOT NULL;'
        ' CREATE TABLE clicks (name text PRIMARY KEY, mail mine, price "a {price}")'
    )
    rows = [("a", "a@b", 1.5), ("b", "b@c", 2.5), ("c", "c@d", 1.25), ("d", "b" * 9 + "@", 1.5)]
    commits = Commits(DELETING, found, schema=DELETABLE)
    sent = [{"name": n, "mail": m, "price": p, DELETED: False} for n, m, p in rows]
    assert commits(sent) == {"counted": 2, "wrong-value": 2}
    bad = {"name": "b", "mail": None, "price": 2.5, DELETED: False}
    assert commits([{"name": "a", DELETED: True}, bad]).total() == 2
    there = found.execute("SELECT name, mail::text, price::float8 FROM clicks")
    assert there == ([("b", "b@c", 2.5)] if "~" not in constraint else [("b", None, 2.5)])


def test_a_row_that_a_domain_refuses_is_a_dead_letter_where_rows_delete(database):
    found = database(
        "CREATE DOMAIN mail AS text CHECK (VALUE ~ '@');"
        " CREATE TABLE clicks (name text PRIMARY KEY, mail mail, price float8)"
    )
    commits = Commits(DELETING, found, schema=DELETABLE)
    sent = [{"name": n, "mail": m, DELETED: False} for n, m in [("a", "a@b"), ("b", "b")]]
    assert commits(sent) == {"counted": 1, "check-violated": 1}
    assert found.execute("SELECT name FROM clicks") == [("a",)]


class Part:
    note: str
    doc: Any


class Doc:
    id: int
    doc: Any
    items: list[dict[str, Any]]
    part: Part | None
    texts: list[str] | None


DOCS = Topic("docs", event=Doc)


def test_any_at_any_depth_is_json(database):
    found = database(
        "CREATE TABLE clicks (id int, doc jsonb, items jsonb, part jsonb, texts jsonb)"
    )
    pipeline = Pipeline("p", DOCS, Postgres("clicks"))
    context = pipeline.sink_context(pipeline.sink, "", {}, {"postgres": found.context.settings}, {})
    text = '{"a":1,"b":[1.50,"x"]}'
    part = pa.struct([("note", pa.string()), ("doc", pa.string())])
    columns = pa.schema(
        [
            ("id", pa.int64()),
            ("doc", pa.string()),
            ("items", pa.list_(pa.map_(pa.string(), pa.string()))),
            ("part", part),
            ("texts", pa.list_(pa.string())),
        ]
    )
    row = {
        "id": 1,
        "doc": text,
        "items": [[("k", text), ("none", None)], []],
        "part": {"note": "1", "doc": '"1"'},
        "texts": ["1", "{}"],
    }
    rows = pa.Table.from_pylist([row, {"id": 2}], columns)
    assert put(replace_context(found, context), pipeline.sink, rows) == []
    value = json.loads(text)
    assert found.execute("TABLE clicks ORDER BY id")[0] == (
        1,
        value,
        [{"k": value, "none": None}, {}],
        {"note": "1", "doc": "1"},
        ["1", "{}"],
    )


def replace_context(found, context):
    found.context = context
    return found
