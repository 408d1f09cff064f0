"""What a task keeps of a producer that has turned bad."""

import pytest
from tests.contracts.source import event, reader_of, spec

from headrace.model import DeadLetter, DeadLetterLimit, OffsetRange, TopicPartition
from headrace.pipelines.source.reading import bad_records
from headrace.pipelines.source.reading.bad_records import BadRecords
from headrace.testing.memory import MemoryCluster

NUMBERS = TopicPartition("numbers", 0)


@pytest.fixture
def reports(tmp_path):
    """The report of a range with these values, read in chunks of the cluster's."""

    def of(values, **limit):
        cluster = MemoryCluster()
        cluster.create("numbers", 1)
        for value in values:
            cluster.append("numbers", 0, value)
        found = spec(cluster, "numbers", tmp_path, dead_letter_limit=DeadLetterLimit(**limit))
        reader = reader_of(found, OffsetRange(NUMBERS, 0, len(values)), 0, topic_id="id")
        for _ in reader.tables():
            pass
        return reader.report()

    return of


@pytest.mark.parametrize(("ranges", "kept"), [(1, 16), (16, 16), (32, 8), (512, 1)])
def test_the_ranges_of_a_batch_share_what_the_driver_has_room_for(ranges, kept):
    bad = BadRecords(DeadLetterLimit(), ranges)
    letter = DeadLetter(NUMBERS, 0, "not-json", "", None, b"x" * 2**20)
    bad.take([letter] * 40, longest_run=1)
    assert (len(bad.kept), bad.omitted) == (kept + (ranges < 512), 39 - kept + (ranges == 512))


def test_bad_records_are_kept_while_the_limit_allows_them(reports):
    report = reports([b"bad"] * 10, max_consecutive=10)
    assert (len(report.dead), report.omitted, report.bad) == (10, 0, 10)


def test_of_a_run_that_stops_the_pipeline_the_first_is_kept_and_all_are_counted(reports):
    report = reports([event(0), *[b"bad"] * 15_000], max_consecutive=1_000)
    assert [letter.offset for letter in report.dead] == [1]
    assert (report.bad, report.bad_runs.longest) == (15_000, 15_000)


def test_bytes_of_bad_records_are_bounded_where_good_ones_lie_between(reports, monkeypatch):
    monkeypatch.setattr(bad_records, "MAX_BYTES", 5_000)
    report = reports([b"x" * 1_000, event(0)] * 5_000)
    assert sum(len(letter.value) for letter in report.dead) <= 6_000
    assert (report.bad, report.bad_runs.longest) == (5_000, 1)


def test_one_bad_record_is_kept_however_large(reports, monkeypatch):
    monkeypatch.setattr(bad_records, "MAX_BYTES", 5_000)
    assert len(reports([b"x" * 1_000_000]).dead) == 1
