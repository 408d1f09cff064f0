"""Event time and partition values, checked in the rows of whatever decoder gave them."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headrace.model.durations import microseconds
from headrace.pipelines.source.decode import Decoded
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks

TIME = pa.timestamp("us", tz="UTC")
BOUNDS = EventTimeBounds("at", 10, 20)


def decoded(times, names=None, rejected=None):
    columns = {"at": pa.array(times, pa.int64()).cast(TIME)}
    if names is not None:
        columns["name"] = pa.array(names, pa.string())
    return Decoded(pa.table(columns), rejected or {})


def reasons(checked):
    return {index: reason for index, (reason, _) in checked.rejected.items()}


def test_without_bounds_and_partition_columns_every_row_stays():
    rows = decoded([None, -1, 2**53], ["..", "a/b", None])
    assert RowChecks(None, ()).applied(rows, 3) is rows


def test_bounds_are_included_and_a_null_event_time_is_within_them():
    checked = RowChecks(BOUNDS, ()).applied(decoded([10, None, 20, 9, 21, None]), 6)
    assert reasons(checked) == dict.fromkeys([3, 4], "event-time-out-of-bounds")
    assert checked.rows["at"].cast(pa.int64()).to_pylist() == [10, None, 20, None]


def test_rows_are_known_by_the_index_of_their_record():
    earlier = {1: ("not-json", "x"), 4: ("empty", "y")}
    checked = RowChecks(BOUNDS, ["name"]).applied(
        decoded([10, 9, 11, 12], ["a", "b", "..", "c"], earlier), 6
    )
    assert list(checked.rejected) == [1, 2, 3, 4]
    assert reasons(checked) == {
        1: "not-json",
        2: "event-time-out-of-bounds",
        3: "unsafe-partition-value",
        4: "empty",
    }
    assert checked.rows["name"].to_pylist() == ["a", "c"]


def test_a_row_that_fails_both_checks_is_rejected_for_its_event_time():
    checked = RowChecks(BOUNDS, ["name"]).applied(decoded([9], [".."]), 1)
    assert reasons(checked) == {0: "event-time-out-of-bounds"}


def test_null_and_empty_texts_can_name_a_partition():
    rows = decoded([10, 10], [None, ""])
    assert RowChecks(BOUNDS, ["name"]).applied(rows, 2) is rows


def test_bounds_beyond_the_calendar_do_not_break_the_sentence():
    now = int(datetime(2019, 11, 24, tzinfo=UTC).timestamp() * 1e6)
    checked = RowChecks(EventTimeBounds("at", 2**62, 2**62), ()).applied(decoded([now]), 1)
    (reason, sentence) = checked.rejected[0]
    assert reason == "event-time-out-of-bounds"
    assert "is 2019-11-24T00:00:00+00:00, before the earliest accepted, 9999" in sentence


def test_a_latest_time_beyond_64_bits_is_no_bound():
    ahead = microseconds(timedelta.max)
    checked = RowChecks(EventTimeBounds("at", 10, ahead), ()).applied(decoded([9, 11, 2**57]), 3)
    assert reasons(checked) == {0: "event-time-out-of-bounds"}


def test_several_partition_columns_are_all_checked():
    rows = pa.table({"a": ["x", "..", "y"], "b": ["/", "x", "y"]})
    checked = RowChecks(None, ["a", "b"]).applied(Decoded(rows, {}), 3)
    assert reasons(checked) == dict.fromkeys([0, 1], "unsafe-partition-value")
    assert checked.rejected[0][1] == "field 'b' holds '/', which separates directories"
