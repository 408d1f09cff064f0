"""What must hold for a declared topic before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from headrace.model import (
    MAX_TOPIC_NAME_LENGTH,
    TOPIC_NAME,
    Avro,
    ByAccount,
    ByField,
    ByHash,
    ByKey,
    ByShard,
    EventSchema,
    FieldType,
    Format,
    Json,
    Partitioning,
    Protobuf,
    Raw,
    Registered,
    Topic,
    readable_schema,
)
from headrace.model.fault import Fault, is_a
from headrace.model.name import is_own_column
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.model.source import RECORD_COLUMNS
from headrace.settings import Settings
from headrace.topics.envelope_rules import envelope_faults

_RESERVED_COLUMNS = RECORD_COLUMNS | {RESCUED_COLUMN}
TIME_TYPES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})
ID_TYPES = frozenset({FieldType.STRING})
KEY_TYPES = frozenset({FieldType.STRING, FieldType.LONG})
_BINARY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_ROLES = (
    ("key", KEY_TYPES, "str or int"),
    ("event_id", ID_TYPES, "str"),
    ("event_time", TIME_TYPES, "datetime or EpochMillis"),
)


def topic_faults(topic: Topic, settings: Settings) -> Iterator[Fault]:
    """Everything wrong with one topic by itself."""
    yield from name_faults(topic.name)
    yield from _number_faults(topic, settings)
    yield from _config_faults(topic)
    yield from _event_faults(topic)
    if isinstance(topic.format, Registered) and settings.schema_registry is None:
        yield Fault(
            f"topic {topic.name!r}: format {topic.format!r} without a schema registry",
            'headrace.toml: [schema_registry] with url = "http://..."',
        )
    if isinstance(topic.format, Avro | Protobuf) and (schema := schema_of(topic)) is not None:
        yield from _binary_field_faults(type(topic.format).__name__, schema.name, schema, "")
    if isinstance(topic.format, Protobuf) and schema is not None:
        yield from _protobuf_field_faults(schema.name, schema, "")
    yield from envelope_faults(topic, schema_of(topic))


def name_faults(name: object) -> Iterator[Fault]:
    """Kafka's rules for the name of a topic."""
    if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        yield Fault(f"{name!r} is not a topic name", "Kafka allows letters, digits, '.', '_', '-'")
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        yield Fault(
            f"topic name of {len(name)} characters", f"Kafka allows {MAX_TOPIC_NAME_LENGTH}"
        )
    elif name.startswith("__"):
        yield Fault(f"topic name {name!r} begins with '__'", "those are Kafka's own")


def schema_of(topic: Topic) -> EventSchema | None:
    """The topic's schema; None when it has none or it is faulty (reported elsewhere)."""
    try:
        return topic.schema
    except Exception:  # noqa: BLE001 - annotations run the user's code
        return None


def _number_faults(topic: Topic, settings: Settings) -> Iterator[Fault]:
    for attribute in ("partitions", "replication"):
        value = getattr(topic, attribute)
        # By `type`, not `isinstance`: to Python, True is an integer.
        if type(value) is not int or value < 1:
            yield Fault(
                f"topic {topic.name!r}: {attribute} is {value!r}; "
                "it must be a whole number of at least 1"
            )
    # Nothing asks the brokers here: how many there are is known of the embedded ones alone.
    brokers = settings.kafka.embedded.brokers
    if (
        not settings.kafka.bootstrap_servers
        and isinstance(topic.replication, int)
        and topic.replication > brokers
    ):
        yield Fault(
            f"topic {topic.name!r}: replication {topic.replication} "
            f"on {brokers} embedded broker(s)",
            "raise kafka.embedded.brokers",
        )
    yield from _time_faults(topic)


