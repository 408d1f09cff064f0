"""What ``check`` finds wrong with profiles, without a connection."""

import pickle
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace import Guarantee, Latest, OnNull, Postgres, Profiles
from headrace.model import FieldType
from headrace.settings import Secret
from headrace.sinks.api import DeclaredRows
from headrace.sinks.registry import installed_kinds

COLUMNS = {
    "user": FieldType.STRING,
    "number": FieldType.LONG,
    "kind": FieldType.STRING,
    "is_new": FieldType.BOOLEAN,
    "price": FieldType.DECIMAL,
    "@at": FieldType.STRING,
    "at": FieldType.MILLIS,
}
ROWS = DeclaredRows(COLUMNS, "at", {"kind": ("view", "click", "forget")}, record_key="user")
PROFILES = Profiles(
    "users",
    key="user",
    ttl=timedelta(days=30),
    fields=("price",),
    lists={"views": Latest(200, columns=("price",), where={"kind": "view"})},
    forget={"is_new": False},
    event_id="number",
)


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("redis://h", "redis"),
        ("rediss://h", "redis"),
        ("unix:///s", "redis"),
        ("cassandra://h/site", "cassandra"),
        ("http://h", ""),
    ],
)
def test_the_extra_is_that_of_the_database_that_the_address_names(url, extra):
    assert PROFILES.extra_for({"url": Secret(url)}) == extra
    assert PROFILES.extra_for({}) == ""


def views(*arguments, **changes):
    return {"lists": {"views": Latest(*arguments, **changes)}}


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        ({"store": "a b"}, "Profiles.store is 'a b'", "letters"),
        ({"store": 5}, "Profiles.store is 5", "letters"),
        ({"key": "usr"}, "Profiles.key: 'usr' is no column of the rows", "columns: user, number"),
        ({"key": "price"}, "Profiles.key: 'price' is decimal", "long, string"),
        ({"key": None}, "Profiles.key: None is no name of a column", "a text"),
        ({"ttl": 30}, "Profiles.ttl is 30", "from a second to 36,500 days"),
        ({"ttl": timedelta(0)}, "Profiles.ttl is datetime.timedelta(0)", "a second"),
        ({"ttl": timedelta(days=40_000)}, "Profiles.ttl is", "36,500 days"),
        ({"event_id": "price"}, "Profiles.event_id: 'price' is decimal", "long, string"),
        ({"event_time": "kind"}, "Profiles.event_time: 'kind' is string", "timestamp"),
        ({"event_time": "seen"}, "Profiles.event_time: 'seen' is no column", "columns:"),
        ({"fields": "price"}, "Profiles.fields is 'price'", 'fields=("country",)'),
        ({"fields": ("prize",)}, "Profiles.fields: 'prize' is no column", "columns:"),
        ({"fields": ("@at",)}, "Profiles.fields: '@at' begins with '@'", "rename"),
        ({"lists": [Latest(5)]}, "Profiles.lists is [Latest(", "Latest(200)"),
        ({"lists": {"a b": Latest(5)}}, "Profiles.lists: 'a b' is no name of a list", "letters"),
        ({"lists": {"é": Latest(5)}}, "Profiles.lists: 'é' is no name of a list", "letters"),
        ({"lists": {"views": 200}}, "Profiles.lists['views'] is 200", "Latest(200)"),
        (views(0), "Profiles.lists['views'].max_entries is 0", "from 1 to 10,000"),
        (views(10_001), "Profiles.lists['views'].max_entries is 10001", "from 1 to 10,000"),
        (views(True), "Profiles.lists['views'].max_entries is True", "from 1 to 10,000"),
        (views(5, columns="price"), "Profiles.lists['views'].columns is 'price'", "columns=("),
        (views(5, columns=("item",)), "Profiles.lists['views'].columns: 'item' is no", "columns:"),
        (views(5, where="kind"), "Profiles.lists['views'].where is 'kind'", '{"kind": "view"}'),
        (views(5, where={"kind": 5}), "Profiles.lists['views'].where: 'kind' is string", "long"),
        (
            views(5, where={"kind": "veiw"}),
            "Profiles.lists['views'].where: 'kind' is never 'veiw'",
            "values: view, click, forget",
        ),
        ({"forget": {"kind": "gone"}}, "Profiles.forget: 'kind' is never 'gone'", "forget"),
        (views(5, where={"kind": None}), "Profiles.lists['views'].where: None is no", "a text"),
        ({"forget": {"price": 5}}, "Profiles.forget: 'price' is decimal", "long"),
        ({"forget": {}}, "Profiles.forget is {}", "True for every row"),
        ({"forget": "kind"}, "Profiles.forget is 'kind'", '{"kind": "view"}'),
        ({"fields": (), "lists": {}, "forget": False}, "Profiles keeps nothing", "fields=("),
        ({"on_null": True}, "Profiles.on_null is True", "OnNull.DELETE"),
        (
            {"on_null": OnNull.DELETE, "key": "number"},
            "Profiles.on_null is DELETE, and column 'number' does not hold the key of the records",
            "one topic with key='number', without steps",
        ),
    ],
)
def test_each_mistake_is_a_fault_with_its_field_and_a_remedy(changes, message, remedy):
    declared = replace(PROFILES, **changes)
    [fault] = declared.faults(ROWS)
    assert list(declared.faults_beside(declared)) == []
    assert fault.message.startswith(message)
    assert remedy in fault.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"key": "number"},
        {"fields": (), "lists": {}, "forget": True},
        {"event_id": None},
        {"event_time": "at"},
    ],
)
def test_a_sound_declaration_has_no_faults_and_travels_to_tasks(changes):
    sink = replace(PROFILES, **changes)
    assert list(sink.faults(ROWS)) == []
    assert list(sink.faults(DeclaredRows(None, "at"))) == []
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_a_topic_without_an_event_time_is_a_fault():
    [fault] = PROFILES.faults(DeclaredRows(COLUMNS, None))
    assert fault.message == "Profiles needs an event time, and the topic declares none"
    assert list(replace(PROFILES, event_time="at").faults(DeclaredRows(COLUMNS, None))) == []


