"""The figures of Rollbar and RTB House, exactly."""

import json
from datetime import timedelta
from fractions import Fraction

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.cli.parameters import Amount, ByteSize
from headrace.operations.sizing.sizes import (
    GIB,
    KIB,
    TIB,
    JoinLoad,
    TopicLoad,
    catch_up,
    join_size,
    rate_to_catch_up,
    size,
)
from headrace.pipelines.join.index.slices import slice_length_us
from headrace.pipelines.join.matching import JoinWindow

DAY = timedelta(days=1)
ROLLBAR = {
    "events_per_second": Fraction(10_000),
    "event_bytes": Fraction(2500),
    "retention": timedelta(days=7),
    "replication": 3,
    "brokers": 4,
}


JOIN = JoinLoad(
    Fraction(1000), Fraction(300), DAY, timedelta(minutes=10), Fraction(50), Fraction(200)
)


def two_places(number):
    return round(float(number), 2)


def test_rollbars_topic():
    found = size(TopicLoad(**ROLLBAR))
    assert round(found.bytes_per_second / KIB) == 24_414
    assert found.retained_bytes == 10_000 * 2500 * 7 * 86_400
    assert two_places(found.retained_bytes / TIB) == 13.75
    assert two_places(found.replicated_bytes / TIB) == 41.25
    assert two_places(found.bytes_per_broker / TIB) == 10.31
    assert (found.partitions, found.warnings) == (None, ())


def test_rollbars_partitions():
    found = size(
        TopicLoad(
            **ROLLBAR,
            planned_events_per_second=Fraction(20_000),
            consumed_per_second=Fraction(2650),
        )
    )
    assert (found.partitions, found.planned_partitions) == (4, 8)


@pytest.mark.parametrize(
    ("processed", "needed"),
    [("57.74", "12:43"), ("176.35", "3:04"), ("344.17", "1:28"), ("643.34", "0:46")],
)
def test_rtb_houses_times_to_catch_up_with_a_day(processed, needed):
    time = catch_up(DAY, Fraction(20_000), Fraction(processed) * 1000)
    hours, minutes = map(int, needed.split(":"))
    assert timedelta(0) <= time - timedelta(hours=hours, minutes=minutes) < timedelta(minutes=1)


def test_rtb_houses_rate_for_a_day_in_an_hour():
    assert rate_to_catch_up(DAY, Fraction(20_000), timedelta(hours=1)) == 500_000


def test_who_is_not_faster_than_what_arrives_never_catches_up():
    assert catch_up(DAY, Fraction(20), Fraction(20)) is None
    assert catch_up(DAY, Fraction(20_000), 20_000 + Fraction(1, 10**9)) is None


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**5))
def test_the_rate_for_a_time_needs_that_time(arriving, lag_seconds, within_seconds):
    lag, within = timedelta(seconds=lag_seconds), timedelta(seconds=within_seconds)
    rate = rate_to_catch_up(lag, Fraction(arriving), within)
    assert abs(catch_up(lag, Fraction(arriving), rate) - within) <= timedelta(microseconds=1)


def test_compression_is_for_the_disk_alone():
    plain, packed = size(TopicLoad(**ROLLBAR)), size(TopicLoad(**ROLLBAR, compression=Fraction(4)))
    assert packed.bytes_per_second == plain.bytes_per_second
    assert packed.bytes_per_broker * 4 == plain.bytes_per_broker


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"brokers": 2}, "needs 3 brokers"),
        ({"brokers": 3}, "one broker more"),
        ({"replication": 1}, "one copy"),
        ({"consumed_per_second": Fraction(1)}, "more than 4000 a broker"),
    ],
)
def test_what_does_not_add_up_is_said(change, words):
    assert any(words in one for one in size(TopicLoad(**(ROLLBAR | change))).warnings)


def run(*arguments):
    return CliRunner().invoke(main, ["size", *arguments])


def test_the_command_answers_the_figures():
    answer = run(
        *("--rate", "10000", "--event-bytes", "2500", "--planned-rate", "20K"),
        *("--consumer-rate", "2650", "--lag", "1d", "--throughput", "57.74K", "--within", "1h"),
    )
    assert answer.exit_code == 0
    for figure in ("24,414", "13.75", "41.25", "10.31", "4", "8"):
        assert figure in answer.output.split()


