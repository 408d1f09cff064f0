"""Where an instance continues in its partitions, also if records were deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import confluent_kafka

from headrace.errors import (
    MatchedRecordsDeletedError,
    QueryTopicRecreatedError,
    QueryTopicTruncatedError,
    RecordsUnreadableError,
)
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.partitions import client_partition
from headrace.kafka.read.cluster import KafkaCluster, LivePositions
from headrace.kafka.read.resume import LogState, Position, Recreated, Truncated, verdict, with_cuts
from headrace.model import TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.windows.aggregate.stage import Stage
from headrace.queries.windows.instance.owned import OwnedPartition

_LOG = logging.getLogger("headrace.queries")


class EndedWindowsDeletedError(Exception):
    """Ended windows were deleted before they were taken; a restart continues after them."""


def place_stages(
    config: ClientConfig, queries: StandingQueries, owned: Mapping[int, OwnedPartition]
) -> list[confluent_kafka.TopicPartition]:
    """Moves stages past deleted records, and returns the offsets at which a reader continues.

    Partitions first catch up with the records that exist now, up to the first open transaction: it
    may stay open.

    Matches that are lost with deleted records of ended windows are counted in
    :mod:`headrace.queries.windows.answer.counts`.

    Raises:
        MatchedRecordsDeletedError: if the next matched record was deleted.
        QueryTopicRecreatedError: if the offsets belong to a topic that was deleted.
        QueryTopicTruncatedError: if a log was truncated before the last record that was taken.
        RecordsUnreadableError: if the topic ends before the next offset.
    """
    places, cluster = [], KafkaCluster(config)
    for topic in (queries.matched_topic, queries.ended_topic):
        stages = {
            TopicPartition(topic, n): partition.stage(topic) for n, partition in owned.items()
        }
        logs = _logs(config, queries, cluster.live(topic), stages)
        for place, stage in stages.items():
            partition, first, latest = owned[place.partition], logs[place].first, logs[place].end
            if stage.offset > latest:
                reason = f"it ends at {latest}: it was truncated or recreated"
                raise RecordsUnreadableError(str(place), stage.offset, reason)
            if stage.offset < first:
                if partition.is_new:
                    _LOG.error(
                        "%s: there is no snapshot, and records before offset %d of %s are deleted: "
                        "windows that were open are lost, and later ones lack these records",
                        *(queries.name, first, place),
                    )
                elif topic == queries.matched_topic:
                    raise deleted_error(queries, place, stage.offset)
                stage.skip_to(first)
            if topic == queries.matched_topic:
                partition.catch_up_to(latest)
            # With an epoch, a reader notices a log that is truncated later. After the last record
            # are markers, which another leader may have written: they are read again.
            at = min(stage.offset, stage.seen.offset) if stage.seen.epoch >= 0 else stage.offset
            places.append(client_partition(place, at, epoch=stage.seen.epoch))
    return places


def _logs(
    config: ClientConfig,
    queries: StandingQueries,
    live: LivePositions,
    stages: Mapping[TopicPartition, Stage],
) -> dict[TopicPartition, LogState]:
    """Returns the logs of a topic, if they are those of which the stages have taken records."""
    positions = {
        place: Position(stage.offset, stage.topic_id, *stage.seen)
        for place, stage in stages.items()
    }
    logs = with_cuts(config, {place: live.log(place.partition) for place in stages}, positions)
    for place, stage in stages.items():
        match verdict(positions[place], logs[place]):
            case Recreated():
                ids = stage.topic_id, live.topic_id
                raise QueryTopicRecreatedError(place.topic, *ids, queries.snapshots_topic)
            case Truncated(cut) if logs[place].cut is not None:
                raise truncated_error(queries, place, cut)
        stage.note_topic(live.topic_id, logs[place].first)
    return logs


def truncated_error(
    queries: StandingQueries, place: TopicPartition, cut: int
) -> QueryTopicTruncatedError:
    """Returns an error which says that the log of a partition was truncated at an offset."""
    snapshots = TopicPartition(queries.snapshots_topic, place.partition)
    return QueryTopicTruncatedError(str(place), cut, str(snapshots))


def deleted_error(queries: StandingQueries, place: TopicPartition, offset: int) -> Exception:
    """Returns an error which says that the next record of a stage, at an offset, was deleted."""
    if place.topic == queries.ended_topic:
        return EndedWindowsDeletedError(f"the record at offset {offset} of {place} is deleted")
    snapshots = TopicPartition(queries.snapshots_topic, place.partition)
    return MatchedRecordsDeletedError(str(place), offset, str(snapshots))