def test_a_tombstone_has_no_event_time_but_that_of_its_topic():
    sink = replace(PROFILES, event_time="seen", on_null=OnNull.DELETE)
    columns = {**COLUMNS, "seen": FieldType.MILLIS}
    [fault] = sink.faults(DeclaredRows(columns, "at", record_key="user"))
    assert fault.message == "Profiles.on_null is DELETE, and event_time 'seen' is not the topic's"


def test_two_pipelines_write_a_store_in_one_way():
    clicks = replace(PROFILES, fields=(), lists={"clicks": Latest(50), "views": Latest(200)})
    assert list(PROFILES.faults_beside(clicks)) == []
    [fault] = PROFILES.faults_beside(replace(clicks, lists={"views": Latest(5)}))
    assert fault.message == "store 'users' has 200 entries in 'views' here and 5 there"
    [fault] = PROFILES.faults_beside(replace(clicks, ttl=timedelta(days=7)))
    assert fault.message == "store 'users' has ttl 30 days, 0:00:00 here and 7 days, 0:00:00 there"
    [fault] = PROFILES.faults_beside(replace(PROFILES, fields=(), event_id=None))
    assert "'views' of store 'users' has entries by event id, and others without" in fault.message
    [fault] = PROFILES.faults_beside(Postgres("users"))
    assert fault.message == "store 'users' is written by Profiles here and by Postgres"


def test_a_batch_may_be_repeated_and_a_time_range_reprocessed():
    assert PROFILES.guarantee is Guarantee.AT_LEAST_ONCE
    assert PROFILES.reprocessing_fault(None, None) is None
    assert PROFILES.kind in installed_kinds()
