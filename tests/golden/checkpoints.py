"""Files beside the topics: of checkpoints, the ledger, the spool and this machine's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.golden.formats import Format, in_files

from headrace.ingest.spool.cursor import CursorFile, SpoolCursor
from headrace.ingest.spool.frames import Damage, Frame, frames, scan
from headrace.ingest.spool.segment import HEADER_BYTES, Segment, created_ms, header, segments
from headrace.kafka.admin.topics import KnownKey
from headrace.kafka.dead_letters.limiter import BadRuns
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.links.accepted import AcceptedFolder, AcceptedRange
from headrace.model import DeadLetter, OffsetRange, Topic, TopicPartition
from headrace.offline_files.progress import CounterRange, LoadProgress
from headrace.pipelines.batch.manifest import Manifest, manifest_table
from headrace.pipelines.batch.positions import CheckpointIds, Recorded
from headrace.pipelines.join.events import KeyedEvent
from headrace.pipelines.join.index.state import JoinState, SegmentFile, StateFolder
from headrace.pipelines.join.offsets import JoinPosition
from headrace.pipelines.late_data.event_clock import EventClock
from headrace.pipelines.ledger.counting.waiting import Waiting
from headrace.pipelines.ledger.entry import EntryRange, LedgerEntry
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.reprocessed import ReprocessedEntry, ReprocessedFolder, WindowChange
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.planning.feedback import Feedback, RecordSizes
from headrace.pipelines.source.planning.initial import read_initial, write_initial
from headrace.pipelines.source.report import JoinCounts, LateCounts, RangeReport
from headrace.pipelines.source.state import SourceState, SourceView
from headrace.pipelines.start.checkpoint import CheckpointFolder, CurrentCheckpoint
from headrace.pipelines.start.query_record import QueryRecord, read_query, write_query
from headrace.topics.declared_keys import read_keys, remember_keys

_MS = 1_800_000_000_000
_US = _MS * 1_000
_SECONDS = _MS // 1_000
_TOPIC_ID = "3MNFyhyKQuKTXyhUTYmCPw"
_TIME = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
_PARTITION = TopicPartition("clicks", 1)
_URI = "file:///lake/_headrace/checkpoints/sales/2"
_OFFSET = SourceOffset("clicks", _TOPIC_ID, {0: 10, 1: 11}, planned_ms=_MS, epochs={0: 4})
_LINE = LedgerLine(LedgerKey(Hop.READ, Fate.OUT, _SECONDS, "clicks", 1), Sums(7, 700, 2**63))
_UNTIMED = LedgerLine(LedgerKey(Hop.JOIN, Fate.WAITING, None, "clicks", 1), Sums(1, 100, 5))
_LETTER = DeadLetter(
    _PARTITION, 17, "wrong-type", "a text", b"key", None, (("trace", b"\xff"),), _MS
)


# What the driver and the planner write for each other

_SIZES = {"clicks": {1: RecordSizes(100.5, 7.0, 20.25)}}
_STATE = {
    "feedback": Feedback(_SIZES, {"clicks": {1: EventClock(_US, _US + 1)}}),
    "before": Feedback(_SIZES, {"clicks": {1: EventClock(_US - 1, None)}}),
    "paused": frozenset({1, 2}),
    "view": SourceView({0: 20, 1: 21}, {0: 10, 1: 11}, (0,), (1,), "no broker responds"),
    "waiting": {0: _US, 1: None},
}


def _write_state(values: Mapping[str, object], folder: Path) -> None:
    state = SourceState(folder)
    state.pause("clicks", values["paused"])
    ends = {"clicks": {0: 10, 1: 11}}
    state.write_feedback(_URI, 40, values["before"], {"clicks": {0: 9, 1: 9}})
    state.write_feedback(_URI, 41, values["feedback"], ends)
    state.write_view("clicks", values["view"])
    state.write_waiting(_URI, values["waiting"])


def _read_state(folder: Path) -> Mapping[str, object]:
    state = SourceState(folder)
    return {
        "feedback": state.feedback_at(_URI, {"clicks": {0: 10, 1: 11}}),
        "before": state.feedback(_URI, 41),
        "paused": state.paused("clicks"),
        "view": state.view("clicks"),
        "waiting": state.waiting(_URI),
    }


# Positions that a table records

_IDS = CheckpointIds("sales", 2)


class _Table:
    """A table that records these versions."""

    uri = "a table"

    def __init__(self, versions: Mapping[str, int]) -> None:
        self._versions = versions

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]:
        return {name: self._versions[name] for name in app_ids if name in self._versions}

    def restored(self, writer: Mapping[str, object]) -> None:
        return None


def _write_versions(recorded: Recorded) -> dict[str, int | None]:
    names = _IDS.partitions({"clicks": _OFFSET})
    return {
        _IDS.newest: recorded.newest,
        _IDS.batch: recorded.batch_id,
        **{names[partition]: at for partition, at in recorded.positions.items()},
        _IDS.reprocess: 3,
        _IDS.reprocess_ended: 4,
        _IDS.caught_up: 5,
    }


# What tasks return to the driver

_MANIFEST = Manifest(
    pieces=('{"path": "a.parquet"}',),
    dead=(_LETTER,),
    reports=(
        RangeReport(
            OffsetRange(_PARTITION, 10, 20),
            position=20,
            records=9,
            bytes=900,
            last_timestamp_ms=_MS,
            event_times=((_US, 4), (_US + 1, 5)),
            bad_runs=BadRuns(),
            dead=(_LETTER,),
            replays_skipped=1,
            omitted=2,
            late=LateCounts(3, 2, 1),
            side_pieces=("side",),
            ledger=(_LINE,),
            join=JoinCounts(),
            waiting=Waiting((_UNTIMED,), ()),
            envelopes=6,
            tombstones=7,
        ),
    ),
    omitted=8,
    lines=(_LINE, _UNTIMED),
)


def _write_manifest(manifest: Manifest) -> list[dict[str, str | None]]:
    return manifest_table(**_fields(manifest)).to_pylist()


def _fields(value: Manifest) -> dict[str, object]:
    """The fields of a manifest, as they are."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