def _time_faults(topic: Topic) -> Iterator[Fault]:
    if topic.retention is not None and not (
        isinstance(topic.retention, timedelta) and topic.retention > timedelta(0)
    ):
        message = f"topic {topic.name!r}: retention is {topic.retention!r}"
        yield Fault(message, "a timedelta above zero, or None")
    if not is_a(topic.latest_ahead, timedelta) or topic.latest_ahead < timedelta(0):
        message = f"topic {topic.name!r}: latest_ahead is {topic.latest_ahead!r}"
        yield Fault(message, "a timedelta of zero or more")
    earliest = topic.earliest_event_time
    if not is_a(earliest, datetime) or earliest.tzinfo is None:
        what = "has no time zone" if is_a(earliest, datetime) else "is no datetime"
        yield Fault(
            f"topic {topic.name!r}: earliest_event_time {earliest!r} {what}",
            "datetime(..., tzinfo=UTC)",
        )


def _config_faults(topic: Topic) -> Iterator[Fault]:
    for name, value in topic.config.items():
        if not is_a(name, str) or not is_a(value, str):
            yield Fault(f"topic {topic.name!r}: config {name!r} is {value!r}; both must be text")
    if topic.retention is not None and "retention.ms" in topic.config:
        yield Fault(f"topic {topic.name!r}: retention and config['retention.ms']", "keep one")
    if "cleanup.policy" in topic.config and topic.compaction:
        yield Fault(f"topic {topic.name!r}: compaction and config['cleanup.policy']", "keep one")


def _protobuf_field_faults(event: str, schema: EventSchema, prefix: str) -> Iterator[Fault]:
    """Yields what Protobuf has no form for: nulls and lists within lists, and null lists."""
    for field in schema.fields:
        path = prefix + field.name
        held = field if field.element is None else field.element
        if field.element is not None and field.nullable:
            message = (
                f"{event}.{path} can be null, which is an empty {field.type.value} in Protobuf"
            )
            yield Fault(message, "drop `| None`", path)
        if field.element is not None and (held.nullable or held.element is not None):
            what = "null" if held.nullable else "lists"
            message = (
                f"{event}.{path} may hold {what}, which no {field.type.value} of Protobuf does"
            )
            yield Fault(message, "declare a class with that field, and hold its instances", path)
        elif held.schema is not None:
            yield from _protobuf_field_faults(event, held.schema, f"{path}.")


def _binary_field_faults(
    kind: str, event: str, schema: EventSchema, prefix: str
) -> Iterator[Fault]:
    if not _BINARY_NAME.fullmatch(schema.name):
        where = f"{event}.{prefix}".rstrip(".")
        yield Fault(f"{where}: {schema.name!r} is no name in {kind}", _names(kind))
    for field in schema.fields:
        inner, path = field, prefix + field.name
        if not _BINARY_NAME.fullmatch(field.name):
            yield Fault(f"{event}.{path} is no name in {kind}", _names(kind), path)
        while inner.element is not None:
            inner, path = inner.element, f"{path}[]"
        if inner.type is FieldType.JSON:
            yield Fault(f"{event}.{path} is Any, which {kind} has no type for", "declare str", path)
        if inner.schema is not None:
            yield from _binary_field_faults(kind, event, inner.schema, f"{path}.")


def _names(kind: str) -> str:
    return f"{kind} allows A to Z, a to z, 0 to 9 and _"


def _event_faults(topic: Topic) -> Iterator[Fault]:
    where = f"topic {topic.name!r}: format"
    if topic.format is not None and not is_a(topic.format, Format):
        yield Fault(
            f"{where} is {topic.format!r}", "Json(), Avro(), JsonSchema(), Protobuf() or Raw()"
        )
    elif topic.event is None and isinstance(topic.format, Json | Registered):
        yield Fault(f"{where} {topic.format!r} without an event class", "event=..., or Raw()")
    elif topic.event is not None and isinstance(topic.format, Raw):
        yield Fault(f"{where} Raw() with an event class", "leave one of them out")
    if topic.event is None:
        yield from _raw_faults(topic)
        return
    try:
        schema, unsupported = readable_schema(topic.event)
    except Exception as error:  # noqa: BLE001 - annotations run the user's code
        yield Fault(f"topic {topic.name!r}: event {topic.event!r}: {error}")
        return
    if not unsupported:
        yield from _schema_faults(topic, schema)
        return
    # All faults at once: roles of readable fields are checked beside the unreadable ones.
    yield from (Fault(str(error), field=error.field) for error in unsupported)
    faulty = {error.field for error in unsupported}
    for role, types, words in _ROLES:
        if getattr(topic, role) not in faulty:
            yield from _role_faults(topic, schema, role, types, words)


