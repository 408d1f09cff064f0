"""What the state of a window is, and which hop a difference is at."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace.ledger.sums import Fate, Hop, Sums
from headrace.ledger.windows import WindowState
from headrace.model import TopicPartition
from headrace.pipelines.ledger.comparison import HopComparison
from headrace.pipelines.ledger.completeness import CompletenessBounds
from headrace.pipelines.ledger.counting.recount import Recount
from headrace.pipelines.ledger.entry import EntryRange, LedgerEntry
from headrace.pipelines.ledger.reprocessed import ReprocessedEntry, changes_of
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine

HOUR, SECOND_US = 3600, 1_000_000
ALLOWED = CompletenessBounds(allowed_us=HOUR * SECOND_US)
FIRST, OTHER = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def line(hop, fate, sums, window=0, partition=0):
    return LedgerLine(LedgerKey(hop, fate, window, "clicks", partition), Sums(*sums))


def balanced(window=0, number=10):
    """Ten events, of which one is late and one is rejected by the sink."""
    late, dead, out = (1, 5, 7), (1, 5, 11), (number - 2, 5, 13)
    handed = (number - 1, 10, 24)
    return [
        line(Hop.READ, Fate.IN, (number, 15, 31), window),
        line(Hop.READ, Fate.LATE, late, window),
        line(Hop.READ, Fate.OUT, handed, window),
        line(Hop.SINK, Fate.IN, handed, window),
        line(Hop.SINK, Fate.DEAD, dead, window),
        line(Hop.SINK, Fate.OUT, out, window),
    ]


def entry(lines, clock=3 * HOUR, batch=0, start=0, **changes):
    ranges = (EntryRange("clicks", "id", 0, start, start + 10),)
    clocks, positions = {"clicks": {0: clock * SECOND_US}}, {"clicks": {0: start + 10}}
    values = {"clocks": clocks, "positions": positions} | changes
    return LedgerEntry(1, batch, batch, HOUR, ranges, tuple(lines), **values)


def window(lines, bounds=ALLOWED, recount=None, *, has_steps=False, **changes):
    balance = HopComparison([entry(lines, **changes)], bounds, has_steps=has_steps)
    [only] = balance.windows(recount)
    return only


def test_a_window_that_is_over_and_whose_events_are_accounted_for_is_balanced():
    only = window(balanced())
    assert only.state is WindowState.BALANCED
    assert (only.read, only.fates) == (10, {Fate.OUT: 8, Fate.LATE: 1, Fate.DEAD: 1})


def test_tombstones_are_accounted_for_as_records_without_an_event_time():
    only = window([line(Hop.READ, fate, (3, 0, 0), None) for fate in (Fate.IN, Fate.TOMBSTONE)])
    assert (only.state, only.fates) == (WindowState.BALANCED, {Fate.TOMBSTONE: 3})


@pytest.mark.parametrize(
    ("clock", "state"),
    [
        (HOUR - 1, WindowState.OPEN),
        (HOUR, WindowState.CLOSING),
        (2 * HOUR - 1, WindowState.CLOSING),
        (2 * HOUR, WindowState.BALANCED),
    ],
)
def test_a_window_is_open_until_its_end_and_closing_for_the_allowed_lateness(clock, state):
    assert window(balanced(), clock=clock).state is state


@pytest.mark.parametrize(
    ("number", "hop", "missing"),
    [(0, Hop.READ, 2), (1, Hop.READ, -2), (2, Hop.READ, -2), (4, Hop.SINK, -2), (5, Hop.SINK, -2)],
)
def test_a_difference_names_the_hop_and_how_many_are_missing(number, hop, missing):
    lines = balanced()
    lines[number] = LedgerLine(lines[number].key, lines[number].sums + Sums(2, 2, 2))
    only = window(lines, clock=0)
    assert only.state is WindowState.UNBALANCED
    assert (only.differences[0].hop, only.differences[0].number) == (hop, missing)
    assert only.differences[0].partition == "clicks/0"


def test_as_many_events_with_other_ids_do_not_balance():
    lines = balanced()
    lines[5] = LedgerLine(lines[5].key, lines[5].sums + Sums(0, 0, 1))
    [difference] = window(lines).differences
    assert (difference.hop, difference.number, difference.ids_differ) == (Hop.SINK, 0, True)


def test_two_partitions_do_not_make_up_for_each_other():
    lines = [
        line(Hop.READ, Fate.IN, (5, 5, 5)),
        line(Hop.READ, Fate.OUT, (5, 5, 5), partition=1),
    ]
    assert {d.partition for d in window(lines).differences} == {"clicks/0", "clicks/1"}


def test_a_partition_that_has_more_records_keeps_a_window_closing():
    behind = {"clocks": {"clicks": {0: 9 * HOUR * SECOND_US, 1: 0}}}
    behind["positions"] = {"clicks": {0: 10, 1: 4}}
    for ends, state in [
        ({FIRST: 10, OTHER: 5}, WindowState.CLOSING),
        ({FIRST: 10, OTHER: 4}, WindowState.BALANCED),
        (None, WindowState.CLOSING),
    ]:
        bounds = CompletenessBounds(ALLOWED.allowed_us, ends)
        assert window(balanced(), bounds, **behind).state is state


def test_a_partition_that_has_reported_nothing_makes_windows_unknown():
    only = window(balanced(), CompletenessBounds(ALLOWED.allowed_us, {FIRST: 10, OTHER: 1}))
    assert (only.state, only.unknown) == (
        WindowState.UNKNOWN,
        "partition clicks/1 has reported nothing",
    )


def test_what_goes_into_steps_that_do_not_count_is_unknown():
    uncounted = {"uncounted": "grouped does not say which events its rows come from"}
    lines = [*balanced()[:3], line(Hop.STEPS, Fate.UNKNOWN, (9, 10, 24))]
    only = window(lines, has_steps=True, **uncounted)
    assert (only.state, only.unknown) == (WindowState.UNKNOWN, uncounted["uncounted"])
    assert only.fates == {Fate.LATE: 1, Fate.UNKNOWN: 9}
    recounted = window(lines, recount=Recount({0: Sums(3, 0, 1)}), has_steps=True, **uncounted)
    assert (recounted.state, recounted.rows) == (WindowState.UNKNOWN, 3)


def stepped(filtered):
    """Ten events, of which steps filter some and let eight go on."""
    out = (8, 10, 24)
    return [
        line(Hop.READ, Fate.IN, (10, 15, 31)),
        line(Hop.READ, Fate.OUT, (10, 15, 31)),
        line(Hop.STEPS, Fate.FILTERED, filtered),
        line(Hop.SINK, Fate.IN, out),
        line(Hop.SINK, Fate.OUT, out),
    ]


def test_what_steps_drop_and_count_is_accounted_for():
    only = window(stepped((2, 5, 7)), has_steps=True)
    assert (only.state, only.fates) == (WindowState.BALANCED, {Fate.OUT: 8, Fate.FILTERED: 2})


@pytest.mark.parametrize(
    ("filtered", "missing", "ids_differ"),
    [((1, 5, 7), 1, False), ((0, 0, 0), 2, True), ((3, 5, 7), -1, False), ((2, 5, 8), 0, True)],
)
def test_what_steps_drop_and_do_not_count_is_missing_at_the_steps(filtered, missing, ids_differ):
    [difference] = window(stepped(filtered), has_steps=True).differences
    assert (difference.hop, difference.number) == (Hop.STEPS, missing)
    assert difference.ids_differ is ids_differ


@pytest.mark.parametrize(
    ("rows", "number", "ids_differ"),
    [((8, 0, 13), None, None), ((7, 0, 5), 1, True), ((9, 0, 13), -1, False), ((8, 0, 3), 0, True)],
)
def test_a_recount_finds_rows_that_are_missing_too_many_or_others(rows, number, ids_differ):
    only = window(balanced(), recount=Recount({0: Sums(*rows)}))
    if number is None:
        assert (only.state, only.rows) == (WindowState.BALANCED, 8)
        return
    [difference] = only.differences
    assert (difference.hop, difference.number) == (Hop.TABLE, number)
    assert difference.ids_differ is ids_differ


def test_a_recount_without_ids_compares_numbers():
    counted = Recount({0: Sums(8, 0, 999)}, has_ids=False)
    assert window(balanced(), recount=counted).state is WindowState.BALANCED


def test_rows_of_a_window_that_the_ledger_does_not_have_are_too_many():
    balance = HopComparison([entry(balanced())], ALLOWED, has_steps=False)
    windows = balance.windows(Recount({0: Sums(8, 0, 13), HOUR: Sums(3, 0, 1)}))
    assert [each.state for each in windows] == [WindowState.BALANCED, WindowState.UNBALANCED]
    assert windows[1].differences[0].number == -3


def test_a_recount_that_failed_leaves_a_window_unknown():
    only = window(balanced(), recount=Recount(failure="the rows can't be counted"))
    assert (only.state, only.unknown, only.rows) == (
        WindowState.UNKNOWN,
        "the rows can't be counted",
        None,
    )


@pytest.mark.parametrize(
    ("rows", "number", "ids_differ"),
    [((1, 0, 7), None, None), ((0, 0, 0), 1, True), ((2, 0, 7), -1, False), ((1, 0, 8), 0, True)],
)
def test_a_recount_of_the_side_table_has_a_hop_of_its_own(rows, number, ids_differ):
    balance = HopComparison([entry(balanced())], ALLOWED, has_steps=False)
    [only] = balance.windows(None, Recount({0: Sums(*rows)}))
    if number is None:
        assert (only.state, only.side_rows, only.rows) == (WindowState.BALANCED, 1, None)
        return
    [difference] = only.differences
    assert (difference.hop, difference.number) == (Hop.SIDE_TABLE, number)
    assert difference.ids_differ is ids_differ


def test_a_side_table_that_is_not_counted_leaves_windows_with_late_events_unknown():
    nothing_late = [
        line(hop, fate, (3, 3, 3), HOUR)
        for hop in (Hop.READ, Hop.SINK)
        for fate in (Fate.IN, Fate.OUT)
    ]
    balance = HopComparison([entry([*balanced(), *nothing_late])], ALLOWED, has_steps=False)
    windows = balance.windows(None, Recount(failure="ask again"))
    assert [each.unknown for each in windows] == ["ask again", ""]
    assert windows[0].state is WindowState.UNKNOWN


def test_rows_of_a_side_table_that_nothing_was_sent_to_are_too_many():
    balance = HopComparison([entry(balanced())], ALLOWED, has_steps=False)
    windows = balance.windows(None, Recount({0: Sums(1, 0, 7), HOUR: Sums(2, 0, 1)}))
    assert [(each.hop, each.number) for each in windows[1].differences] == [(Hop.SIDE_TABLE, -2)]


def test_rows_from_before_the_ledger_are_no_difference():
    only = window(balanced(), recount=Recount({0: Sums(99, 0, 1)}), unknown_before=1)
    assert only.state is WindowState.UNKNOWN
    assert window(balanced(), unknown_before=1).state is WindowState.BALANCED


@pytest.mark.parametrize(
    ("was", "is_now", "unknown"),
    [
        (("at", None), ("at", "id"), [True, False]),
        (("at", "other"), ("at", "id"), [True, False]),
        (("sent", "id"), ("at", "id"), [True, True]),
        (("at", "id"), ("at", "id"), [False, False]),
    ],
)
def test_events_that_were_counted_by_other_fields_are_not_compared(was, is_now, unknown):
    """Another event time may have put them into any window."""
    entries = [
        entry(balanced(), counted_by=(was,), horizon=HOUR - 1),
        entry(balanced(HOUR), batch=1, start=10, counted_by=(is_now,), horizon=2 * HOUR),
    ]
    balance = HopComparison(entries, ALLOWED, has_steps=False, counted_by=[is_now])
    rows = {0: Sums(8, 0, 99 if unknown[0] else 13), HOUR: Sums(8, 0, 13)}
    windows = balance.windows(Recount(rows))
    assert [bool(each.unknown) for each in windows] == unknown
    assert not any(each.differences for each in windows)
    assert not any(each.unknown for each in balance.windows())


@pytest.mark.parametrize("was", ["", "lake late"])
def test_late_events_that_went_elsewhere_are_not_looked_for_in_the_side_table(was):
    entries = [
        entry(balanced(), side_tables=(was,), horizon=HOUR - 1),
        entry(balanced(HOUR), batch=1, start=10, side_tables=("lake new",), horizon=2 * HOUR),
    ]
    balance = HopComparison(entries, ALLOWED, has_steps=False, side_table="lake new")
    windows = balance.windows(None, Recount({HOUR: Sums(1, 0, 7)}))
    assert [each.state for each in windows] == [WindowState.UNKNOWN, WindowState.BALANCED]
    assert "another table" in windows[0].unknown


PARTITION = ("clicks", "id", 0)


def balance_of(*entries, recorded=None):
    positions = {} if recorded is None else {1: {PARTITION: recorded}}
    return HopComparison(entries, ALLOWED, has_steps=False, recorded=positions)


def breaks(*entries, recorded=None):
    balance = balance_of(*entries, recorded=recorded)
    assert not balance.uncounted
    return [(gap.start, gap.end, gap.is_gap) for gap in balance.breaks()]


def test_ranges_that_follow_one_another_have_no_breaks():
    assert not breaks(entry([]), entry([], batch=1, start=10), entry([], batch=2, start=20))


def test_a_gap_is_offsets_that_no_batch_has_read_and_an_overlap_those_that_two_have():
    assert breaks(entry([]), entry([], batch=1, start=15)) == [(10, 15, True)]
    assert breaks(entry([]), entry([], batch=1, start=5)) == [(5, 10, False)]
    assert breaks(entry([]), entry([], batch=1)) == [(0, 10, False)]


def test_a_checkpoint_that_begins_elsewhere_leaves_a_gap_or_an_overlap():
    for begin, found in [(10, []), (15, [(10, 15, True)]), (4, [(4, 10, False)])]:
        later = replace(entry([], start=begin), checkpoint=2)
        assert breaks(entry([]), later) == found


def test_a_range_within_a_longer_one_is_no_gap_before_the_next():
    long = LedgerEntry(1, 0, 0, HOUR, (EntryRange("clicks", "id", 0, 0, 40),), ())
    assert breaks(long, entry([], batch=1, start=5), entry([], batch=2, start=40)) == [
        (5, 15, False)
    ]


def uncounted(*entries, recorded=None):
    balance = balance_of(*entries, recorded=recorded)
    assert not balance.breaks()
    return [reason.partition(":")[0] for reason in balance.uncounted]


def test_what_batches_without_an_entry_have_read_is_uncounted():
    batch, later = entry([], horizon=50), entry([], batch=2, start=30, horizon=99)
    [between] = ["offsets 10 to 30 of clicks/0 were read by batches that are not in the ledger"]
    assert uncounted(batch, later) == [between]
    assert uncounted(replace(later, began=(EntryRange(*PARTITION, 10, 10),))) == [between]
    whole = replace(batch, positions={"clicks": {0: 10}}) + later
    assert uncounted(whole) == [between]
    assert uncounted(batch, recorded=30) == [between]
    assert not uncounted(batch, recorded=10)
    other = replace(later, checkpoint=3, first=0, last=0)
    balance = HopComparison([batch, other], ALLOWED, has_steps=False, recorded={2: {PARTITION: 30}})
    assert not balance.breaks()
    assert "checkpoint 2" in balance.uncounted[0]


def test_partitions_that_were_added_and_read_by_batches_without_an_entry_are_uncounted():
    ranges = tuple(EntryRange("clicks", "id", *each) for each in [(0, 10, 20), (1, 5, 7)])
    name = "offsets 0 to 5 of clicks/1 were read by batches that are not in the ledger"
    later = replace(entry([], batch=2, start=10), ranges=ranges)
    assert uncounted(entry([]), later) == [name]
    idle = entry([], batch=2, start=10, positions={"clicks": {0: 20, 1: 5}})
    assert uncounted(entry([]), idle) == [name]
    recorded = {1: {PARTITION: 10, ("clicks", "id", 1): 5}}
    balance = HopComparison([entry([])], ALLOWED, has_steps=False, recorded=recorded)
    assert [reason.partition(":")[0] for reason in balance.uncounted] == [name]


def test_windows_that_may_hold_uncounted_rows_are_unknown_to_a_recount():
    """Not those that began after the next batch was planned."""
    batches = [entry(balanced()), entry(balanced(HOUR), batch=2, start=30, horizon=HOUR - 1)]
    balance = HopComparison(batches, ALLOWED, has_steps=False)
    windows = balance.windows(Recount({0: Sums(99, 0, 1), HOUR: Sums(8, 0, 13)}))
    assert [each.state for each in windows] == [WindowState.UNKNOWN, WindowState.BALANCED]
    assert "not in the ledger" in windows[0].unknown
    [only] = HopComparison(
        batches[:1], ALLOWED, has_steps=False, recorded={1: {PARTITION: 30}}
    ).windows(Recount({0: Sums(99, 0, 1)}))
    assert only.state is WindowState.UNKNOWN


def test_entries_that_the_sink_contradicts_prove_nothing():
    """The ledger was restored, or the sink; not both to one moment."""
    assert uncounted(entry([]), entry([], batch=5, start=5)) == [
        "offsets 5 to 10 of clicks/0 are in the ledger twice"
    ]
    beyond = [entry([]), replace(entry([], start=4), checkpoint=2)]
    assert uncounted(*beyond, recorded=4) == [
        "offsets 4 to 10 of clicks/0 are in the ledger and not in the sink"
    ]


def test_a_topic_that_was_created_again_begins_anew():
    again = LedgerEntry(1, 1, 1, HOUR, (EntryRange("clicks", "other", 0, 0, 5),), ())
    assert not breaks(entry([]), again)


def reprocessed(changes=(), ranges=()):
    at = datetime(2026, 11, 21, tzinfo=UTC)
    return ReprocessedEntry(1, at, at, tuple(ranges), 10, 0, HOUR, tuple(changes))


def test_rows_that_reprocessing_has_added_are_no_difference_to_a_recount():
    added, lost = Sums(3, 0, 77), Sums(1, 0, 5)
    entries = [reprocessed(changes_of({0: added}, {}))]
    balance = HopComparison([entry(balanced())], ALLOWED, entries, has_steps=False)

    def state(rows):
        [only] = balance.windows(Recount({0: rows}))
        return only.state

    assert state(Sums(8, 0, 13)) is WindowState.BALANCED
    assert state(Sums(8, 0, 13) + added) is WindowState.BALANCED
    assert state(Sums(8, 0, 13) + added - lost) is WindowState.UNBALANCED


def test_a_gap_that_reprocessing_has_read_is_none():
    batches = [entry(balanced()), entry(balanced(), batch=1, start=30)]
    again = [reprocessed(ranges=[EntryRange("clicks", "id", 0, 5, 25)])]
    [gap] = HopComparison(batches, ALLOWED, again, has_steps=False).breaks()
    assert (gap.start, gap.end, gap.is_gap) == (25, 30, True)
    balance = HopComparison(batches, ALLOWED, again, has_steps=False, unrecorded_parts=[2])
    assert balance.breaks() == []  # the part without an entry may have read it
    assert balance.uncounted


def test_rows_of_a_gap_that_reprocessing_has_filled_must_be_there():
    """Those of offsets that were read before may have been lost, or not."""
    batches = [entry(balanced()), entry(balanced(HOUR), batch=1, start=30)]
    rows = {window: Sums(8, 0, 13) for window in (0, HOUR)}
    [gap] = [EntryRange("clicks", "id", 0, 10, 30)]
    filled = Sums(20, 0, 77)

    def found(range_, *, is_there=True, **changes):
        part = replace(reprocessed(changes_of({0: filled}, {}), [range_]), checkpoint=1)
        balance = HopComparison(
            [*batches, *changes.get("more", ())], ALLOWED, [part], has_steps=False
        )
        table = rows | {0: rows[0] + filled} if is_there else rows
        missing = [
            each.number for window in balance.windows(Recount(table)) for each in window.differences
        ]
        return missing, [(each.start, each.end, each.is_gap) for each in balance.breaks()]

    assert found(gap) == ([], [])
    assert found(gap, is_there=False) == ([20], [])
    assert found(replace(gap, start=5), is_there=False) == ([], [])
    assert found(replace(gap, start=5), more=[replace(entry([], start=15), checkpoint=2)]) == (
        [],
        [(15, 25, False)],
    )
    again = replace(entry([], start=15), checkpoint=2)
    assert found(gap, more=[again]) == ([], [(15, 25, False)])
