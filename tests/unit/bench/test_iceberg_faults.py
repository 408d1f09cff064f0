"""The pure parts of the comparison under faults."""

import random
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from bench.driver import OutputWrongError
from bench.iceberg_faults.__main__ import STATES, SYSTEMS, rows
from bench.iceberg_faults.catalog import Tally, tally
from bench.iceberg_faults.faults import FAULTS, PLANTED, Outcome, Run
from bench.report import PAGE

SENT = ["a", "b", "c"]


def test_each_event_once_is_neither_lost_nor_doubled():
    assert tally(SENT, ["c", "a", "b"]) == Tally(rows=3, lost=0, doubled=0)


def test_lost_and_doubled_rows_are_counted_though_the_number_of_rows_is_right():
    assert tally(SENT, ["a", "b", "b"]) == Tally(rows=3, lost=1, doubled=1)
    assert tally(SENT, ["a", "a", "a", "a"]) == Tally(rows=4, lost=2, doubled=3)
    assert tally(SENT, []) == Tally(rows=0, lost=3, doubled=0)


def test_a_row_of_no_event_is_an_error():
    with pytest.raises(OutputWrongError, match="'d'"):
        tally(SENT, ["a", "b", "d"])


@pytest.mark.parametrize("count", [8, 9, 10, 11])
def test_the_parts_are_all_events(count):
    events = {str(number): b"%d" % number for number in range(count)}
    parts = list(Run(SimpleNamespace(), events, random.Random(1), ExitStack()).parts)
    assert len(parts) == PLANTED + 1
    assert [value for part in parts for value in part] == list(events.values())


def test_the_table_has_what_each_system_lost_and_doubled():
    found = [
        Outcome("headrace", "frozen", 1, Tally(3, 0, 0), {}, 1.0),
        Outcome("kafka-connect", "frozen", 1, Tally(4, 1, 2), {}, 1.0),
        Outcome("kafka-connect", "frozen", 2, Tally(2, 1, 0), {}, 1.0),
    ]
    figures = {(one.metric, one.system): (one.low, one.high) for one in rows(found)}
    assert figures == {
        ("frozen: lost", "headrace"): (0, 0),
        ("frozen: doubled", "headrace"): (0, 0),
        ("frozen: runs", "headrace"): (1, 1),
        ("frozen: lost", "kafka-connect"): (1, 1),
        ("frozen: doubled", "kafka-connect"): (0, 2),
        ("frozen: runs", "kafka-connect"): (2, 2),
    }


def test_the_page_names_each_fault_and_each_setting():
    page = PAGE.read_text()
    for name in (*FAULTS, *STATES):
        assert f"`{name}`" in page, name
    for system in SYSTEMS.values():
        for name in system.settings:
            assert f"`{name}`" in page, name