# The ledger

_ENTRY = LedgerEntry(
    checkpoint=2,
    first=40,
    last=41,
    window_seconds=3_600,
    ranges=(EntryRange("clicks", _TOPIC_ID, 1, 10, 20),),
    lines=(_LINE,),
    level=0,
    clocks={"clicks": {1: _US}},
    positions={"clicks": {1: 20}},
    unknown_before=_SECONDS - 7_200,
    uncounted="a step does not say what it drops",
    changed=("price",),
    waited={"clicks": {1: (_UNTIMED,)}},
    waiting={"clicks": {1: ()}},
    changed_elsewhere=(_UNTIMED,),
    lacks_batches=True,
    counted_by=(("time", None), (None, "id")),
    side_tables=("late_clicks", ""),
    batches=2,
    began=(EntryRange("clicks", _TOPIC_ID, 1, 5, 5),),
    horizon=_SECONDS,
    held={"headrace.sales": 1},
)
_REPROCESSED = ReprocessedEntry(
    3,
    _TIME,
    _TIME.replace(hour=10),
    (EntryRange("clicks", _TOPIC_ID, 1, 10, 20),),
    records=9,
    dead=1,
    window_seconds=3_600,
    changes=(
        WindowChange(_SECONDS, Sums(2, 0, 3), Sums(1, 0, 4)),
        WindowChange(None, Sums(), Sums()),
    ),
    checkpoint=2,
)
_ACCEPTED = AcceptedRange(
    "clicks", _TOPIC_ID, "iI2mWd1cTvOLLyEHqBlfLA", 1, 10, 20, _TIME, "retention", 30, _MS
)


def _read_entry(folder: Path) -> LedgerEntry:
    ledger = LedgerFolder(str(folder), "sales")
    [span] = ledger.spans()
    return ledger.read(span)


# Joins

_PLACE = JoinPosition(10, 11, _US, _US - 1)
_JOIN_STATE = JoinState(
    "key left out",
    "a7f3c2",
    {"segment-a": SegmentFile(5, 600, 1, (b"\x00\xff",))},
    (KeyedEvent(b"k", _US, 9, b"{}", 2**63),),
)


def _join_folder(folder: Path) -> StateFolder:
    return StateFolder(str(folder), JoinPosition(0, 0, 0, 0), "sales", {})


# The spool