def _raw_faults(topic: Topic) -> Iterator[Fault]:
    for attribute in ("key", "event_id", "event_time"):
        if getattr(topic, attribute) is not None:
            yield Fault(
                f"topic {topic.name!r}: {attribute} names a field, but raw bytes have none",
                "declare an event class",
            )
    if topic.partitioning != ByKey():
        yield Fault(f"topic {topic.name!r}: raw bytes have no fields to partition by")


def _schema_faults(topic: Topic, schema: EventSchema) -> Iterator[Fault]:
    for role, types, words in _ROLES:
        yield from _role_faults(topic, schema, role, types, words)
    if topic.derive_event_id and topic.event_id is None:
        yield Fault(f"topic {topic.name!r}: derive_event_id without event_id", "name its field")
    if topic.derive_event_id and "." in str(topic.event_id):
        yield Fault(
            f"topic {topic.name!r}: derive_event_id can't fill the nested field {topic.event_id!r}",
            "name a field of the event itself",
        )
    if topic.event_time in schema.names and schema.field(topic.event_time).nullable:
        yield Fault(
            f"{schema.name}.{topic.event_time} is the event time and can be null",
            "drop `| None`; events without it become dead letters",
            topic.event_time,
        )
    yield from _partitioning_faults(topic, schema)
    for name in schema.names:
        # In lower case, because Spark and Delta ignore the case of column names.
        if name.lower() in _RESERVED_COLUMNS or is_own_column(name):
            reserved = f"a column of headrace's own, {name.lower()!r}"
            yield Fault(f"{schema.name}.{name} is {reserved}", "rename it", name)
    yield from _case_faults(schema.name, schema, "")


def _partitioning_faults(topic: Topic, schema: EventSchema) -> Iterator[Fault]:
    strategy, where = topic.partitioning, f"topic {topic.name!r}: partitioning"
    if wrong := _partitioning_types(strategy):
        yield Fault(f"{where}: {wrong[0]}", wrong[1])
        return
    for fault in _placed_by_faults(strategy, schema):
        yield replace(fault, message=f"{where}{fault.message}")
    if isinstance(strategy, ByHash | ByAccount):
        if topic.event_time is None:
            yield Fault(f"{where} by windows without an event time", "name it: event_time=...")
        if strategy.window <= timedelta(0):
            yield Fault(f"{where} by a window of {strategy.window}", "it must be above 0")
    lead = strategy.lead if isinstance(strategy, ByAccount) else None
    # Events ahead of the clock would be refused even right after a look at what was applied.
    if lead is not None and lead <= topic.latest_ahead:
        yield Fault(
            f"{where} has a lead of {lead}, and events may be {topic.latest_ahead} ahead of time",
            "a lead above latest_ahead, by the time that brokers may be unreachable",
        )
    for place in _partitioning_places(strategy):
        if type(place) is not int or not 0 <= place < topic.partitions:
            yield Fault(f"{where} names partition {place!r} of {topic.partitions}")


def _placed_by_faults(strategy: Partitioning, schema: EventSchema) -> Iterator[Fault]:
    for name in _partitioning_fields(strategy):
        field = schema.find(name)
        if field is None:
            fields = ", ".join(schema.names)
            yield Fault(f" by {name!r}, not a field of {schema.name}", f"fields: {fields}")
        elif field.type not in KEY_TYPES:
            remedy = "a str or int: values of other types may be written in several ways"
            yield Fault(f" by {name!r}, a {field.type.value}", remedy)
        elif isinstance(strategy, ByShard):
            kind = str if field.type is FieldType.STRING else int
            for key in (key for key in strategy.shards if type(key) is not kind):
                message = f": shards has the key {key!r}, and {name!r} is {kind.__name__}"
                yield Fault(message, f"keys that are {kind.__name__}")


