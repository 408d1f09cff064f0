"""Where topics end: one that does not answer harms no other."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.errors import BrokerUnreachableError, TopicMissingError
from headrace.kafka.read.cluster import LivePositions
from headrace.queries.windows.instance.topic_ends import TopicEnds

LIVE = LivePositions("id", {}, {0: 3})


class Topics:
    """A cluster; topics may raise an error."""

    def __init__(self, **topics):
        self.topics, self.asks = topics, Counter()

    def wait_for_asks(self, *topics):
        """Waits until the answer to a later question than now is there, for each topic."""
        enough = {topic: self.asks[topic] + 3 for topic in topics}
        wait_for(lambda: all(self.asks[topic] >= asks for topic, asks in enough.items()))

    def live(self, topic):
        self.asks[topic] += 1
        if isinstance(self.topics[topic], Exception):
            raise self.topics[topic]
        return self.topics[topic]


def answers(ends, condition):
    """Waits until answers are there that meet a condition."""
    taken = {}

    def are_there():
        nonlocal taken
        taken = {topic: end.live for topic, end in ends.take().items()}
        return condition(taken)

    wait_for(are_there, lambda: f"other answers than {taken}")
    return taken


@pytest.mark.parametrize(
    "error",
    [TopicMissingError("a"), BrokerUnreachableError("b", "no leader"), ValueError("anything")],
)
def test_a_topic_that_does_not_answer_is_not_known_and_harms_no_other(error):
    cluster = Topics(a=error, b=LIVE)
    ends = TopicEnds(cluster.live, ["b", "a"], 0.01)
    try:
        assert answers(ends, lambda taken: len(taken) == 2) == {"a": None, "b": LIVE}
        cluster.topics["a"] = LIVE
        assert answers(ends, lambda taken: taken.get("a"))["a"] == LIVE
    finally:
        ends.close()


def test_a_topic_that_was_not_known_since_the_last_call_is_not_known():
    cluster = Topics(a=ValueError("not now"), b=LIVE)
    ends = TopicEnds(cluster.live, ["a", "b"], 0.01)
    try:
        cluster.wait_for_asks("a", "b")
        cluster.topics = {"a": LIVE, "b": ValueError("not now")}
        cluster.wait_for_asks("a", "b")
        assert {topic: end.live for topic, end in ends.take().items()} == {"a": None, "b": None}
        assert answers(ends, lambda taken: taken.get("a"))["a"] == LIVE
    finally:
        ends.close()


def test_a_topic_whose_brokers_do_not_respond_delays_no_other():
    responds = threading.Event()

    def live(topic):
        if topic == "a":
            responds.wait(LIMIT_SECONDS)
        return LIVE

    ends = TopicEnds(live, ["a", "b"], 0.01)
    try:
        for _ in range(2):
            assert answers(ends, lambda taken: taken) == {"b": LIVE}
    finally:
        responds.set()
        ends.close()


def test_an_answer_has_the_time_of_the_question():
    asked, noted, ended = threading.Event(), threading.Event(), threading.Event()

    def live(topic):
        pause = ended if asked.is_set() else noted  # one answer comes until the test has ended
        asked.set()
        pause.wait(LIMIT_SECONDS)
        return LIVE

    ends = TopicEnds(live, ["a"], 0.01)
    try:
        assert asked.wait(LIMIT_SECONDS)
        latest_ms = time.monotonic() * 1000
        noted.set()
        taken = wait_for(ends.take)
        assert taken["a"].asked_ms <= latest_ms
    finally:
        ended.set()
        ends.close()


def test_an_answer_is_taken_once():
    ends = TopicEnds(Topics(a=LIVE).live, ["a"], 0.01)
    answers(ends, lambda taken: taken)
    ends.close()
    answers(ends, lambda taken: not taken)
