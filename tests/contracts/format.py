"""What every format of records must do, in a pipeline's read task and over HTTP.

A test module subclasses ``FormatContract``, or ``EventFormatContract`` if records hold events, and
says how a record is written.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import EventCheck
from headrace.model import Precision, Topic
from headrace.pipelines.source.decode import Decoder, columns_for
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=65_536)
MANY = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.function_scoped_fixture],
)


@dataclass
class Line:
    sku: str
    price: Annotated[Decimal, Precision(8, scale=2)]


@dataclass
class Order:
    id: str
    at: datetime
    group: str
    count: int | None
    day: date | None
    body: bytes | None
    first: Line | None
    lines: list[Line] | None
    labels: dict[str, int] | None


LINE = {"sku": "pen", "price": Decimal("1.50")}
ORDER = {
    "id": "o1",
    "at": NOON,
    "group": "shoes",
    "count": 7,
    "day": date(2026, 5, 1),
    "body": b"\x00\xff",
    "first": LINE,
    "lines": [LINE, LINE | {"sku": "ink"}],
    "labels": {"x": 1},
}


class FormatContract:
    """What holds for bytes of any kind."""

    topic: Topic

    def decoder(self) -> Decoder:
        """Returns a new decoder of the topic."""
        raise NotImplementedError

    def a_record(self) -> bytes:
        """Returns a record that is accepted."""
        raise NotImplementedError

    def test_the_columns_are_those_of_the_event_class_in_every_format(self):
        assert self.decoder().arrow_schema == columns_for(self.topic.schema)
        assert self.decoder().decode([]).rows.schema == self.decoder().arrow_schema

    @MANY
    @given(st.lists(st.binary(max_size=40) | st.none(), max_size=6), st.integers(0, 6))
    def test_whatever_bytes_come_the_records_beside_them_are_rows(self, odd, place):
        values = [*odd[:place], self.a_record(), *odd[place:]]
        decoded = self.decoder().decode(values)
        assert decoded.rows.schema == self.decoder().arrow_schema
        assert decoded.rows.num_rows + len(decoded.rejected) == len(values)
        assert min(place, len(odd)) not in decoded.rejected
        assert list(decoded.rejected) == sorted(decoded.rejected)

    @MANY
    @given(st.lists(st.binary(max_size=40) | st.none(), max_size=6))
    def test_a_record_is_judged_alike_alone_and_among_others(self, values):
        values = [*values, self.a_record()]
        together = self.decoder().decode(values)
        alone = [self.decoder().decode([value]) for value in values]
        rows = [row for decoded in alone for row in decoded.rows.to_pylist()]
        assert str(together.rows.to_pylist()) == str(rows)
        reasons = {
            index: decoded.rejected[0] for index, decoded in enumerate(alone) if decoded.rejected
        }
        assert together.rejected == reasons

    @MANY
    @given(st.integers(0, 200), st.integers(0, 200), st.binary(max_size=4))
    def test_a_damaged_record_is_rejected_or_a_row_and_never_an_error(
        self, start, length, inserted
    ):
        record = self.a_record()
        damaged = record[:start] + inserted + record[start + length :]
        decoded = self.decoder().decode([damaged])
        assert decoded.rows.num_rows + len(decoded.rejected) == 1


class EventFormatContract(FormatContract):
    """What holds where records hold events of :class:`Order`.

    Reasons and sentences are the same in every format, so they are said here once.
    """

    def record(self, event: dict) -> bytes:
        """Returns a record of an event with these fields, and no others."""
        raise NotImplementedError

    def event_check(self, topic: Topic) -> EventCheck:
        """Returns what checks events of a topic over HTTP, and writes them."""
        raise NotImplementedError

    def a_record(self) -> bytes:
        return self.record(ORDER)

    def judged(self, *events: dict):
        """What a read task makes of events: rows, and reasons by index."""
        noon_us = int(NOON.timestamp()) * 1_000_000
        day_us = int(timedelta(days=1).total_seconds()) * 1_000_000
        bounds = EventTimeBounds("at", noon_us - day_us, noon_us + day_us)
        values = [self.record(event) for event in events]
        checks = RowChecks(bounds, ("group",))
        decoded = checks.applied(self.decoder().decode(values), len(values))
        return decoded.rows.to_pylist(), decoded.rejected

    def test_a_value_of_each_type_is_read(self):
        ((row,), rejected) = self.judged(ORDER)
        assert rejected == {}
        assert row == ORDER | {"labels": [("x", 1)]}

    def test_what_may_be_null_may_be_missing_and_what_is_not_declared_is_ignored(self):
        required = {name: ORDER[name] for name in ("id", "at", "group")}
        nulls = dict.fromkeys(set(ORDER) - set(required))
        rows, rejected = self.judged(required, ORDER | nulls, ORDER | {"other": "x"})
        assert rejected == {}
        assert rows[0] == rows[1] == required | nulls
        assert rows[2]["id"] == "o1"

    @pytest.mark.parametrize(
        ("changes", "reason", "words"),
        [
            ({"id": 7}, "wrong-type", "field 'id' is an integer, expected a string"),
            ({"count": "7"}, "wrong-type", "field 'count' is a string, expected an integer"),
            ({"first": {"sku": 7}}, "wrong-type", "field 'first.sku' is an integer"),
            ({"first": {"sku": "pen"}}, "missing-field", "field 'first.price' is missing"),
            (
                {"lines": [LINE, LINE | {"price": Decimal("1.505")}]},
                "out-of-range",
                "field 'lines[1].price' is out of range",
            ),
            (
                {"first": LINE | {"price": Decimal("1.505")}},
                "out-of-range",
                "field 'first.price' is out of range",
            ),
            (
                {"at": NOON + timedelta(days=2)},
                "event-time-out-of-bounds",
                "field 'at' is 2026-05-03T12:00:00+00:00, after the latest accepted",
            ),
            ({"at": NOON - timedelta(days=2)}, "event-time-out-of-bounds", "before the earliest"),
            ({"group": "a/b"}, "unsafe-partition-value", "'group'"),
            ({"group": ".."}, "unsafe-partition-value", "'group'"),
        ],
    )
    def test_a_bad_field_is_named_by_its_path(self, changes, reason, words):
        rows, rejected = self.judged(ORDER, ORDER | changes, ORDER)
        assert len(rows) == 2
        assert {index: code for index, (code, _) in rejected.items()} == {1: reason}
        assert words in rejected[1][1]

    def test_a_null_is_named_where_none_is_allowed(self):
        _, rejected = self.judged(ORDER | {"id": None})
        assert rejected == {0: ("wrong-type", "field 'id' is null, expected a string")}

    def test_a_missing_field_is_named(self):
        _, rejected = self.judged({name: ORDER[name] for name in ORDER if name != "id"})
        assert rejected == {0: ("missing-field", "field 'id' is missing, expected a string")}

    def test_a_tombstone_is_no_event(self):
        assert self.decoder().decode([None]).rejected[0][0] == "null-value"

    def test_an_event_over_http_becomes_a_record_that_is_the_same_row(self):
        accepted, rejected = self.sent(ORDER)
        assert rejected == []
        decoded = self.decoder().decode([accepted[0].value])
        assert decoded.rejected == {}
        assert decoded.rows.to_pylist() == self.judged(ORDER)[0]
        assert accepted[0].key == b"o1"

    def test_an_event_over_http_is_rejected_by_the_same_words(self):
        wrong = ORDER | {"lines": [LINE, LINE | {"price": Decimal("1.505")}]}
        _, (problem,) = self.sent(wrong)
        assert (problem.code, problem.detail) == self.judged(wrong)[1][0]

    def test_an_event_over_http_that_is_too_large_is_rejected(self):
        accepted, (problem,) = self.sent(ORDER | {"group": "x" * 5000}, max_bytes=4096)
        assert accepted == []
        assert (problem.code, problem.status) == ("event-too-large", 413)

    def sent(self, event: dict, max_bytes: int = 100_000):
        """What becomes of an event over HTTP."""
        topic = Topic(
            self.topic.name,
            event=self.topic.event,
            format=self.topic.format,
            key="id",
            event_time="at",
            config={"max.message.bytes": str(max_bytes)},
        )
        return self.event_check(topic).batch([json_text(event)], "acme", ())


def json_text(event: dict) -> bytes:
    """The JSON that a client sends for an event."""
    return msgspec.json.encode(event)
