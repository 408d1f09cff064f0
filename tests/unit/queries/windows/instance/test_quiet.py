"""How time goes on in a topic without new events."""

from __future__ import annotations

import pytest
from tests.unit.queries.pipeline import tick_of

from headrace.kafka.read.cluster import LivePositions
from headrace.queries.windows.instance.quiet import QUIET_MS, QuietTopics

TIME_US = 5_000_000


def live(ends, topic_id=""):
    """Returns a topic as it is now: the offset after the last record of each partition."""
    return LivePositions(topic_id, {}, ends)


def quiet_topics(*ticks):
    """Returns topics of which ticks came: positions, time of events and time of the clock."""
    topics = QuietTopics()
    for positions, event_us, now_ms in ticks:
        topics.take(tick_of("clicks", event_us, positions=positions), now_ms)
    return topics


def test_a_topic_is_quiet_ten_seconds_after_its_last_event():
    topics = quiet_topics(({0: 3, 1: 4}, TIME_US, 100))
    ends = {0: 3, 1: 4}
    assert topics.event_us("clicks", live(ends), 100 + QUIET_MS - 1) is None
    assert topics.event_us("clicks", live(ends), 100 + QUIET_MS) == TIME_US
    assert topics.event_us("clicks", live(ends), 100 + QUIET_MS + 7) == TIME_US + 7_000


def test_ticks_without_new_events_leave_a_topic_quiet():
    topics = quiet_topics(({0: 3}, TIME_US, 0), ({0: 3}, TIME_US, 9_000))
    assert topics.event_us("clicks", live({0: 3}), QUIET_MS) == TIME_US


def test_a_new_event_begins_the_quiet_time_anew():
    topics = quiet_topics(({0: 3}, TIME_US, 0), ({0: 4}, TIME_US, 9_000))
    assert topics.event_us("clicks", live({0: 4}), QUIET_MS) is None
    assert topics.event_us("clicks", live({0: 4}), 9_000 + QUIET_MS) == TIME_US


@pytest.mark.parametrize("ends", [{0: 4}, {0: 3, 1: 1}])
def test_a_topic_with_an_event_that_is_not_matched_is_not_quiet(ends):
    topics = quiet_topics(({0: 3}, TIME_US, 0))
    assert topics.event_us("clicks", live(ends), 10 * QUIET_MS) is None
    assert topics.event_us("clicks", live({0: 3}), 11 * QUIET_MS - 1) is None
    assert topics.event_us("clicks", live({0: 3}), 11 * QUIET_MS) == TIME_US


def test_a_new_partition_without_events_is_quiet():
    topics = quiet_topics(({0: 3}, TIME_US, 0))
    assert topics.event_us("clicks", live({0: 3, 1: 0}), QUIET_MS) == TIME_US


def test_a_topic_whose_events_have_no_time_never_goes_on():
    topics = quiet_topics(({0: 3}, None, 0))
    assert topics.event_us("clicks", live({0: 3}), 10 * QUIET_MS) is None


def test_a_tick_without_a_time_leaves_the_time_as_it_is():
    topics = quiet_topics(({0: 3}, TIME_US, 0), ({0: 4}, None, 0))
    assert topics.event_us("clicks", live({0: 4}), QUIET_MS) == TIME_US


@pytest.mark.parametrize("times", [(0, -1), (-1, 0), (TIME_US, 0)])
def test_time_does_not_go_back(times):
    topics = quiet_topics(*(({0: number}, time, 0) for number, time in enumerate(times)))
    assert topics.event_us("clicks", live({0: 1}), QUIET_MS) == max(times)


def test_a_tick_of_another_partition_of_the_matched_topic_changes_nothing():
    topics = quiet_topics(({0: 3}, TIME_US, 0), ({0: 2}, TIME_US - 1, 9_000))
    assert topics.event_us("clicks", live({0: 3}), QUIET_MS) == TIME_US


def test_an_empty_topic_is_quiet_when_a_tick_has_a_time():
    topics = quiet_topics(({}, TIME_US, 0))
    assert topics.event_us("clicks", live({0: 0}), QUIET_MS) == TIME_US


def test_topics_are_those_of_ticks():
    assert QuietTopics().topics == []
    assert quiet_topics(({}, None, 0)).topics == ["clicks"]


def test_a_topic_that_was_created_again_is_quiet_ten_seconds_after_its_own_last_event():
    topics = QuietTopics()
    topics.take(tick_of("clicks", TIME_US, positions={0: 100}, topic_id="first"), 0)
    now_ms = 39_000
    # Offsets start over: those of the first topic say nothing of it.
    topics.take(tick_of("clicks", 2 * TIME_US, positions={0: 3}, topic_id="second"), now_ms)
    ends = live({0: 3}, "second")
    assert topics.event_us("clicks", ends, now_ms + QUIET_MS - 1) is None
    assert topics.event_us("clicks", ends, now_ms + QUIET_MS) == 2 * TIME_US
    topics.take(tick_of("clicks", 3 * TIME_US, positions={0: 4}, topic_id="second"), 90_000)
    assert topics.event_us("clicks", live({0: 4}, "second"), 90_001) is None


def test_a_topic_that_was_created_again_is_not_quiet_before_its_first_tick():
    topics = QuietTopics()
    topics.take(tick_of("clicks", TIME_US, positions={0: 100}, topic_id="first"), 0)
    assert topics.event_us("clicks", live({0: 3}, "second"), 10 * QUIET_MS) is None


def test_ticks_of_an_earlier_version_have_no_id_and_are_compared_by_offsets():
    topics = quiet_topics(({0: 3}, TIME_US, 0))
    assert topics.event_us("clicks", live({0: 3}, "second"), QUIET_MS) == TIME_US


def test_the_time_of_a_topic_that_does_not_answer_stays_as_it_is():
    topics = quiet_topics(({0: 3}, TIME_US, 0))
    assert topics.event_us("clicks", live({0: 3}), QUIET_MS + 5) == TIME_US + 5_000
    assert topics.event_us("clicks", None, QUIET_MS + 50) is None
    # Events of that time can be on their way: it is quiet again after ten seconds.
    answered_ms = 2 * QUIET_MS + 50
    assert topics.event_us("clicks", live({0: 3}), answered_ms - 1) is None
    assert topics.event_us("clicks", live({0: 3}), answered_ms) == TIME_US + 5_000


def test_an_answer_says_nothing_of_the_time_behind_it():
    topics = quiet_topics(({0: 3}, TIME_US, 0))
    asked_ms = 2_000  # then the process was frozen, and takes the answer half a minute later
    assert topics.event_us("clicks", live({0: 3}), asked_ms) is None


def test_time_goes_on_from_where_it_was_after_an_event_without_a_time():
    topics = quiet_topics(({0: 3}, TIME_US, 0))
    assert topics.event_us("clicks", live({0: 3}), 10 * QUIET_MS) == TIME_US + 9 * QUIET_MS * 1_000
    topics.take(tick_of("clicks", None, positions={0: 4}), 10 * QUIET_MS)
    later_us = topics.event_us("clicks", live({0: 4}), 11 * QUIET_MS + 7)
    assert later_us == TIME_US + 9 * QUIET_MS * 1_000 + 7_000
