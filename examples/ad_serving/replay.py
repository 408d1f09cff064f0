"""Sends the week of impressions and clicks to Kafka: CSV rows to events to topics.

``python replay.py`` sends it to the project's broker (``headrace up``, ``headrace apply``).
Ids are derived from the rows, so a second replay sends the same events again.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import flow

from headrace import Project, Topic

PROJECT = Path(__file__).parent
DATA = PROJECT / "data" / "open_bandit_impressions.csv.gz"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://research.zozo.com/data.html")
PROGRESS_EVERY_EVENTS = 2_000

Row = dict[str, str]
Event = flow.Impression | flow.Click


@dataclass(frozen=True)
class Replayed:
    """What the broker has acknowledged."""

    impressions: int
    clicks: int


def rows() -> Iterator[Row]:
    """Rows of the CSV file, in order of time."""
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def events(row: Row) -> Iterator[tuple[Topic, Event]]:
    """The impression of a row, then its click if there was one."""
    shown = impression(row)
    yield flow.impressions, shown
    if row["click"] == "1":
        yield flow.clicks, click(shown)


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


def click(shown: flow.Impression) -> flow.Click:
    """What the ad server says when a shown item is clicked."""
    return flow.Click(
        event_id=str(uuid.uuid5(NAMESPACE, f"click on {shown.event_id}")),
        event_time=shown.event_time,
        impression_id=shown.event_id,
        user=shown.user,
        item_id=shown.item_id,
        propensity_score=shown.propensity_score,
        policy=shown.policy,
        campaign=shown.campaign,
    )


def user(row: Row) -> str:
    """The data set has no user ids: users with the same features are one."""
    features = "".join(row[f"user_feature_{i}"] for i in range(4))
    return hashlib.sha256(features.encode()).hexdigest()[:16]


def replay(on_progress: Callable[[int], None]) -> Replayed:
    """Sends every row; returns when the broker has acknowledged every event.

    Args:
        on_progress: called with the number of rows sent so far.

    Raises:
        HeadraceError: if the broker does not acknowledge every event.
    """
    with Project.open(PROJECT).producer() as producer:
        for number, row in enumerate(rows(), start=1):
            for topic, event in events(row):
                producer.send(topic, event)
            if number % PROGRESS_EVERY_EVENTS == 0:
                on_progress(number)
    return Replayed(producer.acknowledged["impressions"], producer.acknowledged["clicks"])


def _main() -> None:
    done = replay(lambda count: print(f"\r{count:,} rows", end="", flush=True))
    print(f"\n{done.impressions:,} impressions and {done.clicks:,} clicks acknowledged")


if __name__ == "__main__":
    _main()