def test_the_command_answers_json_with_units_in_its_names():
    answer = run("--rate", "20K", "--event-bytes", "500", "--lag", "1d", "--within", "1h", "--json")
    document = json.loads(answer.output)
    assert document["catch_up"]["rate_needed"] == 500_000
    assert document["retention_seconds"] == 7 * 86_400
    assert document["bytes_per_second"] == 10_000_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "0"], "no number above 0"),
        (["--rate", "ten"], "write 20000"),
        (["--rate", "1", "--event-bytes", "1", "--retention", "week"], "write 90d"),
        (["--rate", "1", "--event-bytes", "1", "--lag", "1d"], "--within 1h"),
        (["--rate", "1", "--event-bytes", "1", "--within", "1d"], "need --lag"),
        (["--rate", "1"], "--event-bytes is missing"),
        (["--rate", "1", "--event-bytes", "1", "--topic", "t"], "are for --measure"),
        (["--rate", "1", "--measure", "--topic", "t", "--sample", __file__], "keep one"),
        (["--rate", "1", "--measure", "--seconds", "0"], "--seconds"),
        (["--rate", "1", "--measure", "--sample", "none.ndjson"], "'none.ndjson' does not exist"),
    ],
)
def test_what_can_not_be_read_is_named_with_the_remedy(arguments, words):
    answer = run(*arguments)
    assert answer.exit_code == 2
    assert words in answer.output


@pytest.mark.parametrize(
    ("given", "size"),
    [("2500", 2500), ("2.5kB", 2500), ("2KiB", 2048), ("1e3", 1000), ("1MiB", 1 << 20)],
)
def test_a_size_says_which_thousand_it_means(given, size):
    assert ByteSize().convert(given, None, None) == size


@pytest.mark.parametrize("given", ["1K", "1M", "0", "", "KiB", "-1", "1TiBs"])
def test_a_size_that_could_mean_two_is_none(given):
    with pytest.raises(click.BadParameter, match=r"write 2500, 2.5kB \(2,500\) or 2KiB"):
        ByteSize().convert(given, None, None)


@pytest.mark.parametrize(
    ("given", "amount"), [("10k", 10_000), ("57.74K", 57_740), ("1e9", 10**9), ("2G", 2 * 10**9)]
)
def test_a_rate_counts_in_thousands(given, amount):
    assert Amount().convert(given, None, None) == amount


def test_sizes_are_shown_in_the_largest_unit_of_which_there_is_one():
    found = CliRunner().invoke(
        main, ["size", "--rate", "1", "--event-bytes", "1KiB", "--retention", "7d"]
    )
    shown = " ".join(found.output.split())
    assert "one copy 590.62 MiB" in shown
    assert "3 copies 1.73 GiB" in shown


def test_a_join_keeps_its_horizon_and_a_slice_of_it():
    found = join_size(JOIN)
    assert found.kept_events == 1000 * (86_400 + 2 * 600 + 86_400 // 8)
    assert found.checkpoint_bytes == found.index_bytes == found.kept_events * 300 / 3
    assert two_places(found.checkpoint_bytes / GIB) == 9.16
    assert (found.waiting_events, found.waiting_bytes) == (30_000, 6_000_000)


def test_the_horizon_is_that_of_the_join():
    within_us, wait_us = 86_400_000_000, 600_000_000
    slices = slice_length_us(within_us)
    remembered_us = 10**15 - JoinWindow(within_us, wait_us).horizon_us(10**15)
    assert join_size(JOIN).kept_events == 1000 * Fraction(remembered_us + slices, 10**6)


def test_a_join_is_sized_beside_its_topic():
    command = "--rate 1k --event-bytes 300 --join-within 1d --later-rate 50 --later-bytes 200"
    shown = run(*command.split(), "--json")
    assert json.loads(shown.stdout)["join"]["checkpoint_bytes"] == join_size(JOIN).checkpoint_bytes
    rows = [line.split()[-2:] for line in run(*command.split()).stdout.splitlines()]
    assert (rows[-6:]) == [["9.16", "GiB"]] * 2 + [
        ["30,000", "events"],
        ["5.72", "MiB"],
        ["32.00", "MiB"],
        ["123.60", "MiB"],
    ]


def test_a_measured_compression_replaces_the_one_of_the_bench():
    command = "--rate 1k --event-bytes 300 --join-within 1d --join-wait 1m --json"
    answer = json.loads(run(*command.split(), "--join-compression", "2").stdout)["join"]
    assert answer["checkpoint_bytes"] == 1000 * (86_400 * 9 // 8 + 120) * 150


def test_options_of_a_join_without_one_are_named():
    answer = run("--rate", "1k", "--event-bytes", "300", "--later-rate", "50", "--join-wait", "1m")
    assert answer.exit_code == 2
    assert "--later-rate, --join-wait needs --join-within" in answer.stderr
