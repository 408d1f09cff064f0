"""What ``check`` refuses of a join, each with the value that is wrong."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from headrace import ByField, Join, Lake, LateData, Metadata, Pipeline, Source, Topic
from headrace.pipelines.join.rules import join_faults, join_warnings

MINUTE = timedelta(minutes=1)


@dataclass
class Impression:
    event_id: str
    at: datetime
    place: str | None
    number: int


@dataclass
class Click:
    event_id: str
    impression_id: str
    at: datetime
    price: float


IMPRESSIONS = Topic("impressions", event=Impression, event_time="at", partitions=3)
CLICKS = Topic("clicks", event=Click, event_time="at", partitions=3)
JOIN = Join(CLICKS, IMPRESSIONS, on=("impression_id", "event_id"), column="impression")
PIPELINE = Pipeline("joined", JOIN, Lake("joined"))


def of(**changes):
    return replace(PIPELINE, source=replace(JOIN, **changes))


def messages(pipeline):
    return [fault.message for fault in join_faults(pipeline)]


def test_a_join_without_faults_is_taken():
    assert messages(PIPELINE) == []


def test_pipelines_without_a_join_have_no_faults_of_one():
    assert messages(Pipeline("p", CLICKS, Lake("t"))) == []


@pytest.mark.parametrize(
    ("pipeline", "texts"),
    [
        (of(within=timedelta(0)), ["within"]),
        (of(wait=-MINUTE), ["wait"]),
        (
            of(earlier=replace(IMPRESSIONS, partitions=6)),
            ["the same key in the same partition", "'clicks' has 3 ", "'impressions' has 6"],
        ),
        (of(later=Source(CLICKS, subpartitions=2)), ["reads topic 'clicks' in whole partitions"]),
        (of(later=Source(CLICKS, min_tasks=6)), ["reads topic 'clicks' in whole partitions"]),
        (of(later=Source(CLICKS, watermark=MINUTE)), ["Source.watermark of topic 'clicks'"]),
        (
            of(earlier=replace(IMPRESSIONS, compaction=True, key="event_id")),
            ["topic 'impressions' of a Join is compacted"],
        ),
        (
            of(earlier=replace(IMPRESSIONS, config={"cleanup.policy": "compact"})),
            ["topic 'impressions' of a Join is compacted"],
        ),
        (
            of(earlier=replace(IMPRESSIONS, event_time=None)),
            ["needs the event class and the event time of topic 'impressions'"],
        ),
        (of(on=("impression", "event_id")), ["topic 'clicks' has no field 'impression'"]),
        (of(on=("impression_id", "place")), ["field 'place' of topic 'impressions' may be null"]),
        (of(on=("impression_id", "number")), ["Join.on names fields of types string and long"]),
        (of(on=("price", "number")), ["Join.on names fields of types double and long"]),
        (of(column="the impression"), ["Join.column is 'the impression'"]),
        (of(column="Price"), ["Join.column 'Price' is a field of topic 'clicks', too"]),
        (
            of(later=Source(CLICKS, metadata=(Metadata.TIMESTAMP,))),
            ["can't give column", "is not kept of records that wait"],
        ),
        (
            replace(PIPELINE, late_data=LateData.DEAD_LETTER),
            ["late_data is dead-letter, and its source is a Join"],
        ),
        (of(unmatched=Lake("joined")), ["Join.unmatched is the pipeline's own", "joined"]),
    ],
)
def test_each_fault_is_one_that_names_its_value(pipeline, texts):
    [message] = messages(pipeline)
    assert message.startswith("pipeline 'joined': ")
    assert [text for text in texts if text not in message] == []


@pytest.mark.parametrize(
    ("changes", "is_warned"),
    [
        ({}, False),
        ({"later": replace(CLICKS, key="impression_id")}, False),
        ({"later": replace(CLICKS, key="event_id")}, True),
        ({"later": replace(CLICKS, partitioning=ByField("event_id"))}, True),
        ({"later": replace(CLICKS, partitioning=ByField("impression_id"))}, False),
        ({"earlier": replace(IMPRESSIONS, key="place")}, True),
    ],
)
def test_topics_of_which_one_is_partitioned_by_the_matched_field_are_warned_of(changes, is_warned):
    keyed = {
        "later": replace(CLICKS, key="impression_id"),
        "earlier": replace(IMPRESSIONS, key="event_id"),
    }
    found = list(join_warnings(of(**keyed | changes)))
    assert bool(found) == is_warned
    assert all("'clicks'" in fault.message and "'impressions'" in fault.message for fault in found)


def test_topics_that_are_both_partitioned_by_another_field_are_not_warned_of():
    by_place = {"later": replace(CLICKS, key="user"), "earlier": replace(IMPRESSIONS, key="place")}
    assert not list(join_warnings(of(**by_place)))


@pytest.mark.parametrize(("wait", "is_warned"), [(8 * 60 * MINUTE, False), (481 * MINUTE, True)])
def test_a_wait_of_many_times_within_is_warned_of(wait, is_warned):
    found = list(join_warnings(of(within=60 * MINUTE, wait=wait)))
    assert bool(found) == is_warned
    assert all("8:01:00, more than 8 times within, 1:00:00" in fault.message for fault in found)
