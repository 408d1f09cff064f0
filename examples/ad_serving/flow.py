"""Ad serving: the impressions and clicks of a recommendation shelf, from Kafka into a lake.

Both topics are keyed by user and have the same number of partitions, so one user's impressions
and clicks lie in partitions of the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from headrace import Lake, Pipeline, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 4
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


impressions = Topic(
    "impressions",
    event=Impression,
    key="user",
    event_time="event_time",
    partitions=PARTITIONS,
    retention=WEEK,
)
clicks = Topic(
    "clicks",
    event=Click,
    key="user",
    event_time="event_time",
    partitions=PARTITIONS,
    retention=WEEK,
)


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
    )


# Nothing runs between topic and table, so the tasks that read also write the files.
impressions_to_lake = Pipeline(
    "impressions-to-lake",
    source=impressions,
    sink=Lake("impressions", partition_by=("day", "campaign")),
    allowed_lateness=WEEK,
)
clicks_to_lake = Pipeline(
    "clicks-to-lake",
    source=clicks,
    steps=[weighted],
    sink=Lake("clicks", partition_by=("day",)),
    allowed_lateness=WEEK,
)
