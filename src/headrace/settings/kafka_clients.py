"""Which of librdkafka's settings a project may set, where, and why not the others.

Three tables have them: ``client`` of all clients, ``consumer`` of those that read records, and
``producer`` of those that write them. ``[kafka]`` and ``[sites.NAME.kafka]`` have them for a
cluster, ``[workers.NAME.kafka]`` and its like for one declaration.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.settings.document import Table
from headrace.settings.kinds import FOLDERS
from headrace.settings.model import ClientSettings

Values = str | range
"""What a value looks like: a regular expression, or whole numbers."""

_NUMBER = r"\d{1,10}"
_SWITCH = "true|false"
_WHOLE = re.compile(r"-?[0-9]{1,10}")
# A record may have 64 MiB, and one that the producer's queue can't hold would wait without end.
_MIN_QUEUE_KB = 131_072
# A client checks that an answer of this size is below its receive.message.max.bytes.
_MAX_FETCHED_BYTES = 99_999_488
# A topic takes 1,048,588 bytes by default, and larger batches are refused as a whole.
_MAX_BATCH_BYTES = 1_000_000
_MAX_LINGER_MS = 10_000
_MAX_WAIT_MS = 5_000

PRODUCER_SETTINGS: Mapping[str, str] = {
    "compression.type": "none|gzip|snappy|lz4|zstd",
    "linger.ms": _NUMBER,
}
"""Names of ``client`` that producers alone know, and what their values look like."""
COMMON_SETTINGS: Mapping[str, str] = {
    "broker.address.family": "any|v4|v6",
    "broker.address.ttl": _NUMBER,
    "client.id": r"[\w.-]{1,200}",
    "client.rack": r"[\w./-]{1,200}",
    "connections.max.idle.ms": _NUMBER,
    "metadata.max.age.ms": _NUMBER,
    "reconnect.backoff.max.ms": _NUMBER,
    "reconnect.backoff.ms": _NUMBER,
    "retry.backoff.max.ms": _NUMBER,
    "retry.backoff.ms": _NUMBER,
    "socket.connection.setup.timeout.ms": _NUMBER,
    "socket.keepalive.enable": _SWITCH,
    "socket.nagle.disable": _SWITCH,
    "socket.receive.buffer.bytes": _NUMBER,
    "socket.send.buffer.bytes": _NUMBER,
    "socket.timeout.ms": _NUMBER,
}
"""Those of ``client`` of a declaration; none changes a promise."""
CLIENT_SETTINGS: Mapping[str, str] = {**PRODUCER_SETTINGS, **COMMON_SETTINGS}
"""Those of ``client`` of a cluster."""
READING: Mapping[str, Values] = {
    "fetch.error.backoff.ms": range(60_001),
    "fetch.max.bytes": range(1_048_576, _MAX_FETCHED_BYTES + 1),
    "fetch.message.max.bytes": range(1, 1_000_000_001),
    "fetch.min.bytes": range(1, 100_000_001),
    "fetch.queue.backoff.ms": range(_MAX_WAIT_MS + 1),
    "fetch.wait.max.ms": range(_MAX_WAIT_MS + 1),
    "queued.max.messages.kbytes": range(1, 2_097_152),
    "queued.min.messages": range(1, 10_000_001),
}
"""Those of ``consumer``."""
WRITING: Mapping[str, Values] = {
    "batch.num.messages": range(1, 1_000_001),
    "batch.size": range(1, _MAX_BATCH_BYTES + 1),
    "compression.level": range(-1, 13),
    "compression.type": PRODUCER_SETTINGS["compression.type"],
    "linger.ms": range(_MAX_LINGER_MS + 1),
    "queue.buffering.max.kbytes": range(_MIN_QUEUE_KB, 2_147_483_648),
    "queue.buffering.max.messages": range(1_000, 10_000_001),
    "sticky.partitioning.linger.ms": range(_MAX_LINGER_MS + 1),
}
"""Those of ``producer``."""
JAVA_READING = {
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
}
"""Those of ``consumer`` that Kafka's Java client has, with its names."""
JAVA_WRITING = {
    "batch.size": "batch.size",
    "compression.type": "compression.type",
    "linger.ms": "linger.ms",
}
"""Those of ``producer`` that Kafka's Java client has, with its names."""
BY_JAVA = "dispatchers"
"""The kind of declarations whose records only Spark's own source and sink read and write."""
KINDS_WITH_CLIENTS = tuple(kind for kind in FOLDERS if kind != "topics")
"""The kinds of declarations that have clients, by the names that JSON has for them."""

