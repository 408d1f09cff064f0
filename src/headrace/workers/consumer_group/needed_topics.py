"""Topics that an instance needs: checked before it starts."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta

from confluent_kafka import KafkaException

from headrace.kafka.admin.propagation import until_known
from headrace.kafka.admin.topics import (
    DEAD_LETTERS_HEADER_BYTES,
    Action,
    TopicChange,
    TopicState,
    apply_changes,
    ensure_topics,
    topic_states,
)
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import commit_offsets, group_offsets, latest_offsets
from headrace.model import Start, Topic
from headrace.workers.declaration import Worker
from headrace.workers.state.topic_check import check_state_topic
from headrace.workers.tasks.policy import DeadLetters, RetryTopics, ending
from headrace.workers.tasks.retry_topics import retry_topics
from headrace.workers.timing import WorkerTiming

KNOWN_WITHIN = timedelta(seconds=10)
"""A broker that has just started does not know all topics."""

_LOG = logging.getLogger("headrace.workers")
_SIZE, _RETENTION = "max.message.bytes", "retention.ms"
_FOR_EVER = -1


def ensure_needed_topics(
    worker: Worker,
    config: ClientConfig,
    timing: WorkerTiming = WorkerTiming(),
    own: ClientConfig | None = None,
) -> None:
    """Returns once all topics exist that ``worker`` reads, looks values up in or writes to.

    Topics that are looked up are at the cluster ``own``, by default the same one, all others at
    that of ``config``. Retry topics are made. They take what their topic takes, and keep it for
    twice their delay at least; one that does not is altered.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        StateRefusedError: if the topic of its state can't have that.
        TopicMissingError: if a topic, its dead letters or its state do not exist.
        TopicChangeError: if Kafka refuses a retry topic.
    """
    references = [topic.name for topic in worker.references.values()]
    needed = [topic.name for topic in worker.topics]
    if isinstance(ending(worker.on_failure), DeadLetters):
        needed += [topic.dead_letters for topic in worker.topics]
    if worker.state is not None:
        needed.append(worker.state_topic)
    poll = timing.needed_topics_seconds
    if own is None or own == config:
        needed += references
    elif references:
        until_known(lambda: describe(own, references), references, KNOWN_WITHIN, poll)
    until_known(lambda: describe(config, needed), needed, KNOWN_WITHIN, poll)
    if worker.state is not None:
        check_state_topic(worker, config)
    if worker.start is Start.LATEST:
        begin_at_latest(worker, config)
    retries = retry_topics(worker)
    if isinstance(worker.on_failure, RetryTopics):
        names = set(retries.values())
        origins = until_known(lambda: topic_states(config, names), names, KNOWN_WITHIN, poll)
        delays = [*worker.on_failure.delays] * len(worker.topics)
        _ensure_retry_topics(
            config,
            [
                _like(origins[origin], name, delay)
                for (name, origin), delay in zip(retries.items(), delays, strict=True)
            ],
        )


def begin_at_latest(worker: Worker, config: ClientConfig) -> None:
    """Commits where topics end, for a group that has committed nothing of them yet.

    Not by a setting of the consumer: of partitions that are added later, nothing may be skipped.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    names = [topic.name for topic in worker.topics]
    for topic in until_known(lambda: describe(config, names), names, KNOWN_WITHIN).values():
        if not group_offsets(config, worker.consumer_group, topic.all_partitions):
            _begin_at_end(worker, config, topic)


def _begin_at_end(worker: Worker, config: ClientConfig, topic: LiveTopic) -> None:
    """Commits where ``topic`` ends, and logs it: the group may have had commits that expired."""
    group = worker.consumer_group
    seen = latest_offsets(config, topic.all_partitions)
    ends = {partition: latest for partition, (latest, _) in seen.items()}
    try:
        commit_offsets(config, group, ends, {p: epoch for p, (_, epoch) in seen.items()})
    except KafkaException as error:  # it has members, and one of them may have committed meanwhile
        if not group_offsets(config, group, topic.all_partitions):
            _LOG.warning(
                "%s: cannot commit the end of topic %s for group %s, starting at its earliest "
                "records: %s. To skip them, stop all instances before the topic is added",
                worker.name,
                topic.name,
                group,
                error,
            )
        return
    shown_ends = ", ".join(f"{partition} at {offset}" for partition, offset in ends.items())
    _LOG.warning(
        "%s: group %s has no committed offset of topic %s, start=LATEST starts at its end: %s. "
        "Earlier records are skipped; headrace workers reset starts elsewhere",
        worker.name,
        group,
        topic.name,
        shown_ends,
    )


def _like(origin: TopicState, name: str, delay: timedelta) -> Topic:
    """A retry topic: its records are those of ``origin`` with headers of headrace's own."""
    kept_ms = int(origin.config[_RETENTION])
    if kept_ms != _FOR_EVER:
        kept_ms = max(kept_ms, int(2 * delay / timedelta(milliseconds=1)))
    size = int(origin.config[_SIZE]) + DEAD_LETTERS_HEADER_BYTES
    settings = {_SIZE: str(size), _RETENTION: str(kept_ms)}
    live = origin.live
    return Topic(name, partitions=live.partitions, replication=live.replication, config=settings)


def _ensure_retry_topics(config: ClientConfig, topics: Collection[Topic]) -> None:
    states = topic_states(config, [topic.name for topic in topics])
    ensure_topics(config, [topic for topic in topics if topic.name not in states])
    changes = []
    for topic in topics:
        live = states[topic.name].config if topic.name in states else topic.config
        short = {
            name: value for name, value in topic.config.items() if _rank(live[name]) < _rank(value)
        }
        if short:
            change = TopicChange(topic.name, Action.ALTER_CONFIG, "as its topic", config=short)
            changes.append(change)
    apply_changes(config, changes)


def _rank(value: str) -> float:
    return float("inf") if int(value) == _FOR_EVER else int(value)
