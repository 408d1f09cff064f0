"""Which matched events are compared, and when it is not known whether they balance."""

from __future__ import annotations

import pytest

from headrace.control.matched_event_balances import SentEvents, UnknownBalanceError
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.matched_events.sent import SentEventRecord
from headrace.transfer.origin import Origin

EVENTS = OffsetRange(TopicPartition("clicks", 1), 10, 20)


def sent(*offsets, is_asked_for=True):
    events = SentEvents(EVENTS)
    for offset in offsets:
        record = SentEventRecord(Origin("here", "clicks", 1, offset), "q", 0)
        events.take(record, is_asked_for=is_asked_for)
    return events


def test_matches_of_the_range_are_counted_as_often_as_they_are_there():
    assert dict(sent(9, 10, 12, 12, 19, 20).matches) == {(10, "q"): 1, (12, "q"): 2, (19, "q"): 1}
    assert not sent(12, is_asked_for=False).matches


@pytest.mark.parametrize(("oldest", "start"), [(3, 10), (9, 10), (10, 11), (15, 16), (19, 20)])
def test_where_kafka_has_deleted_some_it_begins_behind_the_oldest(oldest, start):
    events = sent(19, oldest)
    events.leave_out_oldest()
    assert events.events == OffsetRange(EVENTS.partition, start, 20)
    assert all(offset >= start for offset, _ in events.matches)
    assert bool(events.matches) is (start < 20)


def test_an_event_of_another_query_is_as_old_as_any():
    events = sent(13, is_asked_for=False)
    events.leave_out_oldest()
    assert events.events.start == 14


def test_a_partition_of_which_all_are_deleted_is_unknown():
    with pytest.raises(UnknownBalanceError, match="deleted the matched events of clicks/1"):
        sent().leave_out_oldest()