_ALIASES = {
    "buffer.memory": "queue.buffering.max.kbytes",
    "compression.codec": "compression.type",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "queue.buffering.max.ms": "linger.ms",
}
_DURABLE = "a record that was reported as written could be lost, repeated or out of order"
_LEAVE_OUT = "leave it out"
_GROUP = "it decides which instance has which partitions, and headrace's own timeouts rely on it"
_COMMITS = "a position is committed when its records are done, never by the client itself"
_LOGIN = "it is part of how the project logs in"
OWNED: Mapping[str, tuple[str, str]] = {
    "acks": (_DURABLE, "min.insync.replicas of the topic says how many copies are waited for"),
    "allow.auto.create.topics": ("topics are created as they are declared", "`headrace apply`"),
    "auto.commit.interval.ms": (_COMMITS, "`commit_every` of the declaration"),
    "auto.offset.reset": ("records could be skipped", "`start` of the declaration"),
    "bootstrap.servers": (_LOGIN, "kafka.bootstrap_servers"),
    "check.crcs": ("records that were damaged would become rows", _LEAVE_OUT),
    "debug": ("its lines would fill the project's log", _LEAVE_OUT),
    "delivery.report.only.error": ("headrace waits for the report of each record", _LEAVE_OUT),
    "delivery.timeout.ms": (_DURABLE, _LEAVE_OUT),
    "enable.auto.commit": (_COMMITS, "`commit_every` of the declaration"),
    "enable.auto.offset.store": (_COMMITS, _LEAVE_OUT),
    "enable.gapless.guarantee": (_DURABLE, _LEAVE_OUT),
    "enable.idempotence": (_DURABLE, _LEAVE_OUT),
    "enable.partition.eof": ("the end of a partition would not be noticed", _LEAVE_OUT),
    "enable.sparse.connections": ("clients of brokers that are down would never rest", _LEAVE_OUT),
    "group.id": ("it names whose positions are read and committed", "`group` of the declaration"),
    "group.instance.id": (_GROUP, "`headrace workers run --instance-id`"),
    "group.protocol": (_GROUP, "`headrace workers run --protocol`"),
    "group.protocol.type": (_GROUP, _LEAVE_OUT),
    "group.remote.assignor": (_GROUP, _LEAVE_OUT),
    "heartbeat.interval.ms": (_GROUP, _LEAVE_OUT),
    "isolation.level": ("records of aborted transactions would be read", _LEAVE_OUT),
    "log_level": ("headrace logs by itself", _LEAVE_OUT),
    "max.in.flight": (_DURABLE, _LEAVE_OUT),
    "max.in.flight.requests.per.connection": (_DURABLE, _LEAVE_OUT),
    "max.poll.interval.ms": (_GROUP, "`processing_timeout` of the worker"),
    "message.max.bytes": (
        "the topic's own limit counts",
        'config={"max.message.bytes": ...} of the Topic',
    ),
    "message.send.max.retries": (_DURABLE, _LEAVE_OUT),
    "message.timeout.ms": (_DURABLE, _LEAVE_OUT),
    "metadata.broker.list": (_LOGIN, "kafka.bootstrap_servers"),
    "offset.store.method": (_COMMITS, _LEAVE_OUT),
    "partition.assignment.strategy": (_GROUP, _LEAVE_OUT),
    "partitioner": (
        "the records of a key would be in two partitions",
        "`partitioning` of the Topic",
    ),
    "queuing.strategy": (_DURABLE, _LEAVE_OUT),
    "receive.message.max.bytes": ("an answer of a broker could be refused", "fetch.max.bytes"),
    "request.required.acks": (
        _DURABLE,
        "min.insync.replicas of the topic says how many copies are waited for",
    ),
    "request.timeout.ms": (_DURABLE, "socket.timeout.ms of the client"),
    "retries": (_DURABLE, _LEAVE_OUT),
    "security.protocol": (_LOGIN, "kafka.security_protocol"),
    "session.timeout.ms": (_GROUP, _LEAVE_OUT),
    "socket.max.fails": (_GROUP, _LEAVE_OUT),
    "statistics.interval.ms": ("nothing reads them", "/metrics has headrace's own figures"),
    "topic.metadata.refresh.interval.ms": ("new partitions would be seen late", _LEAVE_OUT),
    "transaction.timeout.ms": ("readers wait for the end of a transaction", _LEAVE_OUT),
    "transactional.id": ("it fences an earlier run that is not dead", _LEAVE_OUT),
}
"""What headrace sets itself: why, and what to do in its place."""
_OF_LOGIN = ("sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")


