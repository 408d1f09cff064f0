"""Random events of random classes, through a topic into every sink, and back as readers get them.

Each record is in the sink with equal values, or a dead letter with its reason, or late, or a
duplicate. What runs is the code of Spark's Python workers and of the driver's commit.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unicodedata import category

import deltalake
import msgspec
import psycopg
import pytest
from psycopg import sql
from tests.contracts.fidelity import (
    DAY,
    EPOCH,
    FIRST,
    FORMATS,
    MICROSECOND,
    Exact,
    Integer,
    Sending,
    Text,
    Truth,
    any_sending,
    parsed,
)
from tests.integration.flow import Flow
from tests.kafka_topics import make_topic
from tests.mock_registry import MockRegistry
from tests.waiting import FLUSH_SECONDS

from headrace import (
    Avro,
    Count,
    Json,
    JsonSchema,
    Kafka,
    Lake,
    Latest,
    Metadata,
    OpenSearch,
    Pipeline,
    Postgres,
    Profiles,
    Protobuf,
    Source,
    Stats,
    Sum,
    Topic,
    Unique,
    WriteMode,
)
from headrace.errors import TableMismatchError
from headrace.events.avro.references import AvroSchemas
from headrace.events.avro.values import AvroTexts
from headrace.events.json_schema.schemas import json_text
from headrace.events.parsing.values import as_read
from headrace.events.protobuf.values import ProtobufTexts
from headrace.events.wire_format import HEADER, SCHEMA_ID_HEADER
from headrace.kafka.admin.schema_registry import SchemaRegistry
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.read.cluster import KafkaCluster
from headrace.ledger.sums import Fate, Hop
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.batch.commit_rows import commit_rows
from headrace.pipelines.batch.manifest import Manifest
from headrace.pipelines.late_data.rule import LateRule
from headrace.pipelines.rows import RunContext, source_spec
from headrace.pipelines.rules import pipeline_faults
from headrace.pipelines.source.datasource import RangesReader, row_schema, spark_schema
from headrace.pipelines.source.reading.reader import ReadRange
from headrace.service.status import State
from headrace.settings import Secret
from headrace.sinks.api import CommitRejection, Sink
from headrace.testing.sink_lab import batch

NOW = datetime.now(UTC).replace(microsecond=0)
NOW_US = (NOW - EPOCH) // MICROSECOND
EVENTS_OF_A_CLASS = 20
YEARS = timedelta(days=36_500)
OFFSET = Metadata.OFFSET.value


@dataclass
class Outcome:
    """What a pipeline made of the records of a range.

    Attributes:
        records: reasons of the records that are dead letters, by their place in the range.
        rows: reasons of rows that the sink has rejected, and their values.
        manifest: what the task has handed to the driver.
        repeats: rows that the sink has dropped as duplicates.
    """

    records: dict[int, str]
    rows: list[tuple[str, Mapping[str, Any]]]
    manifest: Manifest
    repeats: int


class Site:
    """A cluster, a registry, a lake and servers, and one topic in each format."""

    def __init__(self, broker, servers, registry, folder: Path) -> None:
        postgres, redis_server, self.opensearch = servers
        self.client = {"bootstrap.servers": broker.bootstrap_servers}
        self.registry = registry
        self.url = postgres.create_database(f"fidelity_{uuid.uuid4().hex[:8]}")
        self.lake = str(folder / "lake")
        sinks = {"postgres": {"url": Secret(self.url)}, "profiles": {"url": redis_server.url}}
        sinks["opensearch"] = {"url": Secret(self.opensearch.url)}
        self.context = RunContext(
            self.lake,
            self.client,
            sinks,
            folder / "state",
            str(folder / "staging"),
            registry.settings,
        )
        self.topics = {of: f"fidelity-{uuid.uuid4().hex[:8]}" for of in dict.fromkeys(FORMATS)}
        self.target = f"fidelity-{uuid.uuid4().hex[:8]}"
        for name in (*self.topics.values(), self.target):
            make_topic(self.client, name)
        self.ends = dict.fromkeys((*self.topics.values(), self.target), 0)
        self._numbers = count()
        self._producer = connected_producer(self.client)

    def name(self) -> str:
        """Returns the name of a table or store that nobody has yet, and that begins no other."""
        return f"t{next(self._numbers):06}"

    def send(self, sending: Sending) -> tuple[Topic, OffsetRange]:
        """Appends the records to the topic of their format."""
        topic = topic_of(sending, self.topics[sending.format])
        for value in values_of(sending, self.registry):
            headers = headers_of(sending, self.registry)
            self._producer.produce(topic.name, value, key=b"k", partition=0, headers=headers)
        assert self._producer.flush(FLUSH_SECONDS) == 0
        start = self.ends[topic.name]
        self.ends[topic.name] = start + len(sending.sent)
        return topic, OffsetRange(TopicPartition(topic.name, 0), start, self.ends[topic.name])

    def written(self, sending: Sending, topic: Topic, range_: OffsetRange, sink: Sink) -> Outcome:
        """Runs a batch of a range, as a task and the driver do."""
        source = Source(topic, metadata=(Metadata.OFFSET,))
        pipeline = Pipeline(self.name(), source, sink)
        spec = source_spec(pipeline, source, self.context, "", None)
        driver = sink.open(self.context.of_sink(pipeline, sink), row_schema(spec))
        late = LateRule(to_dead_letters=sending.rejects_late)
        spec = replace(spec, late=late, writers=driver.writers)
        work = ReadRange(range_, NOW_US // 1000, event_us=NOW_US)
        reader = RangesReader(spec, spark_schema(spec), [(0, (work,))])
        manifest = Manifest.of(
            row
            for task in reader.partitions()
            for rows in reader.read(task)
            for row in rows.to_pylist()
        )
        rejections: list[CommitRejection] = []
        commit_rows(driver, manifest.pieces, batch(0), 0, rejections.append)
        driver.close(0.0)
        (report,) = manifest.reports
        assert report.records == len(sending.sent)
        assert not report.omitted + manifest.omitted
        values = list(values_of(sending, self.registry))
        for letter in report.dead:
            assert letter.value == values[letter.offset - range_.start]
            assert letter.detail
        rejected = [(each.reason, each.values) for one in rejections for each in one.rejected]
        rejected += [(letter.reason, letter.value) for letter in manifest.dead]
        return Outcome(
            {letter.offset - range_.start: letter.reason for letter in report.dead},
            [(reason, parsed(values)) for reason, values in rejected],
            manifest,
            sum(0 if one.repeats is None else one.repeats.num_rows for one in rejections),
        )


def topic_of(sending: Sending, name: str, **changes: Any) -> Topic:
    """Returns the topic of the records; no time is too early for it."""
    return Topic(
        name,
        event=sending.record.annotation,
        format=sending.format,
        key="who",
        event_id="id",
        event_time="at",
        earliest_event_time=FIRST,
        **changes,
    )


def values_of(sending: Sending, registry: MockRegistry) -> Iterator[bytes | None]:
    """Yields the values of the records, with the ids of their schemas unless headers have them."""
    schema_id = schema_id_of(sending, registry)
    head = b"" if schema_id is None or sending.in_header else HEADER.pack(0, schema_id)
    for sent in sending.sent:
        yield None if sent.value is None else head + sent.value


def headers_of(sending: Sending, registry: MockRegistry) -> list[tuple[str, bytes]]:
    schema_id = schema_id_of(sending, registry)
    if schema_id is None or not sending.in_header:
        return []
    return [(SCHEMA_ID_HEADER, b"\x01" + registry.guid(schema_id).bytes)]


def schema_id_of(sending: Sending, registry: MockRegistry) -> int | None:
    if isinstance(sending.format, Avro):
        return registry.add(sending.record.avro)
    if isinstance(sending.format, Protobuf):
        return registry.add_text(sending.schema, "PROTOBUF")
    return registry.add({}, "JSON") if isinstance(sending.format, JsonSchema) else None


def events_of(
    sending: Sending,
    outcome: Outcome,
    refused: Callable[[Mapping[str, Any]], str] = lambda _: "",
) -> dict[int, Mapping[str, Any]]:
    """Returns the events that come to the sink, by place; the other records are dead letters.

    ``refused`` tells why the sink can't take an event.
    """
    reasons = {n: sent.reason or refused(sent.event) for n, sent in enumerate(sending.sent)}
    assert outcome.records == {n: reason for n, reason in reasons.items() if reason}
    fates = dict.fromkeys(Fate, 0)
    for line in outcome.manifest.reports[0].ledger:
        if line.key.hop is Hop.READ:
            fates[line.key.fate] += line.sums.number
    late = sum(reason == "late-event" for reason in reasons.values())
    assert fates[Fate.IN] == len(reasons)
    assert fates[Fate.LATE] == late
    assert fates[Fate.DEAD] == len(outcome.records) - late
    assert fates[Fate.OUT] == len(reasons) - len(outcome.records)
    return {n: sent.event for n, sent in enumerate(sending.sent) if not reasons[n]}


def first_of_ids(
    events: Mapping[int, Mapping[str, Any]],
) -> tuple[dict[int, Mapping[str, Any]], list[Mapping[str, Any]], int]:
    """Returns the first event of each id, those that differ from it, and how many repeat it."""
    kept: dict[int, Mapping[str, Any]] = {}
    changed, repeats = [], 0
    first: dict[str, Mapping[str, Any]] = {}
    for place, event in events.items():
        if event["id"] not in first:
            first[event["id"]] = kept[place] = event
        elif event == first[event["id"]]:
            repeats += 1
        else:
            changed.append(event)
    return kept, changed, repeats


def ids(events: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(event["id"] for event in events)


def unsafe(event: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Tells which values can't name a directory."""
    texts = [event[name] for name in columns if isinstance(event.get(name), str)]
    is_unsafe = any(
        len(text.encode()) > 100
        or text in {".", ".."}
        or any(char in "/\\" or category(char) == "Cc" for char in text)
        for text in texts
    )
    return "unsafe-partition-value" if is_unsafe else ""


