"""Ad serving: impressions, clicks and conversions of a recommendation shelf, joined and counted.

All topics but the campaigns are keyed by user and have the same number of partitions, so what one
user saw, clicked and bought lies in partitions of the same number, and can be joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from headrace import (
    BatchLimits,
    Count,
    Distinct,
    Join,
    Kafka,
    Lake,
    Match,
    Pipeline,
    Stats,
    Topic,
    Unique,
    classify,
    deduplicate,
    enrich,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 4
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)

Campaign = Literal["all", "men", "women"]
Policy = Literal["random", "bts"]


@dataclass(frozen=True)
class Impression:
    """An item was shown to a user, in one of three positions."""

    event_id: str
    event_time: datetime
    user: str
    item_id: int
    position: int
    propensity_score: float
    policy: Policy
    campaign: Campaign


@dataclass(frozen=True)
class Click:
    """The user clicked the item of an impression."""

    event_id: str
    event_time: datetime
    impression_id: str
    user: str
    item_id: int
    propensity_score: float
    policy: Policy
    campaign: Campaign


@dataclass(frozen=True)
class JoinedClick(Click):
    """A click with its impression."""

    impression: Impression


@dataclass(frozen=True)
class Conversion:
    """The user bought something; which click led to it is not known here."""

    event_id: str
    event_time: datetime
    user: str
    cents: int


@dataclass(frozen=True)
class CampaignTerms:
    """What the advertiser of a campaign pays for a click, since the last change."""

    campaign: Campaign
    advertiser: str
    cents_per_click: int


def by_user(name: str, event: type) -> Topic:
    """Returns a topic of events that have an id, a time and a user."""
    return Topic(
        name,
        event=event,
        key="user",
        event_id="event_id",
        event_time="event_time",
        partitions=PARTITIONS,
        retention=WEEK,
    )


impressions = by_user("impressions", Impression)
clicks = by_user("clicks", Click)
joined_clicks = by_user("joined-clicks", JoinedClick)
conversions = by_user("conversions", Conversion)
campaigns = Topic(
    "campaigns",
    event=CampaignTerms,
    key="campaign",
    compaction=True,
    config={"min.compaction.lag.ms": "86400000", "segment.ms": "3600000"},
)

once = Unique(by=["event_id"], within=DAY)


def weighted(clicks: DataFrame) -> DataFrame:
    """Adds what a click counts in off-policy evaluation: one over its item's odds of being shown.

    Inverse propensity weighting, for which the data set was published: a click on an item that
    the policy rarely showed says more than one on an item that it showed all the time.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return clicks.select(
        "event_id",
        "event_time",
        "impression_id",
        "user",
        "item_id",
        "policy",
        "campaign",
        (F.lit(1.0) / F.col("propensity_score")).alias("weight"),
        "impression",
    )


# Nothing runs between topic and table, so the tasks that read also write the files.
impressions_to_lake = Pipeline(
    "impressions-to-lake",
    source=impressions,
    sink=Lake("impressions", partition_by=("day", "campaign"), unique=once),
    limits=BatchLimits(max_records=10_000),  # late is what comes after an earlier batch
    allowed_lateness=HOUR,
    late_data=Lake("late_impressions", partition_by=("day",), unique=once),
)
impressions_to_stats = Pipeline(
    "impressions-to-stats",
    source=impressions,
    steps=[deduplicate(by=["event_id"], within=3 * DAY)],
    sink=Stats(
        "impression_counts",
        by=("campaign",),
        every=DAY,
        measures={"impressions": Count(), "users": Distinct("user")},
    ),
)
clicks_with_impressions = Pipeline(
    "clicks-with-impressions",
    source=Join(
        clicks,
        impressions,
        on=("impression_id", "event_id"),
        column="impression",
        within=HOUR,
        wait=timedelta(minutes=30),
        unmatched=Lake("unmatched", partition_by=("day",), unique=once),
    ),
    sink=Kafka(joined_clicks),
)
clicks_to_lake = Pipeline(
    "clicks-to-lake",
    source=joined_clicks,
    steps=[
        weighted,
        enrich(campaigns, by="campaign", columns=["advertiser", "cents_per_click"]),
        classify("place", {"centre": "impression.position = 2"}, default="edge"),
    ],
    sink=Lake("clicks", partition_by=("day",), unique=once),
)
clicks_to_stats = Pipeline(
    "clicks-to-stats",
    source=joined_clicks,
    steps=[deduplicate(by=["event_id"], within=DAY)],
    sink=Stats("click_counts", by=("campaign",), every=DAY, measures={"clicks": Count()}),
)
conversions_with_clicks = Pipeline(
    "conversions-with-clicks",
    source=Join(
        conversions,
        joined_clicks,
        on=("user", "user"),
        column="click",
        within=DAY,
        wait=HOUR,
        match=Match.LAST,
        unmatched=Lake("unmatched_conversions", partition_by=("day",), unique=once),
    ),
    sink=Lake("conversions", partition_by=("day",), unique=once),
)
