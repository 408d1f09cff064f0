"""Events that a program makes: their JSON holds what they hold, or there is none."""

import json
import time
from dataclasses import make_dataclass
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRecordError
from headrace.events import rejection
from headrace.events.parsing.event_json import event_json
from headrace.model import EpochMillis, event_schema

AT = datetime(2024, 11, 29, 8, tzinfo=UTC)
AT_MS = 1732867200000


class Struct(msgspec.Struct):
    at: EpochMillis
    n: int


class Tuple(NamedTuple):
    at: EpochMillis
    n: int


@attrs.define
class Attrs:
    at: EpochMillis
    n: int


class Slots:
    __slots__ = ("at", "n")
    at: EpochMillis
    n: int

    def __init__(self, at, n):
        self.at, self.n = at, n


class Plain:
    at: EpochMillis
    n: int

    def __init__(self, at, n):
        self.at, self.n = at, n


class Typed(TypedDict):
    at: EpochMillis
    n: int


CLASSES = [
    Struct,
    Tuple,
    Attrs,
    Slots,
    Plain,
    Typed,
    make_dataclass("Data", [("at", EpochMillis), ("n", int)]),
    make_dataclass("SlotsData", [("at", EpochMillis), ("n", int)], slots=True),
]


@pytest.fixture
def new_york(monkeypatch):
    """The time zone of the machine is not UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("event_class", CLASSES)
def test_an_instance_of_any_event_class_is_an_object_with_its_fields(event_class):
    event, written = event_class(at=AT, n=1), {"at": AT_MS, "n": 1}
    assert json.loads(event_json(event_schema(event_class), event)) == written
    fields = [("one", event_class), ("list", list[event_class]), ("map", dict[str, event_class])]
    outer = make_dataclass("Outer", fields)
    text = event_json(event_schema(outer), outer(event, [event], {"k": event}))
    assert json.loads(text) == {"one": written, "list": [written], "map": {"k": written}}


def test_a_mapping_has_all_of_its_members_and_an_object_the_fields_of_the_class():
    schema = event_schema(Struct)
    assert json.loads(event_json(schema, {"n": 1, "other": 2})) == {"n": 1, "other": 2}
    assert json.loads(event_json(schema, SimpleNamespace(n=1, other=2))) == {"n": 1}


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (AT.replace(tzinfo=None), "wrong-type"),
        (datetime(2024, 11, 3, 1, 30), "wrong-type"),  # noqa: DTZ001 - which New York has twice
        (AT.replace(microsecond=999), "wrong-value"),
        (AT.replace(microsecond=123_001), "wrong-value"),
    ],
)
@pytest.mark.usefixtures("new_york")
def test_a_time_that_is_no_whole_millisecond_of_one_zone_is_rejected(at, reason):
    fields = [("at", EpochMillis), ("list", list[EpochMillis]), ("in_one", Struct)]
    schema = event_schema(make_dataclass("Event", fields))
    for event, path in [
        ({"at": at}, "at"),
        ({"list": [AT, at]}, "list[]"),
        ({"in_one": Struct(at, 1)}, "in_one.at"),
    ]:
        with pytest.raises(InvalidRecordError, match=reason) as rejected:
            event_json(schema, event)
        assert rejected.value.detail.startswith(f"field {path!r} ")


@given(
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5, seconds=30))])).map(
        lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
    )
)
def test_whole_milliseconds_are_written_exactly(at):
    written = json.loads(event_json(event_schema(Struct), {"at": at}))["at"]
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=written) == at


@pytest.mark.parametrize("value", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
@pytest.mark.parametrize("kind", [str, list[str], dict[str, str]])
def test_bytes_are_no_text(kind, value):
    schema = event_schema(make_dataclass("Event", [("x", kind), ("b", bytes)]))
    held = {"x": {str: value, list[str]: [value], dict[str, str]: {"k": value}}[kind]}
    with pytest.raises(InvalidRecordError, match=r"field 'x(\[\])?' is bytes"):
        event_json(schema, held)
    assert json.loads(event_json(schema, {"b": value})) == {"b": "YWJj"}


@pytest.mark.parametrize("kind", [str, Any])
def test_half_of_a_surrogate_pair_is_rejected_with_its_field_by_who_reads_the_text(kind):
    schema = event_schema(make_dataclass("Event", [("x", kind), ("at", datetime)]))
    reason, sentence = rejection(event_json(schema, {"at": AT, "x": "a\ud800"}), schema)
    assert (reason, sentence[:9]) == ("lone-surrogate", "field 'x'")
