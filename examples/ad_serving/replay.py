"""Sends the week to Kafka: the events of the CSV file, and what goes wrong on a real week.

``python replay.py`` sends it to the project's broker (``headrace up``, ``headrace apply``).
Ids, and everything that goes wrong, are derived from the rows: a second replay sends the same
events again. README.md has the rules as a table.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path

import flow

from headrace import Project, Topic

PROJECT = Path(__file__).parent
DATA = PROJECT / "data" / "open_bandit_impressions.csv.gz"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://research.zozo.com/data.html")
PROGRESS_EVERY_EVENTS = 2_000

# Of the hundred parts into which ids divide the events.
TWICE = range(2)
LATE = range(2, 3)
CLICK_COMES_FIRST = range(10, 20)
WITHOUT_IMPRESSION = range(20, 25)
CONVERTS_LATE = range(30, 50)

TWICE_AFTER = timedelta(minutes=5)
LATE_BY = timedelta(days=2)
IMPRESSION_DELAY = timedelta(minutes=10)
CONVERTS_AFTER = timedelta(minutes=20)
CONVERTS_LATE_AFTER = timedelta(hours=26)
# What is planted has come, and its time is over, when the week ends.
PLANTED_UNTIL = datetime(2019, 11, 29, tzinfo=UTC)

CAMPAIGNS = (
    flow.CampaignTerms("all", "ZOZOTOWN", 10),
    flow.CampaignTerms("men", "ZOZOTOWN", 12),
    flow.CampaignTerms("women", "ZOZOTOWN", 12),
    flow.CampaignTerms("women", "ZOZOUSED", 15),
)
"""Terms in the order in which they are sent: the last ones of a campaign are valid."""

Row = dict[str, str]
Event = flow.Impression | flow.Click | flow.Conversion


@dataclass(frozen=True)
class Sending:
    """An event, and when it is sent in the replayed week."""

    at: datetime
    topic: Topic
    event: Event


def rows() -> Iterator[Row]:
    """Rows of the CSV file, in order of time."""
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def part(event_id: str) -> int:
    """Which hundredth of all events one belongs to, from 0 to 99, by its id."""
    return uuid.UUID(event_id).int % 100


def sendings(row: Row) -> Iterator[Sending]:
    """Everything that is sent because of a row, duplicates included."""
    for sending in first_sendings(row):
        yield sending
        if part(sending.event.event_id) in TWICE:
            yield replace(sending, at=sending.at + TWICE_AFTER)


def first_sendings(row: Row) -> Iterator[Sending]:
    """What a row says, its conversion if there is one, and what is planted beside it."""
    shown = impression(row)
    at = shown.event_time
    clicked = click(shown) if row["click"] == "1" else None
    comes_first = clicked is not None and part(clicked.event_id) in CLICK_COMES_FIRST
    yield Sending(at + IMPRESSION_DELAY if comes_first else at, flow.impressions, shown)
    if part(shown.event_id) in LATE and at < PLANTED_UNTIL:
        yield Sending(at + LATE_BY, flow.impressions, offline(shown))
    if clicked is not None:
        yield Sending(at, flow.clicks, clicked)
        if at < PLANTED_UNTIL:
            yield from because_of_click(clicked)


def because_of_click(clicked: flow.Click) -> Iterator[Sending]:
    """The conversion after a click, and the click without an impression, where there are any."""
    number = part(clicked.event_id)
    if number in WITHOUT_IMPRESSION:
        yield Sending(clicked.event_time, flow.clicks, without_impression(clicked))
    if number % 2 == 0:
        bought = conversion(clicked)
        yield Sending(bought.event_time, flow.conversions, bought)


def impression(row: Row) -> flow.Impression:
    """What the ad server says when it has shown an item."""
    return flow.Impression(
        event_id=str(uuid.uuid5(NAMESPACE, ",".join(row.values()))),
        event_time=datetime.fromisoformat(row["timestamp"]),
        user=user(row),
        item_id=int(row["item_id"]),
        position=int(row["position"]),
        propensity_score=float(row["propensity_score"]),
        policy=row["policy"],
        campaign=row["campaign"],
    )


def offline(shown: flow.Impression) -> flow.Impression:
    """A phone without a network has shown the item too, and says so days later."""
    return replace(shown, event_id=derived_id("offline like", shown.event_id))


def click(shown: flow.Impression) -> flow.Click:
    """What the ad server says when a shown item is clicked."""
    return flow.Click(
        event_id=derived_id("click on", shown.event_id),
        event_time=shown.event_time,
        impression_id=shown.event_id,
        user=shown.user,
        item_id=shown.item_id,
        propensity_score=shown.propensity_score,
        policy=shown.policy,
        campaign=shown.campaign,
    )


def without_impression(clicked: flow.Click) -> flow.Click:
    """A click that names an impression which no one has sent."""
    return replace(
        clicked,
        event_id=derived_id("lost like", clicked.event_id),
        impression_id=derived_id("never sent for", clicked.event_id),
    )


def conversion(clicked: flow.Click) -> flow.Conversion:
    """What the shop says when the user has bought something after a click."""
    number = part(clicked.event_id)
    return flow.Conversion(
        event_id=derived_id("conversion after", clicked.event_id),
        event_time=clicked.event_time
        + (CONVERTS_LATE_AFTER if number in CONVERTS_LATE else CONVERTS_AFTER),
        user=clicked.user,
        cents=1_000 + 10 * number,
    )


def derived_id(what: str, event_id: str) -> str:
    """The id of an event that there is because of another one."""
    return str(uuid.uuid5(NAMESPACE, f"{what} {event_id}"))


def user(row: Row) -> str:
    """The data set has no user ids: users with the same features are one."""
    features = "".join(row[f"user_feature_{i}"] for i in range(4))
    return hashlib.sha256(features.encode()).hexdigest()[:16]


def replay(on_progress: Callable[[int, int], None]) -> Counter[str]:
    """Sends the terms of the campaigns, and then the week in the order in which it happened.

    Args:
        on_progress: called with the number of events sent so far, and of all.

    Returns:
        How many events of each topic the broker has acknowledged.

    Raises:
        HeadraceError: if the broker does not acknowledge every event.
    """
    week = sorted((sending for row in rows() for sending in sendings(row)), key=attrgetter("at"))
    with Project.open(PROJECT).producer() as producer:
        for terms in CAMPAIGNS:
            producer.send(flow.campaigns, terms)
        for number, sending in enumerate(week, start=1):
            producer.send(sending.topic, sending.event)
            if number % PROGRESS_EVERY_EVENTS == 0 or number == len(week):
                on_progress(number, len(week))
    return producer.acknowledged


def _main() -> None:
    acknowledged = replay(lambda sent, total: print(f"\r{sent:,} of {total:,}", end="", flush=True))
    print()
    for topic, count in acknowledged.items():
        print(f"{topic}: {count:,} acknowledged")


if __name__ == "__main__":
    _main()
