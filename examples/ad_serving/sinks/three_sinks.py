"""Impressions of an ad server, in three stores at once: OpenSearch, BigQuery and Iceberg.

Each pipeline has its own positions. One whose store is down waits, and the others continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

from headrace import (
    BatchLimits,
    BigQuery,
    Iceberg,
    Lake,
    OpenSearch,
    Pipeline,
    Precision,
    Topic,
    Unique,
)


@dataclass(frozen=True)
class Impression:
    """An item was shown to a user, in one of three positions."""

    event_id: str
    event_time: datetime
    user: str
    item_id: int
    position: int
    propensity_score: Annotated[Decimal, Precision(10, scale=9)]
    policy: Literal["random", "bts"]
    campaign: Literal["all", "men", "women"]


impressions = Topic(
    "impressions",
    event=Impression,
    key="user",
    event_id="event_id",
    event_time="event_time",
    partitions=4,
    retention=timedelta(days=7),
)
limits = BatchLimits(max_records=10_000)  # six batches: there is a middle in which to kill them

impressions_to_opensearch = Pipeline(
    "impressions-to-opensearch",
    source=impressions,
    sink=OpenSearch("impressions", unique=Unique(by=["event_id"]), index_by="day"),
    limits=limits,
)
impressions_to_bigquery = Pipeline(
    "impressions-to-bigquery",
    source=impressions,
    sink=BigQuery("impressions", cluster_by=["campaign"]),
    limits=limits,
)
impressions_to_iceberg = Pipeline(
    "impressions-to-iceberg",
    source=impressions,
    sink=Lake("impressions", partition_by=["day", "campaign"], format=Iceberg()),
    limits=limits,
)
