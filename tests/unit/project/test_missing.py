"""What is named and is not there is said, by its name."""

from types import SimpleNamespace

import pytest

from headrace import Topic
from headrace.errors import AuthorizationError, PartitionMissingError, TopicMissingError
from headrace.kafka.dead_letters.replay import DeadLetterFilter
from headrace.model import TopicPartition
from headrace.topics.dead_letters import held_letters as dead_letters
from headrace.topics.dead_letters.held_letters import counted_topics, latest_dead_letters
from headrace.workers import run as workers


class Live:
    partitions = 4
    all_partitions = tuple(TopicPartition("clicks", number) for number in range(4))


@pytest.fixture(autouse=True)
def _described(monkeypatch):
    def described(_, names):
        return {name: Live for name in names if name in ("clicks", "gone.dead-letters")}

    monkeypatch.setattr(dead_letters, "describe", described)
    monkeypatch.setattr(workers, "describe", described)
    monkeypatch.setattr(dead_letters, "scan", lambda *_: iter(()))


def test_a_misspelt_topic_has_no_empty_list_of_dead_letters():
    with pytest.raises(TopicMissingError, match="'clikcs'"):
        latest_dead_letters({}, "clikcs", DeadLetterFilter(), 20)
    assert latest_dead_letters({}, "clicks", DeadLetterFilter(), 20) == []


def test_the_dead_letters_of_a_topic_that_was_deleted_are_listed(monkeypatch):
    monkeypatch.setattr(dead_letters, "dead_letters_topic", "{}.dead-letters".format)
    assert latest_dead_letters({}, "gone", DeadLetterFilter(), 20) == []


@pytest.mark.parametrize(
    ("forbidden", "requests", "counted"),
    [(set(), 1, ["clicks", "gone", "old"]), ({"old.dead"}, 5, ["clicks", "gone"])],
)
def test_dead_letter_topics_are_looked_for_in_one_request_unless_one_is_forbidden(
    forbidden, requests, counted, monkeypatch
):
    asked = []

    def described(_, names):
        asked.append(names)
        if forbidden & set(names):
            raise AuthorizationError("DESCRIBE", f"topic {names}", "User:ANONYMOUS")
        return {name: Live for name in names if name in ("gone.dead", "old.dead")}

    monkeypatch.setattr(dead_letters, "describe", described)
    topics = {name: Topic(name) for name in ("clicks", "gone", "new", "old")}
    project = SimpleNamespace(topics=topics, dead_lettered={"clicks": topics["clicks"]})
    assert counted_topics(project, {}) == counted
    assert len(asked) == requests


def test_a_partition_that_a_topic_does_not_have_is_said():
    with pytest.raises(PartitionMissingError, match="Its partitions are 0 to 3") as caught:
        workers.selected_partitions({}, ["clicks"], ["clicks"], [9])
    assert (caught.value.topic, caught.value.partition) == ("clicks", 9)