def _partitioning_types(strategy: object) -> tuple[str, str] | None:
    """What makes it unreadable, and the remedy; the rest is looked at only where it is None."""
    if not isinstance(strategy, Partitioning):
        return f"{strategy!r} is no strategy", "ByKey(), Random(), ByField, ByHash, ..."
    if isinstance(strategy, ByHash | ByAccount) and not is_a(strategy.window, timedelta):
        return f"window is {strategy.window!r}", "window=timedelta(minutes=1)"
    if isinstance(strategy, ByHash) and not (is_a(strategy.fields, tuple) and strategy.fields):
        return f"fields is {strategy.fields!r}", 'fields=("query",)'
    if isinstance(strategy, ByShard) and not is_a(strategy.shards, Mapping):
        return f"shards is {strategy.shards!r}", 'shards={"a": 0, "b": 1}'
    return _spread_types(strategy) if isinstance(strategy, ByAccount) else None


def _spread_types(strategy: ByAccount) -> tuple[str, str] | None:
    if strategy.account is not None and not is_a(strategy.account, str):
        return f"account is {strategy.account!r}", 'account="account_id", or None'
    if strategy.lead is not None and not is_a(strategy.lead, timedelta):
        return f"lead is {strategy.lead!r}", "lead=timedelta(days=2), or None"
    for account, spreads in strategy.spreads.items():
        for spread in spreads:
            if not is_a(spread.since, datetime) or spread.since.tzinfo is None:
                message = f"since of {account!r} is {spread.since!r}, without a time zone"
                return message, "datetime(..., tzinfo=UTC)"
        times = [spread.since for spread in spreads]
        if times != sorted(times):
            return f"spreads of {account!r} are not in the order of their since", "sort them"
    return None


def _partitioning_fields(strategy: Partitioning) -> tuple[str, ...]:
    if isinstance(strategy, ByField | ByShard):
        return (strategy.field,)
    if isinstance(strategy, ByAccount):
        return () if strategy.account is None else (strategy.account,)
    return strategy.fields if isinstance(strategy, ByHash) else ()


def _partitioning_places(strategy: Partitioning) -> list[int]:
    """Partitions it names, from 0."""
    if isinstance(strategy, ByShard):
        return [*strategy.shards.values(), strategy.otherwise]
    if isinstance(strategy, ByAccount):
        return [
            spread.partitions - 1 for spreads in strategy.spreads.values() for spread in spreads
        ]
    return []


def _role_faults(
    topic: Topic, schema: EventSchema, role: str, types: frozenset[FieldType], words: str
) -> Iterator[Fault]:
    name = getattr(topic, role)
    if name is None:
        return
    field = schema.find(name) if is_a(name, str) else None
    if field is None:
        yield Fault(
            f"topic {topic.name!r}: {role} {name!r} is not a field of {schema.name}",
            f"fields: {', '.join(schema.names)}",
        )
    elif field.type not in types:
        kind = field.type.value
        yield Fault(
            f"{schema.name}.{name} is a {kind} and can't be the {role}", f"declare {words}", name
        )
    elif role == "event_time" and name not in schema.names:
        yield Fault(
            f"{schema.name}.{name} is nested and can't be the event_time",
            "declare it as a field of the event itself: it is a column of its own",
            name,
        )


def _case_faults(event: str, schema: EventSchema, prefix: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for field in schema.fields:
        path = prefix + field.name
        if field.name.lower() in seen:
            yield Fault(
                f"{event}.{path} differs from another field only in case",
                "Spark and Delta ignore the case of column names",
                path,
            )
        seen.add(field.name.lower())
        inner = field
        while inner.element is not None:
            inner, path = inner.element, f"{path}[]"
        if inner.schema is not None:
            yield from _case_faults(event, inner.schema, f"{path}.")
