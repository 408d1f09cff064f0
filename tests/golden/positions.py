"""Positions in topics as they are stored: beside committed offsets, and in checkpoints."""

from __future__ import annotations

import confluent_kafka
from tests.golden.formats import Format

from headrace.kafka.read.resume import Position
from headrace.kafka.table.topic_table import TopicPosition
from headrace.links.copying.positions import positions_of
from headrace.links.merger.positions.position import (
    InputPosition,
    WrittenTo,
    committed_offset,
    position_of,
)
from headrace.model import TopicPartition
from headrace.pipelines.join.offsets import JoinOffset
from headrace.pipelines.source.offsets import SourceOffset
from headrace.queries.emit.emitter_position import CommittedQueries, EmitterPosition
from headrace.queries.match.held import RegistryPoint
from headrace.spark.claimed_query import CommittedPosition
from headrace.workers.lanes.offsets import CommitMetadata, PartitionOffsets, read_metadata

TOPIC_ID = "3MNFyhyKQuKTXyhUTYmCPw"
_OTHER_ID = "iI2mWd1cTvOLLyEHqBlfLA"
_PARTITION = TopicPartition("clicks", 1)
_NO_EPOCH = -1


def _committed(offset: int, metadata: str, epoch: int = _NO_EPOCH) -> dict[str, object]:
    """What is stored of a committed offset."""
    return {"offset": offset, "metadata": metadata, "epoch": epoch}


def _as_answered(stored: dict[str, object]) -> confluent_kafka.TopicPartition:
    """A committed offset as Kafka's client returns it."""
    return confluent_kafka.TopicPartition(
        _PARTITION.topic,
        _PARTITION.partition,
        stored["offset"],
        stored["metadata"],
        stored["epoch"],
    )


def _write_input(position: InputPosition) -> dict[str, object]:
    offset = committed_offset(_PARTITION, position)
    return _committed(offset.offset, offset.metadata)


_worker_offsets = PartitionOffsets(1_000, [(1_003, 1_005), (1_200, 1_201), (70_000, 90_000)])
_source_offset = SourceOffset(
    "clicks",
    TOPIC_ID,
    {0: 120, 1: 98},
    planned_ms=1_764_000_000_000,
    heartbeat_us=7,
    epochs={0: 4, 1: 5},
    event_us={0: 1_763_999_990_000_000},
    references={"campaigns": TopicPosition(_OTHER_ID, {0: 40}, {0: 2})},
    caught_up_ms=1_763_999_999_000,
)

FORMATS = (
    Format(
        "position-of-mirror",
        Position(1_005, TOPIC_ID, read_to=1_001, epoch=4, is_committed=True),
        lambda position: _committed(position.offset, position.metadata),
        lambda stored: positions_of([_as_answered(stored)])[_PARTITION],
    ),
    Format(
        "position-of-mirror-without-records",
        Position(1_005, TOPIC_ID, is_committed=True),
        lambda position: _committed(position.offset, position.metadata),
        lambda stored: positions_of([_as_answered(stored)])[_PARTITION],
    ),
    Format(
        "position-of-mirror-with-its-copy",
        Position(1_005, TOPIC_ID, read_to=1_001, epoch=4, is_committed=True, target_id=_OTHER_ID),
        lambda position: _committed(position.offset, position.metadata),
        lambda stored: positions_of([_as_answered(stored)])[_PARTITION],
    ),
    Format(
        "position-of-merger",
        InputPosition(
            1_005,
            read_to=1_010,
            epoch=4,
            time_ms=1_764_000_000_000,
            written=WrittenTo(1_763_999_999_000, 1),
            topics={"waw.clicks": TOPIC_ID, "par.clicks": _OTHER_ID},
        ),
        _write_input,
        lambda stored: position_of(_as_answered(stored)),
    ),
    Format(
        "position-of-route",
        CommittedPosition(1_005, TOPIC_ID, scan_from=900, instance="a7f3c2", epoch=4),
        lambda position: _committed(position.offset, position.metadata, position.epoch),
        lambda stored: CommittedPosition.of(_as_answered(stored)),
    ),
    Format(
        "position-of-route-with-its-target",
        CommittedPosition(1_005, TOPIC_ID, 900, "a7f3c2", epoch=4, target_id=_OTHER_ID),
        lambda position: _committed(position.offset, position.metadata, position.epoch),
        lambda stored: CommittedPosition.of(_as_answered(stored)),
    ),
    Format(
        "position-of-matched-events",
        EmitterPosition(
            1_005,
            TOPIC_ID,
            target_id=_OTHER_ID,
            scan_from=900,
            instance="a7f3c2",
            skipped=3,
            queries=CommittedQueries(
                since=1_000,
                scan_from=890,
                hash="9f3c",
                registry=RegistryPoint(_OTHER_ID, 33, 1_764_000_000_000, 2),
                schema="51ab",
            ),
            epoch=4,
        ),
        lambda position: _committed(position.offset, position.metadata, position.epoch),
        lambda stored: EmitterPosition.of(_as_answered(stored)),
    ),
    Format(
        "position-of-worker",
        CommitMetadata(TOPIC_ID, ((1_003, 1_005), (1_200, 1_201), (70_000, 90_000))),
        lambda _: _committed(_worker_offsets.committable, _worker_offsets.metadata(TOPIC_ID)),
        lambda stored: read_metadata(stored["offset"], stored["metadata"]),
    ),
    Format(
        "position-of-reference",
        TopicPosition(TOPIC_ID, {0: 40, 1: 41}, {0: 2}),
        TopicPosition.to_json,
        TopicPosition.from_json,
    ),
    Format("source-offset", _source_offset, SourceOffset.to_json, SourceOffset.from_json),
    Format(
        "join-offset",
        JoinOffset(
            _source_offset,
            SourceOffset("views", _OTHER_ID, {0: 7}, planned_ms=1_764_000_000_000),
            clock_us={0: 1_763_999_990_000_000},
            horizon_us={0: 1_763_996_390_000_000},
            moved_ms={"clicks/0": 1_764_000_000_000},
        ),
        JoinOffset.to_json,
        JoinOffset.from_json,
    ),
)