_MARKER = 0x0123456789ABCDEF
_SEGMENT = Segment(first=100, number=3, marker=_MARKER)
_PAYLOADS = [b"first", b"second \x00\xff"]


def _write_segment(_: object, folder: Path) -> None:
    content = header(_MS) + frames(_PAYLOADS, _MARKER, 100)
    (folder / _SEGMENT.name).write_bytes(content)


def _read_segment(folder: Path) -> tuple[Segment, int | None, list[Frame | Damage]]:
    [segment] = segments(folder)
    content = (folder / segment.name).read_bytes()
    return segment, created_ms(content), list(scan(content, segment.marker, HEADER_BYTES))


def _write_cursor(cursor: SpoolCursor, folder: Path) -> None:
    file = CursorFile(folder / "cursor")
    file.write(SpoolCursor(7, 1, 2))
    file.write(cursor)


FORMATS = (
    in_files("source-state", _STATE, _write_state, _read_state),
    in_files(
        "current-checkpoint",
        CurrentCheckpoint(
            2, "table", begun=True, expected_versions={"a": 1, "b": None}, held={"c": 3}
        ),
        lambda current, folder: CheckpointFolder(str(folder), "sales").write(current),
        lambda folder: CheckpointFolder(str(folder), "sales").current(),
    ),
    in_files(
        "initial-offset",
        _OFFSET,
        lambda offset, folder: write_initial(str(folder), offset),
        lambda folder: read_initial(str(folder), "clicks"),
    ),
    in_files(
        "query-record",
        QueryRecord(
            "4.0.0",
            ["clicks", "views"],
            [{"name": "deduplicate", "on": ["id"], "within": "1:00:00"}],
            [{"name": "dedupe", "keys": ["id"]}],
        ),
        lambda record, folder: write_query(str(folder), record),
        lambda folder: read_query(str(folder)),
    ),
    Format(
        "versions-in-table",
        Recorded(2, 41, {TopicPartition("clicks", 0): 10, TopicPartition("clicks", 1): 11}),
        _write_versions,
        lambda versions: _IDS.recorded(_Table(versions), {"clicks": _OFFSET}),
    ),
    Format("manifest", _MANIFEST, _write_manifest, Manifest.of),
    in_files(
        "ledger-entry",
        _ENTRY,
        lambda entry, folder: LedgerFolder(str(folder), "sales").write(entry),
        _read_entry,
    ),
    in_files(
        "reprocessed-entry",
        [_REPROCESSED],
        lambda entries, folder: ReprocessedFolder(str(folder), "sales").write(entries[0]),
        lambda folder: ReprocessedFolder(str(folder), "sales").counted(3),
    ),
    in_files(
        "accepted-range",
        [_ACCEPTED],
        lambda ranges, folder: AcceptedFolder(str(folder), "headrace.warsaw").write(ranges[0]),
        lambda folder: AcceptedFolder(str(folder), "headrace.warsaw").read(),
    ),
    in_files(
        "join-state",
        _JOIN_STATE,
        lambda state, folder: _join_folder(folder).write(_PLACE, state),
        lambda folder: _join_folder(folder).read(_PLACE),
    ),
    in_files(
        "spool-segment",
        (
            _SEGMENT,
            _MS,
            [
                Frame(HEADER_BYTES, HEADER_BYTES + 45, 100, 1, 49, _PAYLOADS[0]),
                Frame(HEADER_BYTES + 45, HEADER_BYTES + 94, 101, 0, 0, _PAYLOADS[1]),
            ],
        ),
        _write_segment,
        _read_segment,
    ),
    in_files(
        "spool-cursor",
        SpoolCursor(9, 3, 4),
        _write_cursor,
        lambda folder: CursorFile(folder / "cursor").read(),
    ),
    in_files(
        "declared-keys",
        {"clicks": KnownKey(_TOPIC_ID, "id")},
        lambda keys, folder: remember_keys(
            folder, [Topic("clicks", key="id")], {"clicks": keys["clicks"].topic_id}
        ),
        read_keys,
    ),
    Format(
        "offline-files",
        LoadProgress("legacy", (CounterRange(1, 5, "a", "b"), CounterRange(7, 8, "c", "c"))),
        LoadProgress.to_json,
        lambda text: LoadProgress.from_json("legacy", text),
    ),
)
