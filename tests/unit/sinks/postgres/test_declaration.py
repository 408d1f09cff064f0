"""What ``check`` finds wrong with a table of PostgreSQL, without a connection."""

from datetime import timedelta

import pytest

from headrace import OnNull, Postgres, Unique, WriteMode
from headrace.model import FieldType
from headrace.sinks.api import DeclaredRows

COLUMNS = {"id": FieldType.LONG, "at": FieldType.TIMESTAMP, "n": FieldType.DOUBLE}
UNORDERED = (
    "Postgres.mode upsert by n needs newest_by: rows of a key come in the order of their events"
    " only from one topic that is partitioned by the key, without steps"
)
ROWS = DeclaredRows(COLUMNS, "at", ordered_by="id", record_key="id")
NO_DELETES = "Postgres.on_null is DELETE, which is for UPSERT by one column"


@pytest.mark.parametrize(
    ("sink", "messages"),
    [
        (Postgres("t"), []),
        (Postgres("app.t", WriteMode.UPSERT, ("id",), "at"), []),
        (Postgres("t", WriteMode.ADD, ("id", "at")), []),
        (Postgres("."), ["Postgres.table is '.'"]),
        (Postgres(5), ["Postgres.table is 5"]),
        (Postgres("t", "upsert"), ["Postgres.mode is 'upsert'"]),
        (Postgres("t", WriteMode.UPSERT, "id"), ["Postgres.key is 'id'"]),
        (Postgres("t", WriteMode.UPSERT, (["id"],)), ["Postgres.key is (['id'],)"]),
        (Postgres("t", WriteMode.UPSERT, ("id",), ["at"]), ["Postgres.newest_by is ['at']"]),
        (Postgres("t", WriteMode.UPSERT), ["Postgres.mode upsert needs a key"]),
        (
            Postgres("t", key=("id",), newest_by="at"),
            ["Postgres.key is for UPSERT and ADD", "Postgres.newest_by is for UPSERT"],
        ),
        (
            Postgres("t", WriteMode.UPSERT, ("ip",), "seen"),
            [
                "Postgres: 'ip' is no column of the rows",
                "Postgres: 'seen' is no column of the rows",
            ],
        ),
        (Postgres("t", WriteMode.UPSERT, ("id",)), []),
        (
            Postgres("t", WriteMode.UPSERT, ("n",)),
            [UNORDERED],
        ),
        (Postgres("t", unique=Unique(["id"], ignore=["n"])), []),
        (Postgres("t", unique=["id"]), ["Postgres.unique is ['id']"]),
        (Postgres("t", unique=Unique(["ip"])), ["Postgres.unique: 'ip' is not a column"]),
        (
            Postgres("t", unique=Unique(["id"], timedelta(days=1))),
            ["Postgres.unique has no within: the unique index knows every row"],
        ),
        (
            Postgres("t", WriteMode.UPSERT, ("id",), unique=Unique(["id"])),
            ["Postgres.unique is for APPEND"],
        ),
        (Postgres("t", WriteMode.UPSERT, ("id",), on_null=OnNull.DELETE), []),
        (Postgres("t", on_null="delete"), ["Postgres.on_null is 'delete'"]),
        (Postgres("t", on_null=OnNull.DELETE), [NO_DELETES]),
        (Postgres("t", WriteMode.UPSERT, ("id",), "at", on_null=OnNull.DELETE), [NO_DELETES]),
        (Postgres("t", WriteMode.UPSERT, ("id", "n"), on_null=OnNull.DELETE), [NO_DELETES]),
        (Postgres("t", WriteMode.ADD, ("id",)), ["Postgres.mode add: 'at' is no number"]),
        (Postgres("t", server="eu-1"), []),
        (Postgres("t", server="eu.url"), ["Postgres.server is 'eu.url'"]),
        (Postgres("t", server=""), ["Postgres.server is ''"]),
        (Postgres("t", server=5), ["Postgres.server is 5"]),
    ],
)
def test_each_mistake_is_a_fault(sink, messages):
    assert [fault.message for fault in sink.faults(ROWS)] == messages


def test_columns_that_steps_hide_are_not_checked():
    sink = Postgres("t", WriteMode.UPSERT, ("ip",), "seen")
    assert list(sink.faults(DeclaredRows(None, None))) == []


@pytest.mark.parametrize(
    ("columns", "record_key", "message"),
    [
        (COLUMNS, None, "Postgres.on_null is DELETE, and column 'id' does not hold the key of the"),
        (COLUMNS, "n", "Postgres.on_null is DELETE, and column 'id' does not hold the key of the"),
        ({"id": FieldType.DOUBLE}, "id", "Postgres.on_null is DELETE, and column 'id' is double"),
    ],
)
def test_a_key_that_records_do_not_name_deletes_nothing(columns, record_key, message):
    sink = Postgres("t", WriteMode.UPSERT, ("id",), on_null=OnNull.DELETE)
    rows = DeclaredRows(columns, "at", ordered_by="id", record_key=record_key)
    [fault] = sink.faults(rows)
    assert fault.message.startswith(message)
    assert fault.remedy


@pytest.mark.parametrize(("name", "resolved"), [("t", "public.t"), ("app.t", "app.t")])
def test_a_table_without_a_schema_is_that_of_the_schema_public(name, resolved):
    assert (Postgres(name).target, Postgres(name).resolved_target({})) == (name, resolved)


@pytest.mark.parametrize("mode", WriteMode)
def test_an_upsert_without_newest_by_keeps_the_row_that_is_read_last(mode):
    assert Postgres("t", mode, ("id",)).keeps_last_read is (mode is WriteMode.UPSERT)
    assert not Postgres("t", mode, ("id",), newest_by="at").keeps_last_read


def test_a_mode_of_another_type_is_compared_as_it_is():
    (fault,) = Postgres("t").faults_beside(Postgres("t", mode=7))
    assert fault.message == "table 't' is written by append here and by 7"
