"""Compares declared topics with live ones: what to create or alter, and what is impossible."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.errors import TopicChangeError
from headrace.kafka.admin.propagation import KNOWN_WITHIN, await_brokers
from headrace.kafka.admin.record_limits import max_batch_bytes
from headrace.kafka.client.admin_requests import (
    READ_ATTEMPT_SECONDS,
    REQUEST_TIMEOUT_SECONDS,
    LiveTopic,
    admin_request,
    describe,
)
from headrace.kafka.client.broker_errors import needs
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.model import Topic

DEAD_LETTERS_RETENTION = timedelta(days=30)  # time to find the cause and to replay
DEAD_LETTERS_HEADER_BYTES = 64 * 1024

# Set by Kafka's own tools while they move partitions.
_TRANSIENT = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)


class Action(enum.StrEnum):
    """What a change does to a topic."""

    CREATE = "create"
    ADD_PARTITIONS = "add-partitions"
    ALTER_CONFIG = "alter-config"
    REFUSED = "refused"


_OPERATIONS = {
    Action.CREATE: "CREATE",
    Action.ADD_PARTITIONS: "ALTER",
    Action.ALTER_CONFIG: "ALTER_CONFIGS",
}
"""The operation of each action in ACLs."""


@dataclass(frozen=True)
class TopicState:
    """A live topic with its settings.

    Attributes:
        live: id, partitions, replication.
        config: value in force of every setting, by Kafka's name.
        overrides: names of those that are set on the topic itself.
        is_empty: nothing was ever written to it.
    """

    live: LiveTopic
    config: Mapping[str, str]
    overrides: frozenset[str]
    is_empty: bool = False

    @property
    def is_compacted(self) -> bool:
        """Whether Kafka compacts it."""
        return "compact" in self.config["cleanup.policy"]


@dataclass(frozen=True)
class KnownKey:
    """The key that a topic was declared with when it was applied."""

    topic_id: str
    key: str | None


@dataclass(frozen=True)
class TopicChange:
    """A change from a live topic to the declared one, or (refused) why it is impossible.

    Attributes:
        topic: its name.
        action: what to do.
        detail: a sentence for people.
        partitions: of a topic to create, or the new total.
        replication: of a topic to create.
        config: settings to give it; ``None`` returns one to the broker's default.
    """

    topic: str
    action: Action
    detail: str
    partitions: int = 0
    replication: int = 0
    config: Mapping[str, str | None] = field(default_factory=dict)


def with_dead_letters(declared: Iterable[Topic], read: Iterable[Topic]) -> list[Topic]:
    """The declared topics and, unless declared too, the dead-letter topics of those read."""
    topics = {topic.name: topic for topic in declared}
    for topic in read:
        topics.setdefault(topic.dead_letters, dead_letter_topic(topic))
    return list(topics.values())


def dead_letter_topic(topic: Topic) -> Topic:
    """The implicit dead-letter topic: one partition, kept 30 days or as long as the topic's.

    Its records hold the original bytes and headers of headrace's own, so they may be larger.
    """
    config = {"max.message.bytes": str(max_batch_bytes(topic) + DEAD_LETTERS_HEADER_BYTES)}
    # A letter must not expire before its record.
    if topic.config.get("retention.ms") == "-1":
        return _dead(topic, None, config | {"retention.ms": "-1"})
    own = timedelta(milliseconds=int(topic.config.get("retention.ms", "0")))
    longest = max(topic.retention or own, DEAD_LETTERS_RETENTION)
    return _dead(topic, longest, config)


def _dead(topic: Topic, retention: timedelta | None, config: Mapping[str, str]) -> Topic:
    return Topic(
        topic.dead_letters, replication=topic.replication, retention=retention, config=config
    )


def plan_topics(
    declared: Sequence[Topic],
    live: Mapping[str, TopicState],
    keys: Mapping[str, KnownKey] | None = None,
) -> list[TopicChange]:
    """Changes that lead from the live topics to the declared ones; empty when there are none."""
    changes = []
    for topic in declared:
        state = live.get(topic.name)
        if state is None:
            changes.append(_creation(topic))
            continue
        drift = (
            _partition_drift(topic, state.live),
            _replication_drift(topic, state.live),
            _key_drift(topic, state, (keys or {}).get(topic.name)),
            _config_drift(topic, state),
        )
        changes += [change for change in drift if change is not None]
    return changes


def topic_states(config: ClientConfig, topics: Iterable[str]) -> dict[str, TopicState]:
    """Returns those of ``topics`` that exist, with their settings.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return states_of(config, describe(config, topics))


