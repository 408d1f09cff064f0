"""Dead letters of a project, counted and found for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.errors import TopicMissingError
from headrace.kafka.client import ClientConfig, describe
from headrace.kafka.dead_letters import StoredDeadLetter, dead_letters_topic, scan
from headrace.kafka.replay import replayed

_ORIGIN = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>\d+):(?P<offset>\d+)")


@dataclass(frozen=True)
class TopicDeadLetters:
    """Dead letters of one topic.

    Attributes:
        topic: the origin topic.
        count: how many are kept.
        waiting: of those, not replayed yet.
        reasons: how many by reason code.
        pipelines: how many by the pipeline that wrote them.
        latest_ms: when the last was written, milliseconds since 1970; -1 when there is none.
    """

    topic: str
    count: int
    waiting: int
    reasons: Mapping[str, int]
    pipelines: Mapping[str, int]
    latest_ms: int


def summarize(config: ClientConfig, topic: str) -> TopicDeadLetters:
    """Counts of the dead letters of ``topic``.

    Raises:
        BrokerUnreachableError: no answer.
    """
    letters = list(scan(config, topic))
    return TopicDeadLetters(
        topic,
        len(letters),
        len(letters) - len(replayed(config, topic, letters)),
        dict(Counter(one.letter.reason for one in letters).most_common()),
        dict(Counter(one.pipeline for one in letters).most_common()),
        max((one.written_ms for one in letters), default=-1),
    )


def latest_dead_letters(config: ClientConfig, topic: str, count: int) -> list[StoredDeadLetter]:
    """The last ``count`` dead letters of ``topic``, newest first.

    Raises:
        BrokerUnreachableError: no answer.
        TopicMissingError: there is no such topic, nor one of its dead letters.
    """
    if not describe(config, [topic, dead_letters_topic(topic)]):
        raise TopicMissingError(topic)
    newest = sorted(scan(config, topic), key=lambda one: one.written_ms, reverse=True)
    return newest[:count]


def find_dead_letters(config: ClientConfig, origin: str) -> list[StoredDeadLetter]:
    """Dead letters of one record, ``topic/partition:offset``: one a pipeline that refused it.

    Raises:
        BrokerUnreachableError: no answer.
    """
    return [one for one in scan(config, origin_topic(origin)) if one.origin == origin]


def origin_topic(origin: str) -> str:
    """Topic in ``topic/partition:offset``; empty when it is not of that form."""
    found = _ORIGIN.fullmatch(origin)
    return found["topic"] if found else ""


def wrong_origins(origins: Iterable[str]) -> list[str]:
    """Those that are not of the form ``topic/partition:offset``."""
    return [one for one in origins if not origin_topic(one)]