def check_lake(
    site: Site, sending: Sending, topic: Topic, range_: OffsetRange, rng: Random
) -> None:
    fields = sending.record.fields
    places = [n for n, held in fields.items() if isinstance(held.kind, Text | Integer | Truth)]
    by = rng.choice([(), ("day",), ("day", "hour"), ("day", rng.choice(places))])
    unique = rng.choice([None, Unique(by=["id"], within=DAY)])
    sink = Lake(site.name(), partition_by=by, unique=unique)
    outcome = site.written(sending, topic, range_, sink)
    events = events_of(sending, outcome, lambda event: unsafe(event, by))
    kept, changed, repeats = first_of_ids(events) if unique else (events, [], 0)
    assert outcome.repeats == repeats
    assert {reason for reason, _ in outcome.rows} <= {"conflicting-key"}
    assert ids(event for _, event in outcome.rows) == ids(changed)
    if kept:
        kept = {range_.start + place: event for place, event in kept.items()}
        check_rows(sending, f"{site.lake}/{sink.table}", kept, by)


def check_rows(
    sending: Sending, table: str, events: Mapping[int, Mapping[str, Any]], by: Sequence[str] = ()
) -> None:
    """Checks that a lake's table, partitioned ``by`` columns, has the events, by their offsets."""
    fields = sending.record.fields
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    assert sorted(row[OFFSET] for row in rows) == list(events)
    for row in rows:
        event = events[row[OFFSET]]
        # The empty text and null are one partition.
        expected = {n: None if n in by and event[n] == "" else event[n] for n in fields}
        assert sending.record.of_arrow({name: row[name] for name in fields}) == expected
        assert row.get("day", event["at"].date()) == event["at"].date()
        assert row.get("hour", event["at"].hour) == event["at"].hour


