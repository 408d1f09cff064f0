"""Error tracking: occurrences of errors in the programs of many accounts, from HTTP into a lake.

New ones come over HTTP. Those that the service before kept in offline files come from there, in
the shape that they had; both end in the lake, the old ones in PostgreSQL as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from headrace import Lake, Metadata, Pipeline, Source, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 4
WEEK = timedelta(days=7)

Level = Literal["critical", "error", "warning", "info", "debug"]
Language = Literal["python", "javascript", "ruby", "php", "java"]


@dataclass(frozen=True)
class Occurrence:
    """An error happened in a customer's program. Whose it is, its access token says."""

    uuid: str
    occurred_at: datetime
    level: Level
    environment: str
    language: Language
    title: str
    body: str
    host: str | None


@dataclass(frozen=True)
class RawItem:
    """A row of the service before; its times are seconds since 1970.

    Its body is an object, so no field of an event: it stays in the record.
    """

    uuid: str
    project_id: int
    timestamp: int
    version: int
    billable: int
    counter: int


# No key is declared, so the key is the account: the occurrences of an account keep their order.
occurrences = Topic(
    "occurrences",
    event=Occurrence,
    event_id="uuid",
    event_time="occurred_at",
    partitions=PARTITIONS,
    retention=WEEK,
    latest_ahead=timedelta(hours=1),
    spool=True,
)
raw_items = Topic(
    "raw-items", event=RawItem, event_id="uuid", partitions=PARTITIONS, retention=WEEK
)


def once_with_owner(occurrences: DataFrame) -> DataFrame:
    """Each occurrence once, with the account and the project of its token.

    A client that got no answer sends again, with the same id: within a week, the second is dropped.
    The week is of arrival, and as long as the topic keeps records: so none is dropped as too late,
    as one would be by its own time, which customers' clocks tell.
    """
    from pyspark.sql import functions as F  # noqa: N812

    project = F.expr("filter(_headers, header -> header.key = 'project')[0].value")
    owned = occurrences.select(
        F.col("_key").cast("string").alias("account"),
        project.cast("string").cast("bigint").alias("project_id"),
        F.col("_timestamp").alias("received_at"),
        *(F.col(name) for name in occurrences.columns if not name.startswith("_")),
    )
    arrived = owned.withWatermark("received_at", f"{WEEK.days} days")
    return arrived.dropDuplicatesWithinWatermark(["account", "uuid"])


def with_time(raw_items: DataFrame) -> DataFrame:
    """Seconds since 1970 become a time."""
    from pyspark.sql import functions as F  # noqa: N812

    return raw_items.select(
        "uuid",
        "project_id",
        F.timestamp_seconds("timestamp").alias("occurred_at"),
        "version",
        "billable",
        "counter",
    )


occurrences_to_lake = Pipeline(
    "occurrences-to-lake",
    source=Source(occurrences, metadata=(Metadata.KEY, Metadata.HEADERS, Metadata.TIMESTAMP)),
    steps=[once_with_owner],
    sink=Lake("occurrences", partition_by=("day", "hour")),
    allowed_lateness=timedelta(days=1),
)
raw_items_to_lake = Pipeline(
    "raw-items-to-lake",
    source=raw_items,
    steps=[with_time],
    sink=Lake("raw_items", partition_by=("day", "hour"), event_time="occurred_at"),
)
