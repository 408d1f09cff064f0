"""Records as they were read: what their headers say is believed in retry topics only."""

from types import SimpleNamespace

import pytest

from headrace.model import TopicPartition
from headrace.workers import WorkerRecord
from headrace.workers.received import received, retry_headers

RETRIES = {"clicks.w.retry-1": "clicks", "clicks.w.retry-2": "clicks"}
FIRST = WorkerRecord("clicks", 3, 70, b"k", b"v", (("own", b"1"),), 5, 2)


def message(topic, headers, *, partition=0, offset=7):
    def given():
        if headers is None:
            raise SystemError("the client library")
        return headers

    return SimpleNamespace(
        topic=lambda: topic,
        partition=lambda: partition,
        offset=lambda: offset,
        key=lambda: b"k",
        value=lambda: b"v",
        headers=given,
        timestamp=lambda: (1, 9),
    )


def test_a_retried_record_is_as_its_task_saw_it_and_one_attempt_older():
    headers = retry_headers(FIRST, 1000, 400, "error \ud800" + "x" * 10**6)
    found = received(message("clicks.w.retry-1", list(headers)), RETRIES)
    assert found.record == WorkerRecord("clicks", 3, 70, b"k", b"v", (("own", b"1"),), 5, 3)
    assert (found.due_ms, found.first_failed_ms, found.error) == (1000, 400, None)
    assert (found.partition, found.offset) == (TopicPartition("clicks.w.retry-1", 0), 7)
    assert sum(len(value) for _, value in headers) < 10_000


def test_retry_headers_of_a_record_of_the_topic_itself_are_the_records_own():
    headers = retry_headers(FIRST, 10**15, 400, "error")
    found = received(message("clicks", list(headers)), RETRIES)
    assert found.record == WorkerRecord("clicks", 0, 7, b"k", b"v", headers, 9)
    assert (found.due_ms, found.error) == (0, None)


@pytest.mark.parametrize(
    "headers",
    [None, [], [("headrace-retry-topic", b"\xff")], [("headrace-retry-partition", b"none")]],
)
def test_a_record_that_a_stranger_put_into_a_retry_topic_fails_by_policy(headers):
    places = [(name, number) for name in RETRIES for number in range(2)]
    found = [received(message(name, headers, partition=n), RETRIES) for name, n in places]
    assert {one.error.reason for one in found} == {"bad-retry-headers"}
    assert {one.record.topic for one in found} == {"clicks"}
    assert "clicks.w.retry-1[0]@7" in found[0].error.detail
    assert len({one.record.topic_partition for one in found}) == len(places)
    assert all(one.record.partition < 0 for one in found)


def test_a_header_name_that_is_no_text_fails_by_policy():
    found = received(message("clicks", None), RETRIES)
    assert (found.error.reason, found.record.headers) == ("bad-header-name", ())
    assert found.record.value == b"v"
