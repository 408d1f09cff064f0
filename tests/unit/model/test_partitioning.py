"""Partition strategies: pure, balanced, and order kept where it is promised."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import (
    ByAccount,
    ByField,
    ByHash,
    ByKey,
    ByShard,
    Random,
    Spread,
    partition_of,
)
from headrace.model.partitioning import first_window, murmur2

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_java_client(key, value):
    """The vectors of Kafka's own UtilsTest."""
    assert murmur2(key.encode()) == value


def test_the_key_is_the_clients_business():
    assert partition_of(ByKey(), 8)({}, "acme", NOON) == -1


def test_random_goes_everywhere():
    place = partition_of(Random(), 4)
    assert set(Counter(place({}, "acme", NOON) for _ in range(400))) == {0, 1, 2, 3}


@given(st.text(), st.integers(1, 50))
def test_a_field_decides_alone(value, partitions):
    place = partition_of(ByField("user"), partitions)
    found = place({"user": value, "n": 1}, "acme", NOON)
    assert 0 <= found < partitions
    assert found == place({"user": value, "n": 2}, "other", NOON + HOUR)


@pytest.mark.parametrize(("value", "partition"), [("21", 0), ("foobar", 6), ("abc", 7)])
def test_a_value_lies_where_kafkas_java_client_puts_it_as_a_key(value, partition):
    """By the vectors above: positive, modulo ten."""
    assert partition_of(ByField("user"), 10)({"user": value}, "acme", NOON) == partition


def test_a_missing_field_is_one_value():
    place = partition_of(ByField("user"), 8)
    assert place({}, "a", NOON) == place({"user": None}, "b", NOON)


def test_windows_of_a_hot_value_lie_in_many_partitions_and_each_in_one():
    place = partition_of(ByHash(("query",), HOUR), 16)
    fields = {"query": "hot"}
    windows = [NOON + number * HOUR for number in range(200)]
    starts = [place(fields, "a", begin) for begin in windows]
    ends = [place(fields, "a", begin + HOUR - timedelta(microseconds=1)) for begin in windows]
    assert starts == ends
    assert len(set(starts)) == 16


def test_shards_of_numbers_are_where_the_map_says():
    place = partition_of(ByShard("shard", {1: 3, 2: 1}, otherwise=2), 4)
    assert [place({"shard": shard}, "x", NOON) for shard in (1, 2, 3, None)] == [3, 1, 2, 2]


def test_shards_are_where_the_map_says():
    place = partition_of(ByShard("shard", {"a": 3, "b": 1}, otherwise=2), 4)
    assert [place({"shard": one}, "x", NOON) for one in ("a", "b", "c")] == [3, 1, 2]


def test_an_account_without_a_spread_keeps_one_partition():
    place = partition_of(ByAccount(HOUR), 16)
    assert len({place({}, "small", NOON + number * HOUR) for number in range(100)}) == 1


GROWN = (Spread(NOON, 4), Spread(NOON + 100 * HOUR, 8), Spread(NOON + 200 * HOUR, 1))


def test_a_spread_grows_and_shrinks_again():
    place = partition_of(ByAccount(HOUR, {"large": GROWN}), 32)
    used = [
        {place({}, "large", NOON + (first + number) * HOUR) for number in range(100)}
        for first in (-100, 0, 100, 200)
    ]
    assert [len(one) for one in used] == [1, 4, 8, 1]
    assert used[0] == used[3]
    assert used[1] < used[2]


@given(st.integers(0, 300 * 60 - 1), st.integers(0, 59), st.timedeltas(-HOUR, HOUR))
def test_no_window_is_divided_whenever_the_spread_changes(minute, later, shift):
    spreads = tuple(Spread(one.since + shift, one.partitions) for one in GROWN)
    place = partition_of(ByAccount(HOUR, {"large": spreads}), 32)
    time = NOON + timedelta(minutes=minute - 50 * 60)
    begin = time - timedelta(minutes=time.minute)
    assert place({}, "large", begin) == place({}, "large", begin + timedelta(minutes=later))


def test_an_account_may_be_a_field_of_the_event():
    of_field = partition_of(ByAccount(HOUR, {"large": GROWN}, account="owner.id"), 32)
    of_sender = partition_of(ByAccount(HOUR, {"large": GROWN}), 32)
    for number in range(300):
        at = NOON + number * HOUR
        placed = of_field({"owner": {"id": "large"}}, "of the token", at)
        assert placed == of_sender({}, "large", at)
    assert of_field({}, "large", NOON) == of_sender({}, "", NOON)


def test_of_declared_and_applied_spreads_the_latest_since_counts():
    declared = (Spread(NOON, 4), Spread(NOON + 100 * HOUR, 8))
    applied = (Spread(NOON + 50 * HOUR, 2), Spread(NOON + 100 * HOUR, 1))
    place = partition_of(ByAccount(HOUR, {"a": declared}), 32, lambda account, _: applied)
    expected = {(0, 50): 4, (50, 100): 2, (100, 300): 1}
    for (first, end), width in expected.items():
        used = {place({}, "a", NOON + number * HOUR) for number in range(first, end)}
        assert len(used) == width


@given(st.integers(-(10**15), 10**16), st.integers(1, 10**6))
def test_the_first_window_is_the_first_that_begins_at_or_after_a_time(micros, seconds):
    time, window = NOON + timedelta(microseconds=micros), timedelta(seconds=seconds)
    begin = first_window(time, window)
    assert time <= begin < time + window
    assert (begin - datetime(1970, 1, 1, tzinfo=UTC)) % window == timedelta(0)
