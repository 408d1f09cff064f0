"""What happened: impressions and clicks of the Open Bandit Dataset, and the topics they are in.

The data is that of the example ``ad_serving``; its ``data/ATTRIBUTION.md`` says where it is from.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from headrace import Topic

PARTITIONS = 4
WEEK = timedelta(days=7)

Campaign = Literal["all", "men", "women"]
Policy = Literal["random", "bts"]


@dataclass(frozen=True)
class Impression:
    """An item was shown to a user."""

    event_id: str
    event_time: datetime
    user: str
    item_id: int
    position: int
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
    policy: Policy
    campaign: Campaign


@dataclass(frozen=True)
class JoinedClick(Click):
    """A click with its impression."""

    impression: Impression


def by_user(name: str, event: type) -> Topic:
    """Returns a topic of events; the same user is in the same partition of all of them."""
    return Topic(
        name,
        event=event,
        key="user",
        event_id="event_id",
        event_time="event_time",
        partitions=PARTITIONS,
        retention=WEEK,
    )