def states_of(config: ClientConfig, existing: Mapping[str, LiveTopic]) -> dict[str, TopicState]:
    """Returns topics that were described, with their settings.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    configs = _describe_configs(config, list(existing))
    ends = watermarks(config, [at for live in existing.values() for at in live.all_partitions])
    # An end above 0 shows that something was written, even if retention has removed it since.
    filled = {partition.topic for partition, (_, latest) in ends.items() if latest > 0}
    return {
        name: TopicState(live, *configs[name], is_empty=name not in filled)
        for name, live in existing.items()
    }


def compacted(config: ClientConfig, topics: Sequence[str]) -> set[str]:
    """Returns those of ``topics``, which exist, that are compacted.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    configs = _describe_configs(config, topics)
    return {name for name, (config, _) in configs.items() if "compact" in config["cleanup.policy"]}


def topic_settings(config: ClientConfig, topic: str) -> dict[str, str]:
    """Returns the settings of a topic, which exists, with the defaults of the brokers.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    [(settings, _)] = _describe_configs(config, [topic]).values()
    return settings


def delete_retention_ms(config: ClientConfig, topic: str) -> int | None:
    """Returns how long compaction leaves tombstones in a topic, which exists; None: it has none.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    settings = topic_settings(config, topic)
    is_compacted = "compact" in settings["cleanup.policy"]
    return int(settings["delete.retention.ms"]) if is_compacted else None


def apply_changes(config: ClientConfig, changes: Sequence[TopicChange]) -> None:
    """Applies changes in order, without those that are refused.

    Raises:
        BrokerUnreachableError: if the brokers do not answer; some changes may have been made.
        TopicChangeError: if Kafka refuses a topic; those before it are made.
    """
    for change in changes:
        if change.action is not Action.REFUSED:
            _apply(config, change)
    # Once for all changes, so that the waits for different topics overlap.
    await_brokers(
        config, {change.topic: change.partitions for change in changes if change.partitions}
    )
    altered = {
        change.topic: change.config for change in changes if change.action is Action.ALTER_CONFIG
    }
    _await_settings(config, altered)


def ensure_topics(config: ClientConfig, topics: Sequence[Topic]) -> None:
    """Creates missing topics as declared; other processes may do so at the same time.

    When it returns, every broker shows them
    (:func:`~headrace.kafka.admin.propagation.await_brokers`).

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses a topic.
    """
    live = describe(config, [topic.name for topic in topics])
    missing = [topic for topic in topics if topic.name not in live]
    for topic in missing:
        # Another process may create the topic between the two requests.
        _apply(config, _creation(topic), harmless=KafkaError.TOPIC_ALREADY_EXISTS)
    await_brokers(config, {topic.name: topic.partitions for topic in missing})


def ensure_dead_letters(config: ClientConfig, topics: Iterable[Topic]) -> None:
    """:func:`ensure_topics` for the dead-letter topics of ``topics``."""
    ensure_topics(config, [dead_letter_topic(topic) for topic in topics])


def delete_topic(config: ClientConfig, topic: str) -> None:
    """Deletes ``topic`` with all its records, and returns when brokers no longer show it.

    Harmless when there is none.

    Raises:
        BrokerUnreachableError: if the brokers do not answer within 15 seconds.
        TopicChangeError: if Kafka refuses, or still shows the topic after a while.
    """

    def delete(client: AdminClient) -> None:
        timeout = REQUEST_TIMEOUT_SECONDS
        futures = client.delete_topics([topic], operation_timeout=timeout, request_timeout=timeout)
        futures[topic].result()

    try:
        with needs(config, "DELETE", f"topic {topic}"):
            admin_request(config, delete)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicChangeError(topic, error.args[0].str()) from error
    # A broker still answers for a topic for a moment after its controller has deleted it.
    _await_shown(
        lambda: ", ".join(describe(config, [topic])),
        "it was deleted, but the broker still shows it",
    )


def _creation(topic: Topic) -> TopicChange:
    settings = ", ".join(f"{name}={value}" for name, value in topic.kafka_config.items())
    detail = f"{topic.partitions} partition(s), replication {topic.replication}, {settings}"
    return TopicChange(
        topic.name,
        Action.CREATE,
        detail,
        topic.partitions,
        topic.replication,
        topic.kafka_config,
    )


def _partition_drift(topic: Topic, live: LiveTopic) -> TopicChange | None:
    if topic.partitions == live.partitions:
        return None
    if topic.partitions < live.partitions:
        return _refused(
            topic,
            f"it has {live.partitions} partitions and Kafka can't take any away; declare "
            f"partitions={live.partitions}, or move to a topic with a new name",
        )
    detail = f"{live.partitions} to {topic.partitions} partitions"
    if topic.key is not None:
        detail += (
            f"; most values of {topic.key!r} move to another one, which may be read before the one"
            " that they were in: UPSERT without newest_by may then keep an older row"
        )
    return TopicChange(topic.name, Action.ADD_PARTITIONS, detail, topic.partitions)


