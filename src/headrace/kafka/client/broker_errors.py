"""What an error of Kafka means: retried, waited for, or raised at once.

librdkafka hands over the codes of Kafka's protocol and, with an underscore, its own. This is the
only table of them: readers, producers, transactions, members of groups and ingest ask for the
:func:`meaning` of an error, and decide by that alone what to do.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message

from headrace.errors import AuthorizationError
from headrace.kafka.admin.record_limits import TIMES_AHEAD, TIMES_BEHIND
from headrace.runtime.clock import now_in_ms


class Meaning(enum.Enum):
    """What follows from an error.

    Names that are not in the table are PERMANENT, or TRANSIENT where librdkafka says so.

    END: a reader is at the end that this broker knows of; no failure.
    UNREACHABLE: no broker answers: it is down, or the address or the login is wrong.
    TRANSIENT: leaders or coordinators are changing; the same request succeeds a little later.
    MISSING: the topic or partition does not exist.
    FORBIDDEN: an ACL is missing.
    NO_RECORD: there is no record at that offset, and no later read will find one.
    TRUNCATED: the log was cut after a position that was read.
    DAMAGED: the records can't be read: a wrong checksum, or a compression that can't be undone.
    INVALID_RECORD: the record itself is at fault, so that no retry of it can succeed.
    INVALID_TOPIC: the topic takes no such record from any client, until an operator changes it.
    PURGED: this client abandoned the record before it was acknowledged; it may be written.
    FENCED: another producer has started with the transactional id.
    REBALANCING: the group is between two assignments; a commit succeeds after it.
    EVICTED: the group does not count this consumer as a member any more.
    ID_IN_USE: another member has the ``group.instance.id``.
    NO_GROUP: there is no group of that name.
    METADATA_TOO_LARGE: the offsets were not committed, since the metadata beside them is too long.
    FATAL: the client can't be used any more, such as one whose id another member has taken.
    PERMANENT: anything else; a retry does not help.
    """

    END = enum.auto()
    UNREACHABLE = enum.auto()
    TRANSIENT = enum.auto()
    MISSING = enum.auto()
    FORBIDDEN = enum.auto()
    NO_RECORD = enum.auto()
    TRUNCATED = enum.auto()
    DAMAGED = enum.auto()
    INVALID_RECORD = enum.auto()
    INVALID_TOPIC = enum.auto()
    PURGED = enum.auto()
    FENCED = enum.auto()
    REBALANCING = enum.auto()
    EVICTED = enum.auto()
    ID_IN_USE = enum.auto()
    NO_GROUP = enum.auto()
    METADATA_TOO_LARGE = enum.auto()
    FATAL = enum.auto()
    PERMANENT = enum.auto()


LEADER_CHANGED = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_LEADER_EPOCH",
    }
)
"""The request went to an old leader, or with an old epoch: newer metadata names the new ones."""

_NAMES = {
    Meaning.END: ("_PARTITION_EOF",),
    Meaning.UNREACHABLE: (
        "_ALL_BROKERS_DOWN",
        "_AUTHENTICATION",
        "_MSG_TIMED_OUT",
        "_RESOLVE",
        "_SSL",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_TRANSPORT",
        "_WAIT_COORD",
        "BROKER_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
    ),
    # Those that Kafka's own client takes for retriable, and librdkafka's for a broker that leaves.
    Meaning.TRANSIENT: (
        "_DESTROY_BROKER",
        "_RETRY",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INCONSISTENT_TOPIC_ID",
        "INVALID_FETCH_SESSION_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_ID",
        "UNSTABLE_OFFSET_COMMIT",
    ),
    Meaning.MISSING: ("UNKNOWN_TOPIC_OR_PART", "_NOENT", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"),
    Meaning.FORBIDDEN: (
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    Meaning.NO_RECORD: ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"),
    Meaning.TRUNCATED: ("_LOG_TRUNCATION",),
    Meaning.DAMAGED: ("_BAD_COMPRESSION", "_BAD_MSG", "_UNDERFLOW", "INVALID_MSG"),
    # What an operator can fix (a login, an ACL, too few replicas) is no fault of a record.
    Meaning.INVALID_RECORD: (
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    ),
    Meaning.INVALID_TOPIC: ("POLICY_VIOLATION", "TOPIC_EXCEPTION"),
    Meaning.PURGED: ("_PURGE_INFLIGHT", "_PURGE_QUEUE"),
    Meaning.FENCED: ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"),
    Meaning.REBALANCING: ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"),
    Meaning.EVICTED: ("_MAX_POLL_EXCEEDED", "UNKNOWN_MEMBER_ID"),
    Meaning.ID_IN_USE: ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"),
    Meaning.NO_GROUP: ("GROUP_ID_NOT_FOUND",),
    Meaning.METADATA_TOO_LARGE: ("OFFSET_METADATA_TOO_LARGE",),
    Meaning.FATAL: ("_FATAL",),
}

_REFUSING_SETTINGS = {
    "INVALID_RECORD": "cleanup.policy",  # a compacted topic takes no record without a key
    "INVALID_TIMESTAMP": TIMES_AHEAD,
    "MSG_SIZE_TOO_LARGE": "max.message.bytes",
    "RECORD_LIST_TOO_LARGE": "max.message.bytes",
}

# librdkafka reports it as a reset of the offset, with this as the reason.
_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - its public name
_MEANINGS = {name: meaning for meaning, names in _NAMES.items() for name in names}
_UNCONFIRMED = KafkaError(
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - its public name
    "a later batch of its partition was accepted, this one was not confirmed",
)


def meaning(error: KafkaError) -> Meaning:
    """Returns what follows from ``error``."""
    if _TRUNCATION in error.str():
        return Meaning.TRUNCATED
    if error.name() in _MEANINGS:
        return _MEANINGS[error.name()]
    return Meaning.TRANSIENT if error.retriable() else Meaning.PERMANENT


def names(meaning_: Meaning) -> tuple[str, ...]:
    """Returns the names of the errors that the table has under a meaning."""
    return _NAMES[meaning_]


def is_of_record(error: KafkaError) -> bool:
    """Whether the brokers will never take the record that ``error`` is about."""
    return meaning(error) is Meaning.INVALID_RECORD


def refusing_setting(error: KafkaError, timestamp_ms: int) -> str:
    """Returns the setting of a topic by which brokers refuse a record of it; empty: by none."""
    setting = _REFUSING_SETTINGS.get(error.name(), "")
    is_behind = timestamp_ms < now_in_ms()
    return TIMES_BEHIND if setting == TIMES_AHEAD and is_behind else setting


def is_final_for_topic(error: KafkaError) -> bool:
    """Whether a record is not taken until it, its topic or the ACLs are changed.

    Those of the cluster or a transactional id are not among them: they concern every topic.
    """
    if meaning(error) is Meaning.FORBIDDEN:
        return bool(error.name().startswith("TOPIC_"))
    return meaning(error) in {Meaning.INVALID_RECORD, Meaning.INVALID_TOPIC}


def delivery_failure(error: KafkaError | None, message: Message) -> KafkaError | None:
    """Returns why a record is not confirmed; ``None``: every in-sync replica has it.

    Without an offset no broker confirmed it, whatever librdkafka reports: it takes a batch for
    delivered once a later one of the partition is accepted ("implicitly acked" in its log). A
    broker that knows nothing of the producer yet, as in a new partition, accepts a batch with any
    sequence number, even after one that it has just refused, and that one would be lost.
    """
    if error is None and message.offset() is None:
        return _UNCONFIRMED
    return error


@contextmanager
def needs(config: Mapping[str, str], operation: str, resource: str) -> Iterator[None]:
    """Names the missing ACL when the block inside fails for want of one.

    ``resource`` begins with its kind. An error about another kind is raised as it is, so that
    these blocks can be nested.

    Raises:
        AuthorizationError: if the brokers forbid ``operation``.
    """
    try:
        yield
    except KafkaException as error:
        kind = error.args[0].name().partition("_")[0].lower()
        if is_forbidden(error.args[0]) and kind in {resource.partition(" ")[0], "cluster"}:
            raise forbidden(config, operation, resource) from error
        raise


def is_forbidden(error: KafkaError) -> bool:
    """Whether an ACL is missing."""
    return meaning(error) is Meaning.FORBIDDEN


def forbidden(config: Mapping[str, str], operation: str, resource: str) -> AuthorizationError:
    """Returns the error that names the missing ACL."""
    return AuthorizationError(operation, resource, principal(config))


def principal(config: Mapping[str, str]) -> str:
    """Returns the principal of clients with ``config``, as far as the settings name it."""
    if config.get("sasl.username"):
        return f"User:{config['sasl.username']}"
    if "sasl" in config.get("security.protocol", "").lower():
        return "the user of its token"
    if config.get("ssl.certificate.location") or config.get("ssl.keystore.location"):
        return "the user of its certificate"
    return "User:ANONYMOUS"
