"""What a target holds, counted again: rows, counts that it keeps, dead letters."""

import pytest
from tests.unit.pipelines.ledger.test_balance import ALLOWED, entry, line

from headrace.kafka.dead_letters import StoredDeadLetter
from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.late_data.rule import LATE_EVENT
from headrace.pipelines.ledger.balance import Balance
from headrace.pipelines.ledger.letters import recount_letters
from headrace.pipelines.ledger.recount import added_counts
from headrace.pipelines.ledger.sums import Fate, Hop, Sums
from headrace.pipelines.ledger.tally import LedgerRule
from headrace.sinks.api import WindowCounts

CLICKS = TopicPartition("clicks", 0)
RULE = LedgerRule(3600, "at", "id")


def letter(offset, partition=CLICKS, reason="not-json", topic_id="id"):
    dead = DeadLetter(partition, offset, reason, "", None, b"x")
    return StoredDeadLetter(dead, "fused", "1", topic_id, 0, (partition, 0), 0)


def lost(letters, dead=3, rejected=0):
    lines = [
        line(Hop.READ, Fate.DEAD, (dead, 0, 0), window=None),
        line(Hop.SINK, Fate.DEAD, (rejected, 0, 0)),
    ]
    balance = Balance([entry(lines)], ALLOWED, has_steps=False)
    found = recount_letters(letters, balance).differences
    return [(difference.partition, difference.number) for difference in found]


def test_letters_of_records_count_once():
    assert not lost([letter(1), letter(2), letter(3), letter(3)])
    assert lost([letter(1), letter(2), letter(2), letter(2)]) == [("clicks/0", 1)]


@pytest.mark.parametrize(
    "other",
    [letter(10), letter(1, topic_id="another"), letter(1, reason=LATE_EVENT)],
    ids=["from before the ledger", "of a topic that is gone", "of a late event"],
)
def test_letters_of_other_records_stand_for_none(other):
    assert lost([letter(2), letter(3), other]) == [("clicks/0", 1)]


def test_letters_of_rows_may_be_there_twice_and_not_be_missing():
    no_record = TopicPartition("clicks", -1)
    rows = [letter(-1, no_record, "not-unique")] * 3
    assert not lost(rows, dead=0, rejected=2)
    assert lost(rows[:1], dead=0, rejected=2) == [("", 1)]


def test_counts_of_short_windows_add_up_to_those_of_the_ledger():
    counts = WindowCounts(60, "at", {0: 2, 60: 3, 3600: 5, -60: 7}, {})
    recount = added_counts(counts, RULE)
    assert recount.sums == {0: Sums(5), 3600: Sums(5), -3600: Sums(7)}
    assert not recount.has_ids


def test_counts_by_another_time_are_not_comparable():
    counts = WindowCounts(60, "seen_at", {0: 2}, {})
    assert added_counts(counts, RULE).failure
    assert added_counts(WindowCounts(60, "at", {}, {}), RULE, ["at"]).failure


def test_counts_know_what_they_recorded():
    counts = WindowCounts(60, "at", {}, {"one": 1, "two": 2})
    assert counts.versions(["two", "three"]) == {"two": 2}