def _replication_drift(topic: Topic, live: LiveTopic) -> TopicChange | None:
    # No request of the admin client changes it: a reassignment moves replicas to named brokers.
    if topic.replication == live.replication:
        return None
    return _refused(
        topic,
        f"it has replication {live.replication}, declared is {topic.replication}; move its "
        "partitions with kafka-reassign-partitions, then plan again",
    )


def _key_drift(topic: Topic, state: TopicState, known: KnownKey | None) -> TopicChange | None:
    # A recreated or empty topic has no records with the old key.
    if known is None or known.topic_id != state.live.topic_id or state.is_empty:
        return None
    if known.key == topic.key:
        return None
    return _refused(
        topic,
        f"its records are keyed by {known.key!r} and declared is {topic.key!r}: old and new "
        "records of one key would lie in different partitions; move to a topic with a new name",
    )


def _config_drift(topic: Topic, state: TopicState) -> TopicChange | None:
    declared = topic.kafka_config
    changed: dict[str, str | None] = {
        name: value for name, value in declared.items() if state.config.get(name) != value
    }
    # Settings of the topic that are not declared return to the broker's default.
    changed |= dict.fromkeys(sorted(state.overrides - set(declared) - _TRANSIENT))
    if not changed:
        return None
    detail = ", ".join(
        f"{name} {state.config.get(name)} to {value or 'the default'}"
        for name, value in changed.items()
    )
    return TopicChange(topic.name, Action.ALTER_CONFIG, detail, config=changed)


def _refused(topic: Topic, reason: str) -> TopicChange:
    return TopicChange(topic.name, Action.REFUSED, reason)


def _describe_configs(
    config: ClientConfig, names: Sequence[str]
) -> dict[str, tuple[dict[str, str], frozenset[str]]]:
    """Returns the values of each topic's settings, and the names of those set on the topic."""
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]

    def request(client: AdminClient) -> dict[str, Any]:
        # A short attempt: a read is repeated until the time limit of the whole request.
        futures = client.describe_configs(resources, request_timeout=READ_ATTEMPT_SECONDS)
        return {resource.name: future.result() for resource, future in futures.items()}

    with needs(config, "DESCRIBE_CONFIGS", f"topic {', '.join(names)}"):
        configs = admin_request(config, request)
    # Only settings of the topic itself are compared, not defaults of the brokers.
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        topic: (
            {name: str(entry.value) for name, entry in entries.items()},
            frozenset(name for name, entry in entries.items() if entry.source == own),
        )
        for topic, entries in configs.items()
    }


def _apply(config: ClientConfig, change: TopicChange, harmless: int | None = None) -> None:
    """Sends a change; the error code ``harmless`` means that it is done already."""
    try:
        with needs(config, _OPERATIONS[change.action], f"topic {change.topic}"):
            admin_request(config, lambda client: _request(client, change))
    except KafkaException as error:
        if error.args[0].code() != harmless:
            raise TopicChangeError(change.topic, error.args[0].str()) from error


def _request(client: AdminClient, change: TopicChange) -> None:
    timeout = REQUEST_TIMEOUT_SECONDS
    futures: Mapping[Any, Future[Any]]
    if change.action is Action.CREATE:
        new = NewTopic(
            change.topic, change.partitions, change.replication, config=dict(change.config)
        )
        futures = client.create_topics([new], operation_timeout=timeout, request_timeout=timeout)
    elif change.action is Action.ADD_PARTITIONS:
        more = NewPartitions(change.topic, change.partitions)
        futures = client.create_partitions(
            [more], operation_timeout=timeout, request_timeout=timeout
        )
    else:
        futures = client.incremental_alter_configs([_alteration(change)], request_timeout=timeout)
    for future in futures.values():
        future.result()


def _alteration(change: TopicChange) -> ConfigResource:
    entries = [
        ConfigEntry(
            name,
            value or "",
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for name, value in change.config.items()
    ]
    return ConfigResource(ResourceType.TOPIC, change.topic, incremental_configs=entries)


def _await_settings(config: ClientConfig, altered: Mapping[str, Mapping[str, str | None]]) -> None:
    """Waits until the broker answers with new settings, a moment after its controller has them."""

    def pending() -> str:
        configs = _describe_configs(config, list(altered))
        is_shown = all(
            name not in overrides if value is None else settings.get(name) == value
            for topic, changed in altered.items()
            for settings, overrides in [configs[topic]]
            for name, value in changed.items()
        )
        return "" if is_shown else ", ".join(altered)

    if altered:
        _await_shown(pending, "settings were changed, but the broker does not show it")


def _await_shown(pending: Callable[[], str], reason: str) -> None:
    """Waits until ``pending`` names no topic whose change the broker does not show yet.

    Raises:
        TopicChangeError: if it still does after :data:`KNOWN_WITHIN`.
    """
    deadline = time.monotonic() + KNOWN_WITHIN.total_seconds()
    while topics := pending():
        if time.monotonic() > deadline:
            raise TopicChangeError(topics, reason)
        time.sleep(0.05)
