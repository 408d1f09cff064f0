"""What was sent of events, and which of them are compared."""

from __future__ import annotations

import pytest

from headrace.kafka.origin import Origin
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.emit.sent import RecordedMatches, SentEventRecord

EVENTS = OffsetRange(TopicPartition("clicks", 1), 10, 20)


def sent(*offsets, is_asked_for=True, max_matches=10):
    events = RecordedMatches(EVENTS, max_matches)
    for offset in offsets:
        record = SentEventRecord(Origin("here", "clicks", 1, offset), "q", 0)
        events.take(record, is_asked_for=is_asked_for)
    return events


def test_matches_of_the_range_are_counted_as_often_as_they_are_there():
    assert dict(sent(9, 10, 12, 12, 19, 20).matches) == {(10, "q"): 1, (12, "q"): 2, (19, "q"): 1}
    assert not sent(12, is_asked_for=False).matches


@pytest.mark.parametrize(("first", "start"), [(3, 10), (9, 10), (10, 11), (15, 16), (19, 20)])
def test_where_kafka_has_deleted_some_it_begins_behind_the_first(first, start):
    events = sent(first, 19)
    events.leave_out_first()
    assert events.events == OffsetRange(EVENTS.partition, start, 20)
    assert all(offset >= start for offset, _ in events.matches)
    assert bool(events.matches) is (start < 20)


def test_a_record_that_was_sent_again_later_tells_nothing_of_what_is_deleted():
    events = sent(13, 14, 11, 15)
    events.leave_out_first()
    assert events.events.start == 14


def test_an_event_of_another_query_is_as_old_as_any():
    events = sent(13, is_asked_for=False)
    events.leave_out_first()
    assert events.events.start == 14


def test_of_a_partition_of_which_all_are_deleted_nothing_is_left_out():
    events = sent()
    events.leave_out_first()
    assert (events.has_records, events.events) == (False, EVENTS)


def test_of_too_many_matches_the_newest_are_compared():
    events = sent(*range(10, 20), max_matches=5)
    assert events.events.start > 12
    assert sorted(offset for offset, _ in events.matches) == list(range(events.events.start, 20))
    assert 0 < len(events.matches) <= 5
