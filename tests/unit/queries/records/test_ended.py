"""Records of ended windows: each has room in a record of Kafka."""

from datetime import timedelta

import msgspec
import pytest

from headrace.queries import topics
from headrace.queries.records.ended import (
    COPY_AFTER_MS,
    PartitionClocks,
    WindowResults,
    decode_ended,
)
from headrace.queries.records.result import QueryResult, ResultKind

MEGABYTE = 2**20


def result(text):
    return QueryResult(
        query="q",
        registered="2026-01-01T00:00:00Z",
        revision=1,
        begin="2026-01-01T00:00:00Z",
        end="2026-01-01T00:01:00Z",
        emission=1,
        kind=ResultKind.FINAL,
        facets={"country": text},
        is_other=False,
        values={"count(*)": 1},
        events=1,
    )


def window_of(results):
    return WindowResults(3, "views", "views", 7, results, matches=900)


def test_a_window_with_much_text_is_sent_in_parts_that_have_all_results_once():
    results = [result(f"{number}\0" * 1_000) for number in range(300)]
    parts = list(window_of(results).parts())
    encoded = [msgspec.json.encode(part) for part in parts]
    assert len(parts) > 1
    assert max(map(len, encoded)) < MEGABYTE
    decoded = [decode_ended(value, 4) for value in encoded]
    assert [each for part in decoded for each in part.results] == results
    assert {(part.partition, part.topic, part.due_us) for part in decoded} == {(3, "views", 7)}
    assert [part.matches for part in decoded] == [900, *[0] * (len(parts) - 1)]


def test_a_window_is_written_once_more_after_half_the_retention_of_the_topic():
    assert 2 * timedelta(milliseconds=COPY_AFTER_MS) == topics._STAGE_RETENTION


def test_a_small_window_is_one_record():
    window = window_of([result("PL"), result("DE")])
    assert list(window.parts()) == [window]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (window_of([]), "without results"),
        (window_of([msgspec.structs.replace(result("PL"), end="soon")]), "end is 'soon'"),
        (msgspec.structs.replace(window_of([result("PL")]), partition=4), "no partition 4"),
        (PartitionClocks(-1, {}, 0), "no partition -1"),
        (PartitionClocks(0, {"views": 10**30}, 0), r"event_us\[\.\.\.\]"),
        (PartitionClocks(0, {}, -(10**30)), "clock_us"),
    ],
)
def test_what_no_instance_has_written_is_no_record(record, reason):
    with pytest.raises(ValueError, match=reason):
        decode_ended(msgspec.json.encode(record), 4)