def check_postgres(
    site: Site, sending: Sending, topic: Topic, range_: OffsetRange, rng: Random
) -> None:
    fields, table = sending.record.fields, site.name()
    by_id = rng.choice([True, False])
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(held.kind.sql))
        for name, held in fields.items()
    ]
    columns += [sql.SQL("_offset bigint"), *([sql.SQL("PRIMARY KEY (id)")] if by_id else [])]
    selected = [
        sql.SQL("{}::text" if held.kind.sql == "jsonb" else "{}").format(sql.Identifier(name))
        for name, held in fields.items()
    ]
    made = sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(table), _listed(columns))
    mode = {"mode": WriteMode.UPSERT, "key": ("id",), "newest_by": "at"} if by_id else {}
    with psycopg.connect(site.url, autocommit=True, options="-c TimeZone=UTC") as connection:
        connection.execute(made)
        outcome = site.written(sending, topic, range_, Postgres(table, **mode))
        query = sql.SQL("SELECT _offset, {} FROM {}")
        query = query.format(_listed(selected), sql.Identifier(table))
        rows = {offset - range_.start: values for offset, *values in connection.execute(query)}
    events = events_of(sending, outcome)
    refused = [event for event in events.values() if sending.record.holds_nul(event)]
    kept = {n: event for n, event in events.items() if not sending.record.holds_nul(event)}
    # All events of an id have one time.
    kept, changed, _ = first_of_ids(kept) if by_id else (kept, [], 0)
    assert {reason for reason, _ in outcome.rows} <= {"nul-character", "conflicting-key"}
    assert ids(event for _, event in outcome.rows) == ids([*refused, *changed])
    assert rows.keys() == kept.keys()
    for place, values in rows.items():
        for (name, held), value in zip(fields.items(), values, strict=True):
            is_json = held.kind.sql == "jsonb" and value is not None
            found = held.of_json(parsed(value), lambda value: value) if is_json else value
            assert found == held.plain(kept[place][name]), name


