"""Counts and looks up the dead letters of a project."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.errors import AuthorizationError, TopicMissingError
from headrace.events.envelopes import wrapped
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.dead_letters.letters import StoredDeadLetter, dead_letters_topic, scan
from headrace.kafka.dead_letters.replay import DeadLetterFilter, Replay, replay, replayed
from headrace.model import DEAD_LETTERS_SUFFIX
from headrace.model.topic import OFFLINE_FILES_TOPIC
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config

_ORIGIN = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>\d+):(?P<offset>\d+)(?P<event>#\d+)?"
)


@dataclass(frozen=True)
class TopicDeadLetters:
    """The dead letters of a topic that a filter holds, counted.

    Attributes:
        topic: the origin topic.
        count: how many there are.
        waiting: of those, how many are of records that were not replayed yet.
        without_record: of those, how many are of rows or lines, which no replay sends.
        reasons: how many by reason code.
        pipelines: how many by the pipeline that wrote them.
        latest_ms: when the last was written, milliseconds since 1970; -1 when there is none.
    """

    topic: str
    count: int
    waiting: int
    without_record: int
    reasons: Mapping[str, int]
    pipelines: Mapping[str, int]
    latest_ms: int


def listable_topics(project: LoadedProject) -> list[str]:
    """Returns the topics that may have dead letters: those declared, and the one of offline files.

    A topic that nothing reads may have letters of offline files. Those of lines that belong to no
    topic are letters of the topic that holds the progress.
    """
    return [*project.topics, OFFLINE_FILES_TOPIC]


def counted_topics(project: LoadedProject, config: ClientConfig) -> list[str]:
    """Returns the topics that pipelines or workers read, and others that have a dead-letter topic.

    Others that the user may not describe are left out.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    read = list(project.dead_lettered)
    others = [name for name in listable_topics(project) if name not in read]
    return [*read, *_with_letters(config, others)]


def _with_letters(config: ClientConfig, topics: Sequence[str]) -> list[str]:
    try:
        live = describe(config, [dead_letters_topic(topic) for topic in topics])
    except AuthorizationError:  # ask for each: one forbidden topic fails the whole request
        if len(topics) == 1:
            return []
        return [name for topic in topics for name in _with_letters(config, [topic])]
    return [topic for topic in topics if dead_letters_topic(topic) in live]


def summarize(config: ClientConfig, topic: str, only: DeadLetterFilter) -> TopicDeadLetters:
    """Counts the dead letters of ``topic`` that a filter holds.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    dead_letters = [stored for stored in scan(config, topic) if stored in only]
    of_records = [stored for stored in dead_letters if stored.is_of_record]
    return TopicDeadLetters(
        topic,
        len(dead_letters),
        len(of_records) - len(replayed(config, topic, of_records)),
        len(dead_letters) - len(of_records),
        dict(Counter(stored.letter.reason for stored in dead_letters).most_common()),
        dict(Counter(stored.pipeline for stored in dead_letters).most_common()),
        max((stored.written_ms for stored in dead_letters), default=-1),
    )


def latest_dead_letters(
    config: ClientConfig, topic: str, only: DeadLetterFilter, count: int
) -> list[StoredDeadLetter]:
    """Returns the last ``count`` dead letters of ``topic`` that a filter holds, newest first.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
        TopicMissingError: if there is neither such a topic nor one of its dead letters.
    """
    if not describe(config, [topic, dead_letters_topic(topic)]):
        raise TopicMissingError(topic)
    dead_letters = (stored for stored in scan(config, topic) if stored in only)
    # Only the latest are kept in memory, with their bytes.
    return heapq.nlargest(count, dead_letters, key=lambda stored: stored.written_ms)


def find_dead_letters(config: ClientConfig, origin: str) -> list[StoredDeadLetter]:
    """Returns the dead letters of a record or event: one for each pipeline.

    A record is named ``topic/partition:offset``, and with it all events of an envelope; one of
    them is ``topic/partition:offset#index``.

    A letter of a row, which belongs to no record, is found by its own place.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    topic = origin_topic(origin)
    # A letter of a row is named by its own place, which is in the dead-letter topic.
    topics = (topic, topic.removesuffix(DEAD_LETTERS_SUFFIX))
    return [
        stored
        for name in dict.fromkeys(topics)
        for stored in scan(config, name)
        if origin in stored.names
    ]


def replay_dead_letters(
    project: LoadedProject,
    topic: str,
    only: DeadLetterFilter,
    *,
    again: bool,
    dry_run: bool,
) -> Replay:
    """Sends dead letters of ``topic`` back to it, by :mod:`headrace.kafka.dead_letters.replay`."""
    declared = project.topics.get(topic)
    envelope = None if declared is None else declared.envelope
    return replay(
        broker_config(project.settings),
        topic,
        only,
        again=again,
        dry_run=dry_run,
        wrap=None if envelope is None else partial(wrapped, envelope=envelope),
    )


def origin_topic(origin: str) -> str:
    """Returns the topic in ``topic/partition:offset``; empty when it is not of that form.

    ``#index`` may follow.
    """
    match = _ORIGIN.fullmatch(origin)
    return match["topic"] if match else ""


def wrong_origins(origins: Iterable[str]) -> list[str]:
    """Returns those that :func:`origin_topic` does not know the form of."""
    return [origin for origin in origins if not origin_topic(origin)]
