"""Records of the topics that headrace itself writes and reads, and their headers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

import confluent_kafka
import msgspec
from tests.golden.formats import Format

from headrace.ingest.spool import record as spool_record
from headrace.ingest.tokens.table import TokenTable, revocation
from headrace.ingest.tokens.token import Token, TokenKind
from headrace.kafka.dead_letters import letters as dead_letters
from headrace.kafka.dead_letters import replayed
from headrace.kafka.dead_letters.letters import StoredDeadLetter, dead_letter_record
from headrace.kafka.dead_letters.replayed import PartitionId, Window, addressees, is_for
from headrace.kafka.origin import ORIGIN, Origin, origin_prefix, origins
from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.read.tail import TailedHeader, TailedRecord
from headrace.links.site_times import SiteTime, read_site_time, site_time_key
from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.standby.drivers import (
    HandoverRequest,
    Standby,
    read_request,
    read_standby,
)
from headrace.queries.emit.matched_event import (
    REGISTRY_OFFSET,
    REVISION,
    MatchedEvent,
    matched_event_of,
)
from headrace.queries.records.counts import ResultCounts, TopicCounts
from headrace.queries.records.ended import PartitionClocks, WindowResults, decode_ended
from headrace.queries.records.matched import Tick, WindowPartial, decode_matched, window_key
from headrace.queries.records.result import QueryResult, ResultKind, decode_result
from headrace.queries.records.snapshots import (
    AnswerPosition,
    PublishMarker,
    PublishMarkers,
    QuerySilence,
    Restored,
    SnapshotPosition,
    WindowSnapshot,
    decode_snapshot_record,
    encode_markers,
    encode_silence,
    encode_snapshot,
)
from headrace.queries.registry.record import RegisteredQuery, decode_query, encode_query
from headrace.service.leases import Claim, read_claim
from headrace.settings import Rate
from headrace.testing import MemoryRecord

_TIME = datetime(2026, 11, 30, 9, 30, 0, 123_000, tzinfo=UTC)
_MS = 1_800_000_000_000
_US = _MS * 1_000
_TOPIC_ID = "3MNFyhyKQuKTXyhUTYmCPw"
_PARTITION = TopicPartition("clicks", 1)
_PLACE = PartitionId(_PARTITION, _TOPIC_ID)
_TEXT = "SELECT count(*) FROM clicks FACET country SINCE 1 hour ago"


def _json(name: str, value: object, read: Callable[[bytes], object]) -> Format:
    """A record whose value is the JSON of a struct."""
    return Format(name, value, msgspec.json.encode, read)


# Headers


def _read_replay(headers: list[tuple[str, bytes]]) -> list[str]:
    return [name for name in ("sales", "other", "clicks") if is_for(name, _PLACE, headers)]


def _write_window(window: Window) -> dict[str, object]:
    """What a replay commits; before it sends a record, or when all records are sent."""
    first, end = window.first, window.end
    known = confluent_kafka.TopicPartition("clicks", 1, first, str(first))
    with mock.patch.multiple(
        replayed,
        committed=lambda *_: [known],
        high_watermarks=lambda *_: {_PARTITION: 120 if end is None else end},
    ):
        commits = replayed.opened_windows if end is None else replayed.closed_windows
        [offset] = commits({}, "clicks", [_PARTITION])
    return {"offset": offset.offset, "metadata": offset.metadata}


def _read_window(stored: dict[str, Any]) -> Window:
    offset = confluent_kafka.TopicPartition("clicks", 1, stored["offset"], stored["metadata"])
    with mock.patch.object(replayed, "committed", return_value=[offset]):
        return replayed.windows({}, "clicks", [_PARTITION])[1]


# Dead letters

_LETTER = StoredDeadLetter(
    DeadLetter(
        _PARTITION,
        17,
        "wrong-type",
        "price is a text, expected a number: “x”",
        b"key",
        b'{"price": "x"}',
        (("trace", b"\x00\xff"), ("empty", None)),
        timestamp_ms=_MS,
        attempts=3,
        first_failure_ms=_MS + 1,
        event_index=4,
    ),
    pipeline="sales",
    version="0.1.0",
    topic_id=_TOPIC_ID,
    replays=0,
    position=(TopicPartition("clicks.dead-letters", 0), 5),
    written_ms=_MS + 2,
)


def _write_letter(stored: StoredDeadLetter) -> dict[str, object]:
    record = dead_letter_record(stored.letter, stored.pipeline, stored.version, stored.topic_id)
    return {
        "topic": record.topic,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
    }


def _read_letter(record: dict[str, Any]) -> StoredDeadLetter:
    partition, offset = _LETTER.position
    memory = MemoryRecord(offset, record["value"], record["key"], _MS + 2, record["headers"])
    chunk = SimpleNamespace(partition=partition, records=[memory])
    with mock.patch.multiple(
        dead_letters,
        describe=lambda *_: {record["topic"]: SimpleNamespace(all_partitions=[partition])},
        watermarks=lambda *_: {partition: (0, 6)},
        consumer=lambda *_: mock.Mock(),
        read_ranges=lambda *_, **__: [chunk],
    ):
        [stored] = dead_letters.scan({}, "clicks")
    return stored


# Tokens

_TOKEN = Token(
    public_id="abcDEF123-45",
    name="page",
    project="shop",
    account="acme",
    topics=("clicks", "views"),
    secret_sha256="0" * 64,
    created=_TIME,
    expires=_TIME.replace(year=2027),
    revoked=_TIME.replace(month=12),
    rate=Rate(100.5, 1_000_000.0),
    scopes=("write", "metrics"),
    former_sha256="f" * 64,
    former_until=_TIME,
    kind=TokenKind.PUBLIC,
    generation=2,
)
_REVOCABLE = Token("abcDEF123-45", "page", "shop", "acme", ("*",), "0" * 64, _TIME)


def _read_revocation(record: tuple[bytes, bytes]) -> datetime | None:
    table = TokenTable()
    table.take(b"abcDEF123-45", _REVOCABLE.encoded())
    table.take(*record)
    return table.tokens()["abcDEF123-45"].revoked


# Standing queries

_WINDOW = {
    "query": "q1",
    "registered_ms": _MS,
    "revision": 2,
    "begin_us": _US,
    "text_hash": "9f3c",
}
_TICK = Tick(
    topic="clicks",
    pipeline="match",
    event_us=_US,
    planned_ms=_MS,
    positions={0: 10, 1: 11},
    registry_offset=33,
    topic_id=_TOPIC_ID,
    events=12,
    rules="51ab",
)
_PARTIAL = WindowPartial(
    "q1",
    _MS,
    2,
    _TEXT,
    "clicks",
    _US,
    7,
    [(("PL",), (3,)), ((None,), (4,))],
    [5],
    shape="5ha9e",
    types="7b1e5",
)
_RESULT = QueryResult(
    query="q1",
    registered="2026-11-30T09:30:00.123000Z",
    revision=2,
    begin="2026-11-30T09:00:00Z",
    end="2026-11-30T10:00:00Z",
    emission=3,
    kind=ResultKind.FINAL,
    facets={"country": "PL"},
    is_other=False,
    values={"count": 7, "average(price)": 1.5},
    events=7,
)
_RESULTS = WindowResults(1, "clicks", "views", _US, [_RESULT], matches=7, original=5)
_CLOCKS = PartitionClocks(1, {"clicks": _US}, _US + 1, _MS, {"clicks": 7})
_SNAPSHOT = WindowSnapshot(
    **_WINDOW,
    offset=50,
    text=_TEXT,
    shape="5ha9e",
    types="7b1e5",
    changed_ms=_MS,
    emitted_ms=_MS + 1,
    emission=2,
    events=7,
    groups=[(("PL",), (3,))],
    other=None,
)
_MARKER = PublishMarker(**_WINDOW, offset=50, ended_ms=_MS, topic="clicks", events=7, due_us=_US)


def _read_snapshot(values: list[bytes]) -> WindowSnapshot:
    restored = Restored()
    restored.take(values)
    return restored.windows[_SNAPSHOT.id]


_QUERY = RegisteredQuery(
    "q1",
    _TEXT,
    "clicks",
    revision=2,
    registered_at=_TIME,
    updated_at=_TIME.replace(minute=31),
    expires_at=_TIME.replace(minute=32),
    shape="5ha9e",
    constants=((1, "a", 2.5, True), (("x", "y"),)),
    text_changed_at=_TIME.replace(minute=33),
)
_MATCHED_EVENT = MatchedEvent("q1", 2, 33, {"price": 1.5}, Origin("waw", "clicks", 1, 17), _TIME)


def _write_matched_event(event: MatchedEvent) -> dict[str, object]:
    """As Spark writes it: see :mod:`headrace.queries.emit`."""
    origin = event.origin
    headers = [
        (REVISION, b"%d" % event.revision),
        (REGISTRY_OFFSET, b"%d" % event.registry_offset),
        (ORIGIN, origin_prefix(origin.site, origin.topic, origin.partition) + b"17"),
    ]
    time_ms = int(event.sent_at.timestamp() * 1_000)
    return {
        "key": event.query.encode(),
        "value": msgspec.json.encode(event.event),
        "headers": headers,
        "timestamp_ms": time_ms,
    }


def _read_matched_event(record: dict[str, Any]) -> MatchedEvent | None:
    headers = tuple(TailedHeader(name, value) for name, value in record["headers"])
    return matched_event_of(
        TailedRecord(
            "ads.events",
            0,
            5,
            record["timestamp_ms"],
            record["key"],
            headers,
            record["value"],
        )
    )


FORMATS = (
    Format(
        "header-of-origin",
        [Origin("waw", "clicks", 1, 17)],
        lambda value: [(ORIGIN, origin_prefix(value[0].site, "clicks", 1) + b"17")],
        origins,
    ),
    Format(
        "header-of-replay",
        ["sales", "clicks"],
        lambda names: [addressees(names, _PLACE)],
        _read_replay,
    ),
    Format("window-of-replay", Window(100, 120), _write_window, _read_window),
    Format("open-window-of-replay", Window(100, None), _write_window, _read_window),
    Format("dead-letter", _LETTER, _write_letter, _read_letter),
    Format("token", _TOKEN, Token.encoded, Token.decoded),
    Format("revoked-token", _TIME, lambda when: revocation("abcDEF123-45", when), _read_revocation),
    Format(
        "site-time",
        (_PARTITION, SiteTime(_MS)),
        lambda value: (site_time_key(value[0]), value[1].record_value),
        lambda record: read_site_time(*record),
    ),
    Format(
        "site-time-of-a-copy",
        (_PARTITION, SiteTime(_MS, "3MNFyhyKQuKTXyhUTYmCPw")),
        lambda value: (site_time_key(value[0]), value[1].record_value),
        lambda record: read_site_time(*record),
    ),
    Format(
        "lease",
        (3, Claim("a7f3c2", "host-1", is_release=True, sent_ms=_MS)),
        lambda value: (b"%d" % value[0], msgspec.json.encode(value[1])),
        lambda record: read_claim(*record),
    ),
    _json("standby-driver", Standby("a7f3c2", "host-1", 12.5), read_standby),
    _json("handover-request", HandoverRequest("a7f3c2"), read_request),
    Format("registered-query", _QUERY, encode_query, lambda record: decode_query(*record)),
    Format(
        "matched-partial",
        _PARTIAL,
        lambda partial: (window_key("q1", _US), msgspec.json.encode(partial)),
        lambda record: decode_matched(record[1]),
    ),
    _json("matched-tick", _TICK, decode_matched),
    Format(
        "snapshot-of-window",
        _SNAPSHOT,
        lambda snapshot: list(encode_snapshot(snapshot, part_bytes=200)),
        _read_snapshot,
    ),
    _json("snapshot-marker", _MARKER, decode_snapshot_record),
    Format(
        "snapshot-markers",
        PublishMarkers([_MARKER]),
        lambda markers: next(encode_markers(markers.markers)),
        decode_snapshot_record,
    ),
    Format(
        "snapshot-silence",
        QuerySilence({"q1": (_US, True)}),
        lambda silence: next(encode_silence(silence.silence)),
        decode_snapshot_record,
    ),
    _json(
        "snapshot-position",
        SnapshotPosition(
            50,
            40,
            {"clicks": _US},
            {"q1": 2},
            [_TICK],
            {"clicks": TopicCounts(1, 2, 3, 4, 5, 6, None)},
            _TOPIC_ID,
            Seen(49, 4),
        ),
        decode_snapshot_record,
    ),
    _json(
        "snapshot-answered",
        AnswerPosition(
            50,
            60,
            {"clicks": _US, "": _US + 1},
            {1: _CLOCKS},
            {"clicks": _US},
            began=7,
            since_ms=_MS,
            sent={1: {"clicks": 8}},
            counts={"clicks": ResultCounts(1, 2, {1: 3}, 4, 5)},
            topic_id=_TOPIC_ID,
            seen=Seen(59, 4),
        ),
        decode_snapshot_record,
    ),
    _json("ended-window", _RESULTS, lambda value: decode_ended(value, 2)),
    _json("ended-clocks", _CLOCKS, lambda value: decode_ended(value, 2)),
    _json("query-result", _RESULT, decode_result),
    Format("matched-event", _MATCHED_EVENT, _write_matched_event, _read_matched_event),
    Format(
        "spooled-event",
        spool_record.SpoolRecord("clicks", b"key", b"{}", (("trace", b"1"),), _MS, 1),
        spool_record.encode,
        spool_record.decode,
    ),
)