def _listed(parts: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def check_kafka(
    site: Site, sending: Sending, topic: Topic, range_: OffsetRange, rng: Random
) -> None:
    target = replace(topic, name=site.target, format=rng.choice([Json(), topic.record_format]))
    start = site.ends[target.name]
    outcome = site.written(sending, topic, range_, Kafka(target))
    events = events_of(sending, outcome)
    assert outcome.rows == []
    end = site.ends[target.name] = start + len(events)
    sent = OffsetRange(TopicPartition(target.name, 0), start, end)
    arrived = [
        record for chunk in KafkaCluster(site.client).read([sent]) for record in chunk.records
    ]
    schemas = SchemaRegistry(site.registry.settings)
    text_of = json_text
    if isinstance(target.format, Avro):
        text_of = AvroTexts(AvroSchemas(partial(schemas.schema, "AVRO")), topic.schema)
    elif isinstance(target.format, Protobuf):
        text_of = ProtobufTexts(partial(schemas.schema, "PROTOBUF"), as_read(topic.schema))
    for record, (place, event) in zip(arrived, events.items(), strict=True):
        headers = dict(record.headers())
        assert headers["origin"].decode() == f"{topic.name}/0:{range_.start + place}"
        assert headers["event-id"].decode() == event["id"]
        assert record.key().decode() == event["who"]
        value = sending.record.of_json(parsed(text_of(record.value())), lambda value: value)
        assert value == sending.record.plain(event)


def check_profiles(
    site: Site, sending: Sending, topic: Topic, range_: OffsetRange, rng: Random
) -> None:
    stored = {n: held for n, held in sending.record.fields.items() if n not in ("id", "at", "who")}
    # In Redis, names with an at sign are headrace's own.
    names = tuple(name for name in stored if not name.startswith("@"))
    lists = {"all": Latest(EVENTS_OF_A_CLASS, columns=tuple(stored))}
    sink = Profiles(site.name(), key="who", ttl=YEARS, fields=names, lists=lists, event_id="id")
    outcome = site.written(sending, topic, range_, sink)
    events = events_of(sending, outcome)
    reasons, users = Counter(), defaultdict(dict)
    for event in events.values():
        if event["who"] == "" or event["at"].year < 1827:
            reasons["bad-key" if event["who"] == "" else "wrong-value"] += 1
        elif event["at"] > NOW - YEARS:
            users[event["who"]][event["id"]] = event
        else:
            reasons["expired"] += 1
    (piece,) = outcome.manifest.pieces or ["{}"]
    found = Counter(reason for reason, _ in outcome.rows)
    assert found + Counter(expired=msgspec.json.decode(piece).get("expired", 0)) == reasons
    context = site.context.of_sink(Pipeline("reader", topic, sink), sink)
    for who, entries in users.items():
        profile = sink.read(context, who)
        shown = {
            entry.event_id: {n: held.of_json(entry.values[n], parsed) for n, held in stored.items()}
            for entry in profile.lists["all"]
        }
        assert shown == {
            event_id: {name: held.plain(event[name]) for name, held in stored.items()}
            for event_id, event in entries.items()
        }
        times = {entry.event_id: entry.event_time for entry in profile.lists["all"]}
        assert times == {event_id: event["at"] for event_id, event in entries.items()}
        newest_last = sorted(entries.values(), key=lambda event: (event["at"], event["id"]))
        newest = {n: e[n] for e in newest_last for n in names if e[n] is not None}
        assert profile.fields.keys() == newest.keys()
        for name, field in profile.fields.items():
            value = stored[name].of_json(field.value, parsed)
            assert value == stored[name].plain(newest[name])


def check_stats(
    site: Site, sending: Sending, topic: Topic, range_: OffsetRange, rng: Random
) -> None:
    every = rng.choice([timedelta(hours=1), DAY, timedelta(days=7)])
    summed = [
        n for n, held in sending.record.fields.items() if isinstance(held.kind, Integer | Exact)
    ]
    sums = {f"sum_{number}": Sum(name) for number, name in enumerate(summed)}
    sink = Stats(site.name(), by=("who",), every=every, measures={"n": Count(), **sums})
    outcome = site.written(sending, topic, range_, sink)
    events = events_of(sending, outcome)
    groups: dict[tuple[int, str], list[Decimal]] = {}
    refused = []
    for event in events.values():
        since = (event["at"] - EPOCH) // every * every
        if "\0" in event["who"] or since < FIRST - EPOCH:
            refused.append(event)
            continue
        key = since // timedelta(seconds=1), event["who"]
        values = groups.setdefault(key, [Decimal(0)] * (1 + len(summed)))
        added = [1, *(event[name] or 0 for name in summed)]
        with localcontext(prec=200):
            groups[key] = [value + more for value, more in zip(values, added, strict=True)]
    assert {reason for reason, _ in outcome.rows} <= {"nul-character", "wrong-value"}
    assert ids(event for _, event in outcome.rows) == ids(refused)
    names = sql.SQL(", ").join(map(sql.Identifier, ["n", *sums]))
    query = sql.SQL("SELECT extract(epoch FROM window_start)::bigint, who, {} FROM {}")
    with psycopg.connect(site.url) as connection:
        rows = connection.execute(query.format(names, sql.Identifier(sink.table))).fetchall()
    found = {(since, who): [value or 0 for value in values] for since, who, *values in rows}
    assert found == groups


def check_opensearch(
    site: Site, sending: Sending, topic: Topic, range_: OffsetRange, rng: Random
) -> None:
    index_by = rng.choice([None, "hour", "day", "month"])
    sink = OpenSearch(site.name(), unique=Unique(by=["id"]), index_by=index_by)
    pipeline = Pipeline("refused", Source(topic, metadata=(Metadata.OFFSET,)), sink)
    if [*pipeline_faults(pipeline)]:
        with pytest.raises(TableMismatchError, match="the name of column"):
            site.written(sending, topic, range_, sink)
        return
    outcome = site.written(sending, topic, range_, sink)
    events = events_of(sending, outcome)
    rows = site.opensearch.documents(f"{sink.index}*", parse_int=Decimal, parse_float=Decimal)
    assert {reason for reason, _ in outcome.rows} <= {"bad-key", "wrong-value"}
    rejected = Counter(event["id"] for _, event in outcome.rows)
    kept, *_ = first_of_ids({n: e for n, e in events.items() if not rejected[e["id"]]})
    assert rows.keys() == {event["id"] for event in kept.values()}
    for place, event in kept.items():
        document = rows[event["id"]]
        assert document.pop(OFFSET) == range_.start + place
        assert sending.record.of_json(document, lambda value: value) == sending.record.plain(event)


CHECKS = [check_lake, check_postgres, check_kafka, check_profiles, check_stats, check_opensearch]


@pytest.fixture(scope="module")
def site(broker, postgres, redis_server, opensearch, tmp_path_factory):
    with MockRegistry().running() as registry:
        folder = tmp_path_factory.mktemp("fidelity")
        yield Site(broker, (postgres, redis_server, opensearch), registry, folder)


@pytest.mark.drill(always=True)
@pytest.mark.timeout(3500)
def test_every_record_is_in_the_sink_as_it_was_or_where_its_reason_says(site, drill_run):
    records = drill_run.size(short=300, long=10_000)
    while sum(site.ends[topic] for topic in site.topics.values()) < records:
        rng = Random(drill_run.random.randrange(2**32))
        sending = any_sending(rng, NOW, EVENTS_OF_A_CLASS)
        topic, range_ = site.send(sending)
        for check in CHECKS:
            check(site, sending, topic, range_, rng)
    drill_run.report(records=records)


TAKEN = {"", "late-event", "event-time-out-of-bounds"}


def unchanged(rows):
    return rows


def test_events_go_through_spark_as_they_are(broker, spark, tmp_path, drill_run):
    flow = Flow(broker, spark, tmp_path)
    chosen = [
        replace(sending, rejects_late=False, in_header=False)
        for sending in (any_sending(drill_run.random, NOW, EVENTS_OF_A_CLASS) for _ in range(4))
    ]
    with MockRegistry().running() as registry:
        flow.more_settings = {"schema_registry": registry.settings}
        pipelines = []
        for number, sending in enumerate(chosen):
            topic = topic_of(
                sending, f"{flow.name}-{number}", latest_ahead=timedelta(days=3_000_000)
            )
            flow.create(topic.name, 1)
            flow.create(topic.dead_letters, 1)
            flow.send(list(values_of(sending, registry)), topic=topic.name)
            source, sink = Source(topic, metadata=(Metadata.OFFSET,)), Lake(f"t{number}")
            steps = [unchanged] if number % 2 else []
            pipelines.append(Pipeline(sink.table, source, sink, steps=steps))
        outcomes = flow.run(*pipelines)
    for pipeline, sending in zip(pipelines, chosen, strict=True):
        assert outcomes[pipeline.name].state is State.FINISHED, outcomes[pipeline.name]
        reasons = {n: sent.reason for n, sent in enumerate(sending.sent)}
        # No time is too far ahead here, nor late.
        reasons = {n: r for n, r in reasons.items() if r not in TAKEN}
        letters = [stored.letter for stored in flow.dead(pipeline.sources[0].topic.name)]
        assert {letter.offset: letter.reason for letter in letters} == reasons
        events = {n: sent.event for n, sent in enumerate(sending.sent) if n not in reasons}
        if events:
            check_rows(sending, f"{flow.lake}/{pipeline.name}", events)
