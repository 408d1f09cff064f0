"""Which records after a position the target has already: a query that starts does not repeat them.

Spark reports what it has sent when a batch ends. What it sent since is at the end of the target's
topic, and each copy names its record. It may have gaps: where a record was refused, those behind it
may be there.

A copy names its record by the offset alone. Where the log of the source has another leader since
the commit, the records from that one's first on may be others than those that were sent: they are
sent, even if that repeats some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.kafka.read.log_cuts import Seen, find_cuts
from headrace.links.copy_ends import copied_since
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.target import naming_site
from headrace.model import TopicPartition
from headrace.spark.claimed_query import CommittedPosition

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_OFFSETS = 1_000_000
"""The most offsets of a partition that are remembered; later records are sent again."""


@dataclass(frozen=True)
class SentRecords:
    """The records of one partition that are at the target.

    Attributes:
        first: the offset of the source at which a query starts.
        marks: a byte for each offset from ``first`` on: 1, if its record is at the target.
    """

    first: int
    marks: bytes

    @property
    def end(self) -> int:
        """The offset after the last one that is at the target."""
        return self.first + len(self.marks)


def sent_since(
    route: DispatcherRoute, positions: Mapping[TopicPartition, CommittedPosition]
) -> dict[TopicPartition, SentRecords]:
    """Returns which records of the source, from the positions on, are at the target.

    Raises:
        AuthorizationError: if an ACL is missing at a site.
        BrokerUnreachableError: if the brokers of a site do not answer for 30 s.
    """
    floors = {route.copy_of(source): at.scan_from for source, at in positions.items()}
    at_target = copied_since(route.copies(positions), floors)
    sent: dict[TopicPartition, SentRecords] = {}
    for source, at in positions.items():
        numbers = [offset - at.offset for offset in at_target.get(route.copy_of(source), ())]
        known = [number for number in numbers if 0 <= number < MAX_OFFSETS]
        marks = bytearray(max(known, default=-1) + 1)
        for number in known:
            marks[number] = 1
        sent[source] = SentRecords(at.offset, bytes(marks))
    seen = {
        source.partition: Seen(records.end, positions[source].epoch)
        for source, records in sent.items()
        if records.marks
    }
    with naming_site(route.source_site):
        cuts = find_cuts(route.source, route.topic, seen)
    for partition, cut in cuts.items():
        source = TopicPartition(route.topic, partition)
        whole = max(cut - sent[source].first, 0)
        sent[source] = replace(sent[source], marks=sent[source].marks[:whole])
    return sent


def is_new(sent: Mapping[TopicPartition, SentRecords]) -> Column:
    """Returns whether a record of Spark's Kafka source is not at the target."""
    from pyspark.sql import functions as f

    new = f.lit(True)
    for source, records in sent.items():
        if not records.marks:
            continue
        index = f.col("offset") - records.first
        mark = f.substr(f.lit(records.marks), (index + 1).cast("int"), f.lit(1))
        last = len(records.marks) - 1
        is_known = (f.col("partition") == source.partition) & index.between(0, last)
        new = new & f.when(is_known, mark != f.lit(b"\x01")).otherwise(f.lit(True))
    return new
