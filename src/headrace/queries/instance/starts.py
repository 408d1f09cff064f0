"""Where an instance goes on in the partitions that it has, though records may be deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial

import confluent_kafka

from headrace.errors import MatchedRecordsDeletedError, RecordsUnreadableError
from headrace.kafka.client import ClientConfig
from headrace.kafka.cluster import KafkaCluster
from headrace.model import TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.ended import MatchesByPartition
from headrace.queries.instance.owned import OwnedPartition
from headrace.queries.instance.restoring import sent_matches

_LOG = logging.getLogger("headrace.queries")


def starts(
    config: ClientConfig, queries: StandingQueries, owned: Mapping[int, OwnedPartition]
) -> list[confluent_kafka.TopicPartition]:
    """Returns where to go on, of each partition of both topics, and has its stage go on there.

    Raises:
        MatchedRecordsDeletedError: if the next record is not there any more.
        RecordsUnreadableError: if there are fewer records than were taken.
    """
    places = []
    # Read once for all partitions, where records are deleted alone.
    sent = cache(partial(sent_matches, config, queries))
    for topic in (queries.matched_topic, queries.ended_topic):
        live = KafkaCluster(config).live(topic)
        for number, partition in owned.items():
            place, stage = TopicPartition(topic, number), partition.stage(topic)
            first, latest = live.earliest[number], live.latest[number]
            if stage.offset > latest:
                reason = f"it ends at {latest}: it was deleted and created again"
                raise RecordsUnreadableError(str(place), stage.offset, reason)
            if stage.offset < first:
                _report_deleted(queries, place, first, partition, sent)
                stage.offset = first
            places.append(confluent_kafka.TopicPartition(topic, number, stage.offset))
    return places


def _report_deleted(
    queries: StandingQueries,
    place: TopicPartition,
    first: int,
    partition: OwnedPartition,
    sent: Callable[[], Mapping[int, MatchesByPartition]],
) -> None:
    """Logs what is lost with the records before an offset; nothing is, if all had been taken."""
    where = queries.name, first, place
    if partition.is_new:
        _LOG.error(
            "%s: there is no snapshot, and records before offset %d of %s are deleted: windows "
            "that were open are lost, and later ones lack these records",
            *where,
        )
        return
    if place.topic == queries.matched_topic:
        raise records_deleted(queries, place, partition.aggregator.offset)
    sent_here = {number: each.get(place.partition, {}) for number, each in sent().items()}
    if not partition.answers.has_taken_all(sent_here):
        _LOG.error(
            "%s: records before offset %d of %s are deleted: windows among them have no results",
            *where,
        )


def records_deleted(
    queries: StandingQueries, place: TopicPartition, offset: int
) -> MatchedRecordsDeletedError:
    """Returns the error that the record at an offset, which is the next, was deleted."""
    snapshots = TopicPartition(queries.snapshots_topic, place.partition)
    return MatchedRecordsDeletedError(str(place), offset, str(snapshots))
