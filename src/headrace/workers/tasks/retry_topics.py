"""Retry topics of a worker: their names, who reads them, and the headers of what waits there."""

from __future__ import annotations

from headrace.kafka.client.headers import foreign_headers, header_text
from headrace.workers.declaration import Worker
from headrace.workers.tasks.policy import RetryTopics
from headrace.workers.tasks.task import Headers, WorkerRecord

RETRY_HEADER_PREFIX = "headrace-retry-"


def retry_headers(record: WorkerRecord, due_ms: int, first_failed_ms: int, error: str) -> Headers:
    """Headers with which ``record`` goes to a retry topic; :meth:`ConsumedRecord.of` reads them."""
    values = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "attempts": record.attempt,
        "first-failure": first_failed_ms,
        "due": due_ms,
        "error": error,
    }
    written = tuple(
        (RETRY_HEADER_PREFIX + name, header_text(value)) for name, value in values.items()
    )
    return written + foreign_headers(record.headers)


def retry_topic(worker: str, topic: str, attempt: int) -> str:
    """Returns the topic where records of ``topic`` wait whose ``attempt`` failed."""
    return f"{topic}.{worker}.retry-{attempt}"


def retry_topics(worker: Worker) -> dict[str, str]:
    """Returns the retry topics and the origin of each; none for another policy."""
    policy = worker.on_failure
    attempts = len(policy.delays) if isinstance(policy, RetryTopics) else 0
    return {
        retry_topic(worker.name, topic.name, attempt): topic.name
        for topic in worker.topics
        for attempt in range(1, attempts + 1)
    }


def consumed_topics(worker: Worker) -> dict[str, tuple[str, ...]]:
    """Returns the topics to read by consumer group: retry topics have a group of their own.

    Cooperative assignors count partitions over all topics of a group. With one group, of two
    instances one might have those of the topics, and the other those of the retry topics.
    """
    own = tuple(topic.name for topic in worker.topics)
    retries = tuple(retry_topics(worker))
    groups = {worker.consumer_group: own, f"{worker.consumer_group}:retry": retries}
    return {group: topics for group, topics in groups.items() if topics}


def topics_read(worker: Worker) -> tuple[str, ...]:
    """Returns all topics that the worker reads."""
    return tuple(topic for topics in consumed_topics(worker).values() for topic in topics)
