"""Defects planted in a join: the ledger names the hop, and says how many are missing."""

from dataclasses import replace

import pytest
from tests.drills.join_histories import (
    BEGIN,
    MINUTE,
    WINDOW,
    Committed,
    History,
    SimulatedPartition,
    balance,
    entries_of,
    entry_of,
    in_order,
    rows_of,
)

from headrace.ledger.sums import Fate, Hop
from headrace.ledger.windows import WindowState
from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.state import StateFolder
from headrace.pipelines.join.matching import IdMatcher
from headrace.pipelines.join.offsets import JoinPosition
from headrace.pipelines.ledger.entry import merged

START = JoinPosition(0, 0, 0, 0)


class Unshuffled:
    """Keeps later events in the order of their times."""

    def randrange(self, _):
        return 0


@pytest.fixture
def history():
    """Ten events, one of them twice, and two later ones: one waits for the last of them."""
    earlier = [KeyedEvent(b"%d" % n, BEGIN + n * MINUTE // 10, n, b"%d" % n) for n in range(10)]
    earlier.append(earlier[3]._replace(offset=10))
    late = [KeyedEvent(key, BEGIN + MINUTE, 0, b"l") for key in (b"2", b"9", b"none")]
    return History(earlier, in_order(late, Unshuffled()), set(), set(), set(), 0)


def batches(folder, history, ends=((5, 3), (11, 3), (11, 3))):
    """Three batches: what matches at once, what has waited, and what found none."""
    partition, committed, start = SimulatedPartition(folder, Match.ID), [], START
    for number, (earlier, later) in enumerate(ends):
        clock_us = BEGIN + (number + 1) * 3 * MINUTE
        end = JoinPosition(earlier, later, clock_us, WINDOW.horizon_us(clock_us))
        committed.append(Committed(start, end, partition.join("a", start, end, history)))
        start = end
    return committed


def found(entries):
    windows = balance(entries).windows()
    return {(each.hop, each.number) for window in windows for each in window.differences}


def test_a_window_in_which_events_wait_is_closing_and_balances_when_they_have_come_out(
    tmp_path, history
):
    entries = entries_of(batches(tmp_path, history), history)
    states = []
    for number in range(1, 4):
        [window] = balance([merged(entries[:number])]).windows()
        states.append((window.state, window.fates.get(Fate.WAITING)))
    assert states == [
        (WindowState.OPEN, 2),
        (WindowState.CLOSING, 1),
        (WindowState.BALANCED, None),
    ]
    assert window.fates == {
        Fate.OUT: 2,
        Fate.KEPT: 10,
        Fate.DEDUPLICATED: 1,
        Fate.UNMATCHED: 1,
    }
    assert window.read == 14


def test_what_waited_before_the_ledger_began_is_no_difference(tmp_path, history):
    assert found(entries_of(batches(tmp_path, history), history)[1:]) == set()


def test_an_event_that_is_lost_from_the_state_is_missing_at_the_join(
    tmp_path, history, monkeypatch
):
    write = StateFolder.write

    def losing(self, at, state):
        write(self, at, replace(state, waiting=state.waiting[1:]))

    monkeypatch.setattr(StateFolder, "write", losing)
    assert found(entries_of(batches(tmp_path, history), history)) == {(Hop.JOIN, 2)}


def test_events_that_wait_when_a_checkpoint_begins_anew_are_missing_at_the_join(tmp_path, history):
    (tmp_path / "again").mkdir()
    [first, *_] = entries_of(batches(tmp_path, history), history)
    end = JoinPosition(0, 0, BEGIN + 9 * MINUTE, 0)
    anew = SimulatedPartition(tmp_path / "again", Match.ID).join("a", START, end, history)
    second = replace(entry_of(1, Committed(START, end, anew), history), checkpoint=2)
    assert found([first, second]) == {(Hop.JOIN, 2)}


def test_a_later_event_that_the_matching_loses_is_missing_at_the_join(
    tmp_path, history, monkeypatch
):
    match = IdMatcher.match

    def losing(self, waiting, clock_us):
        outcomes = match(self, waiting, clock_us)
        return replace(outcomes, matched=outcomes.matched[1:])

    monkeypatch.setattr(IdMatcher, "match", losing)
    assert found(entries_of(batches(tmp_path, history), history)) == {(Hop.JOIN, 2)}


def test_an_earlier_event_that_is_kept_twice_is_too_many_at_the_join(tmp_path, history):
    [first, *others] = batches(tmp_path, history)
    twice = replace(first.batch, kept=KeyedEvents.of([*first.batch.kept, first.batch.kept[0]]))
    committed = [replace(first, batch=twice), *others]
    assert found(entries_of(committed, history)) == {(Hop.JOIN, -1)}


def test_an_earlier_event_that_is_not_kept_is_missing_at_the_join(tmp_path, history):
    [first, *others] = batches(tmp_path, history)
    fewer = replace(first.batch, kept=KeyedEvents.of([*first.batch.kept][1:]))
    committed = [replace(first, batch=fewer), *others]
    assert found(entries_of(committed, history)) == {(Hop.JOIN, 1)}


def without_rows(events):
    decoded = rows_of(events)
    return replace(decoded, rows=decoded.rows.slice(1))


def test_a_row_that_is_lost_on_the_way_to_its_sink_is_missing(tmp_path, history):
    """Matched ones at the sink, to which they go; unmatched ones at the join, which writes them."""
    entries = [
        entry_of(number, each, history, without_rows)
        for number, each in enumerate(batches(tmp_path, history))
    ]
    assert found(entries) == {(Hop.SINK, 2), (Hop.JOIN, 1)}