@dataclass(frozen=True)
class Scope:
    """Whose clients are set, with the settings that each of its tables may have.

    Attributes:
        tables: by the name of the table, the names and values of its settings.
        lacking: why a setting that other scopes have is refused in this one.
    """

    tables: Mapping[str, Mapping[str, Values]]
    lacking: str = ""


CLUSTER = Scope({"client": CLIENT_SETTINGS, "consumer": READING, "producer": WRITING})
"""All clients of a cluster."""
DECLARED = Scope({"client": COMMON_SETTINGS, "consumer": READING, "producer": WRITING})
"""The clients of a declaration."""
BY_SPARK = Scope(
    {
        "client": COMMON_SETTINGS,
        "consumer": {name: READING[name] for name in JAVA_READING},
        "producer": {name: WRITING[name] for name in JAVA_WRITING},
    },
    "records of a dispatcher are read and written by Kafka's Java client, which has no such one",
)
"""The clients of a dispatcher."""


def cluster_clients(kafka: Table) -> ClientSettings:
    """Returns the three tables of a cluster; reports what can't be set."""
    return _clients(kafka, CLUSTER)


def declared_clients(top: Table) -> dict[tuple[str, str], ClientSettings]:
    """Returns the tables of declarations, by their kind and name; reports what can't be set."""
    clients: dict[tuple[str, str], ClientSettings] = {}
    for kind in KINDS_WITH_CLIENTS:
        declarations = top.table(kind)
        for name in declarations.names:
            kafka = declarations.table(name).table("kafka")
            clients[kind, name] = _clients(kafka, BY_SPARK if kind == BY_JAVA else DECLARED)
    return clients


def _clients(kafka: Table, scope: Scope) -> ClientSettings:
    client, consumer, producer = (_checked(kafka, name, scope) for name in scope.tables)
    lines = [kafka.line(name) for name in scope.tables if name in kafka]
    return ClientSettings(client, consumer, producer, line=min(lines, default=1))


def _checked(kafka: Table, name: str, scope: Scope) -> dict[str, str]:
    table = kafka.table(name)
    settings = table.flat()
    for setting, value in settings.items():
        problem, remedy = setting_problem(scope, name, setting, value)
        if problem:
            table.report(setting, f"{table.label(setting)} {problem}", remedy)
    return settings


def setting_problem(scope: Scope, table: str, name: str, value: str) -> tuple[str, str]:
    """Returns what is wrong with a setting in a table, and what to do; empty texts: nothing is."""
    allowed = scope.tables[table]
    if name not in allowed:
        problem, remedy = _name_problem(scope, table, name)
        return f"can't be set{problem}", remedy
    values = allowed[name]
    if isinstance(values, range):
        is_valid = _WHOLE.fullmatch(value) is not None and int(value) in values
        remedy = f"a whole number from {values[0]} to {values[-1]}"
    else:
        is_valid = re.fullmatch(values, value) is not None
        remedy = f"it must match {values}"
    return ("", "") if is_valid else (f"is {value!r}", remedy)


def _name_problem(scope: Scope, table: str, name: str) -> tuple[str, str]:
    # Clients take names by the letter, but a user who writes ` Acks ` means acks.
    meant = name.strip().lower()
    if meant in OWNED:
        reason, remedy = OWNED[meant]
        return f": {reason}", remedy
    if meant.startswith(_OF_LOGIN):
        return f": {_LOGIN}", "the keys of [kafka] and [kafka.oauth]"
    allowed, meant = scope.tables[table], _ALIASES.get(meant, meant)
    if meant in allowed:
        return "", f"did you mean {meant!r}?"
    if places := [other for other, known in scope.tables.items() if meant in known]:
        return "", f"it belongs in the table {places[-1]!r} beside this one"
    if any(meant in known for known in DECLARED.tables.values()):
        return f": {scope.lacking}", _LEAVE_OUT
    close = difflib.get_close_matches(meant, allowed, n=1)
    known = f"known here: {', '.join(sorted(allowed))}"
    return "", f"did you mean {close[0]!r}?" if close else known
