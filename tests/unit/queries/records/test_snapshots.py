"""What is read of a partition of snapshots: the newest of each window, and what is damaged."""

from __future__ import annotations

import msgspec
import pytest

from headrace.queries.records.snapshots import (
    PublishMarker,
    Restored,
    SnapshotPosition,
    WindowSnapshot,
    encode_markers,
    encode_silence,
    encode_snapshot,
)

POSITION = SnapshotPosition(offset=7, base=0, event_us={"clicks": 5}, late={"a": 2})


def snapshot(offset=3, *, query="a", begin_us=0, groups=1):
    return WindowSnapshot(
        query=query,
        registered_ms=0,
        revision=1,
        begin_us=begin_us,
        text_hash="hash",
        offset=offset,
        text="SELECT count(*) FROM clicks",
        changed_ms=1,
        emitted_ms=2,
        emission=3,
        events=groups,
        groups=[((f"é{number}", None, 1.0), (1,)) for number in range(groups)],
        other=[2**70],
    )


def ended(offset=5, *, query="a"):
    return PublishMarker(
        query=query,
        registered_ms=0,
        revision=1,
        begin_us=0,
        text_hash="hash",
        offset=offset,
        ended_ms=9,
        topic="clicks",
        events=2,
    )


def encoded(*records):
    """Returns the values of records; a list has values already."""
    values = []
    for record in records:
        match record:
            case list():
                values += record
            case WindowSnapshot():
                values += encode_snapshot(record)
            case _:
                values.append(msgspec.json.encode(record))
    return values


def restored(*records):
    result = Restored()
    result.take(encoded(*records))
    return result


PART_BYTES = 100


@pytest.fixture
def parts():
    """Values of the parts of a snapshot that a record has no room for."""
    values = list(encode_snapshot(snapshot(groups=9), PART_BYTES))
    assert len(values) > 3
    return values


def test_the_newest_snapshot_of_a_window_counts():
    result = restored(snapshot(3), snapshot(2, query="b"), snapshot(6, groups=2), POSITION)
    assert result.windows == {
        each.id: each for each in (snapshot(6, groups=2), snapshot(2, query="b"))
    }
    assert (result.position, result.damaged) == (POSITION, 0)


def test_the_last_position_counts():
    last = SnapshotPosition(offset=9, base=0, event_us={}, late={})
    assert restored(POSITION, last).position == last


def test_a_window_that_has_ended_has_no_snapshot():
    result = restored(snapshot(), ended())
    assert result.windows == {}
    assert result.ended == {ended().id: ended()}


def test_an_older_end_is_not_that_of_a_window_that_has_begun_anew():
    result = restored(snapshot(), ended(5), snapshot(6), list(encode_markers([ended(5)])))
    assert [each.offset for each in result.windows.values()] == [6]
    assert list(restored(ended(5, query="b"), ended(5), ended(9, query="b")).ended.values()) == [
        ended(5),
        ended(9, query="b"),
    ]


def test_the_end_of_a_window_is_that_of_no_other():
    result = restored(snapshot(query="b"), snapshot(begin_us=1), ended())
    assert set(result.windows) == {snapshot(query="b").id, snapshot(begin_us=1).id}


def test_markers_that_were_written_once_more_count():
    markers = [ended(query=f"q{number}") for number in range(2_500)]
    values = list(encode_markers(markers))
    assert len(values) < 10
    assert max(map(len, values)) < 2**20
    result = restored(snapshot(query="q7"), values)
    assert list(result.ended.values()) == markers
    assert result.windows == {}


def answered():
    position = {
        "kind": "answered",
        "first_offset": 1,
        "offset": 2,
        "passed_us": {},
        "clocks": {},
        "event_us": {},
    }
    return msgspec.json.encode(position)


def test_the_newest_silence_of_each_query_counts():
    first = {f"q{number}": (number, False) for number in range(2_500)}
    values = list(encode_silence(first))
    assert [len(msgspec.json.decode(value)["silence"]) for value in values] == [1_000, 1_000, 500]
    result = restored(values, [answered()], list(encode_silence({"q7": (9, True)})))
    assert result.silence == first | {"q7": (9, True)}


def test_nothing_is_restored_of_no_records():
    result = restored()
    assert (result.windows, result.ended, result.position, result.damaged) == ({}, {}, None, 0)


def test_records_may_be_taken_in_parts(parts):
    result = Restored()
    for value in parts:
        result.take([value])
    assert list(result.windows.values()) == [snapshot(groups=9)]


def test_a_large_snapshot_is_divided(parts):
    result = restored(parts, POSITION)
    assert list(result.windows.values()) == [snapshot(groups=9)]
    assert result.damaged == 0


def test_parts_of_several_windows_may_alternate(parts):
    other = list(encode_snapshot(snapshot(query="b", groups=9), PART_BYTES))
    assert len(other) == len(parts)
    alternating = [value for pair in zip(parts, other, strict=True) for value in pair]
    assert {window.query for window in restored(alternating).windows} == {"a", "b"}


@pytest.mark.parametrize("missing", [1, -1])
def test_a_missing_part_is_noticed(parts, missing):
    del parts[missing]
    result = restored(parts, POSITION)
    assert result.damaged == 1
    assert result.windows == {}


def test_swapped_parts_are_noticed(parts):
    parts[1], parts[2] = parts[2], parts[1]
    result = restored(parts, POSITION)
    assert (result.damaged, result.windows) == (1, {})


def test_a_part_of_another_snapshot_is_noticed(parts):
    parts[0] = next(encode_snapshot(snapshot(4, groups=9), PART_BYTES))
    result = restored(parts, POSITION)
    assert (result.damaged, result.windows) == (1, {})


def test_a_snapshot_that_is_read_from_its_middle_on_is_left_out(parts):
    result = restored(parts[1:], snapshot(2, query="b"), POSITION)
    assert (result.damaged, set(result.windows)) == (0, {snapshot(query="b").id})


def test_a_damaged_text_is_noticed():
    [value] = encode_snapshot(snapshot())
    part = msgspec.json.decode(value)
    part["text"] = part["text"].replace('"events":1', '"events":2')
    assert restored([msgspec.json.encode(part)]).damaged == 1


def test_a_snapshot_behind_a_damaged_one_counts(parts):
    del parts[1]
    result = restored(parts, snapshot(8), POSITION)
    assert list(result.windows.values()) == [snapshot(8)]
    assert result.damaged == 1


@pytest.mark.parametrize("value", [b"", b"{}", b'{"kind":"unknown"}', b"[1]"])
def test_a_record_of_another_kind_is_refused(value):
    with pytest.raises(ValueError, match=r"JSON|Object|Invalid|Expected|Input"):
        Restored().take([value])
