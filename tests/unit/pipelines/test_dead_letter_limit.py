"""Limits are looked at by counts: letters that a task could not carry are counted too."""

import pytest

from headrace import Lake, Pipeline
from headrace.errors import DeadLetterLimitError
from headrace.kafka.dead_letters.limiter import BadRuns
from headrace.model import DeadLetter, DeadLetterLimit, OffsetRange, Topic, TopicPartition
from headrace.pipelines.batch.limit_check import LimitCheck
from headrace.pipelines.source.report import RangeReport
from headrace.pipelines.source.staging import StepReport
from headrace.sinks.api import RejectedValues

REJECTED = RejectedValues("{}", "not-unique", "key")
ROW = DeadLetter(TopicPartition("clicks", -1), -1, "not-unique", "key", None, b"{}")


class Click:
    n: int


def report(records, *bad, partition=0, omitted=0):
    where = TopicPartition("clicks", partition)
    return RangeReport(
        range=OffsetRange(where, 0, records),
        position=records,
        records=records,
        bytes=records,
        last_timestamp_ms=0,
        event_times=(),
        bad_runs=BadRuns.of(bad, records),
        dead=tuple(DeadLetter(where, n, "not-json", "it is cut off", None, b"{") for n in bad),
        omitted=omitted,
    )


@pytest.fixture
def check():
    limit = DeadLetterLimit(max_ratio=0.1, max_consecutive=5, min_records=100)
    pipeline = Pipeline("p", Topic("clicks", event=Click), Lake("t"), dead_letter_limit=limit)
    return LimitCheck(pipeline)


def test_a_few_bad_records_pass(check):
    check.check([report(100, 3, 50, 70), report(100, partition=1)], derived=[ROW] * 1)


def test_too_large_a_share_stops_and_names_the_first(check):
    with pytest.raises(DeadLetterLimitError, match=r"11 of 100 .*clicks\[0\] offset 2: not-json"):
        check.check([report(100, *range(2, 90, 8))], derived=())


def test_letters_that_were_not_carried_and_derived_ones_are_counted(check):
    with pytest.raises(DeadLetterLimitError, match="1003 of 5000 records"):
        check.check([report(5_000, 2, omitted=1_000)], derived=[ROW] * 2)


def test_a_small_batch_is_not_judged_by_its_share(check):
    check.check([report(9, 1, 3, 5)], derived=())


def test_a_run_goes_on_from_batch_to_batch(check):
    check.check([report(3, 0, 1, 2)], derived=())
    with pytest.raises(DeadLetterLimitError, match="6 bad records in a row"):
        check.check([report(4, 0, 1, 2)], derived=())


def test_bad_records_that_can_not_be_carried_stop_before_some_are_lost(check):
    with pytest.raises(DeadLetterLimitError, match=r"11 bad records .* more than 16 MiB"):
        check.check([report(5_000, 2, omitted=10)], derived=())


def test_rows_that_could_not_be_carried_are_counted_and_stop_the_batch(check):
    with pytest.raises(DeadLetterLimitError, match="1001 of 5000 records"):
        check.check([report(5_000)], [ROW], omitted=1_000)


def test_a_few_large_rows_that_could_not_be_carried_stop_the_batch(check):
    with pytest.raises(DeadLetterLimitError, match=r"the 3 rows .* more than 16 MiB in a task"):
        check.check([report(5_000)], [ROW], omitted=2)


def test_rows_behind_the_watermark_stop_the_batch_only_if_they_could_not_be_carried(check):
    check.check_steps(StepReport(behind=(ROW,) * 1_000))
    with pytest.raises(DeadLetterLimitError, match="the 3 rows behind the watermark hold more"):
        check.check_steps(StepReport(behind=(ROW,), omitted=2))


def test_the_way_out_of_too_many_rows_behind_the_watermark_is_not_the_limit(check):
    """It does not count them."""
    with pytest.raises(DeadLetterLimitError) as raised:
        check.check_steps(StepReport(behind=(ROW,), omitted=2))
    assert "LateData.DROP" in raised.value.remedy
    assert "dead_letter_limit" not in str(raised.value)


def test_rows_that_the_commit_rejects_are_a_share_of_the_batch(check):
    check.check([report(5_000)], derived=())
    check.count_rejected([REJECTED] * 400)
    check.check([report(5_000)], derived=())
    with pytest.raises(DeadLetterLimitError, match=r"501 of 5000 records are bad .*a row: not-un"):
        check.count_rejected([REJECTED] * 501)


def test_rows_that_commits_of_small_batches_reject_are_a_share_of_all_records(check):
    """A fifth of the records, where a tenth may be: not less for being counted beside others."""
    for _ in range(5):
        check.check([report(10)], derived=())
        check.count_rejected([REJECTED] * 2)
    check.check([report(10)], derived=())
    with pytest.raises(DeadLetterLimitError, match="12 of 60 records are bad"):
        check.count_rejected([REJECTED] * 2)


def test_batches_of_which_the_commit_rejects_nothing_count_too(check):
    for _ in range(100):
        check.check([report(10)], derived=())
        check.check([report(10)], derived=())
        check.count_rejected([REJECTED] * 2)


def test_rows_that_a_commit_rejects_in_several_rounds_are_a_share_of_the_batch(check):
    check.check([report(5_000)], derived=())
    for _ in range(5):
        check.count_rejected([REJECTED] * 100)
    with pytest.raises(DeadLetterLimitError, match="501 of 5000 records are bad"):
        check.count_rejected([REJECTED])
