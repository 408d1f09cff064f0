"""Whose headers are looked at where no replay is known of."""

import pytest

from headrace.kafka.dead_letters.replayed import LOOKED_AT_AFTER_MS, PartitionId, addressees
from headrace.model import TopicPartition
from headrace.pipelines.source.reading.addressed import Addressed
from headrace.testing.memory import MemoryRecord

HERE = PartitionId(TopicPartition("numbers", 0), "id")
NOW_MS = 1_763_000_000_000
OLD_MS = NOW_MS - LOOKED_AT_AFTER_MS - 1


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "is_left_out"),
    [
        (NOW_MS - 1000, NOW_MS, False),
        (NOW_MS, NOW_MS + 60_000, False),  # of a producer whose clock is ahead
        (OLD_MS, NOW_MS, True),
        (NOW_MS, OLD_MS, True),
        (-1, -1, True),
        (NOW_MS * 1_000_000, NOW_MS, True),
        (NOW_MS, NOW_MS * 1000, True),
        (NOW_MS * 1_000_000, NOW_MS * 1_000_000, True),
    ],
)
def test_headers_are_looked_at_where_the_time_of_records_is_old_or_says_nothing(
    first_ms, last_ms, is_left_out
):
    records = [
        MemoryRecord(0, b"", timestamp_ms=first_ms),
        MemoryRecord(1, b"", timestamp_ms=OLD_MS, header=(addressees(["others"], HERE),)),
        MemoryRecord(2, b"", timestamp_ms=last_ms),
    ]
    addressed = Addressed("numbers", HERE, NOW_MS, may_hold_replays=False)
    found = [one.offset() for one in addressed.of(records)]
    assert found == ([0, 2] if is_left_out else [0, 1, 2])
    assert addressed.skipped == is_left_out


@pytest.mark.parametrize("leaves_out_replays", [False, True])
def test_replays_for_the_reader_itself_are_left_out_where_it_reads_their_records(
    leaves_out_replays,
):
    copied = addressees(["numbers"], PartitionId(HERE.partition, "of a copy"))
    headers = [(), (addressees(["numbers"], HERE),), (copied,)]
    records = [MemoryRecord(n, b"", header=header) for n, header in enumerate(headers)]
    addressed = Addressed(
        "numbers",
        HERE,
        NOW_MS,
        may_hold_replays=True,
        leaves_out_replays=leaves_out_replays,
    )
    found = [one.offset() for one in addressed.of(records)]
    assert found == ([0, 2] if leaves_out_replays else [0, 1, 2])
