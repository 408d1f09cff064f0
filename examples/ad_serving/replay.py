"""Sends the week of impressions and clicks to Kafka: CSV rows to events to topics.

``python replay.py 127.0.0.1:9092`` sends it to a broker whose topics exist (``headrace apply``).
Ids are derived from the rows, so a second replay sends the same events again.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import flow

from headrace import Topic
from headrace.kafka.client import client_config, producer
from headrace.settings import KafkaSettings

DATA = Path(__file__).parent / "data" / "open_bandit_impressions.csv.gz"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://research.zozo.com/data.html")
FLUSH_SECONDS = 60.0
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


def encoded(event: Event) -> bytes:
    """An event as the value of a record: JSON, with times in RFC 3339."""
    return json.dumps(vars(event), default=datetime.isoformat).encode()


def user(row: Row) -> str:
    """The data set has no user ids: users with the same features are one."""
    features = "".join(row[f"user_feature_{i}"] for i in range(4))
    return hashlib.sha256(features.encode()).hexdigest()[:16]


def replay(bootstrap: str, on_progress: Callable[[int], None]) -> Replayed:
    """Sends every row; returns when the broker has acknowledged every event.

    Args:
        bootstrap: the broker's address.
        on_progress: called with the number of rows sent so far.

    Raises:
        RuntimeError: the broker refused events, or did not acknowledge them in time.
    """
    sender = Sender(bootstrap)
    for number, row in enumerate(rows(), start=1):
        for topic, event in events(row):
            sender.send(topic, event)
        if number % PROGRESS_EVERY_EVENTS == 0:
            on_progress(number)
    sender.finish()
    return Replayed(sender.acknowledged["impressions"], sender.acknowledged["clicks"])


class Sender:
    """A producer that counts what was acknowledged, by topic."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = producer(client_config(KafkaSettings(), bootstrap))
        self.acknowledged: Counter[str] = Counter()
        self._failed: list[str] = []

    def send(self, topic: Topic, event: Event) -> None:
        """Hands an event over; waits while the producer's queue is full."""
        value = encoded(event)
        while True:
            try:
                self._producer.produce(topic.name, value, event.user, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Waits for the last acknowledgements."""
        waiting = self._producer.flush(FLUSH_SECONDS)
        if self._failed or waiting:
            failures = ", ".join(self._failed[:3]) or "no answer"
            raise RuntimeError(f"{len(self._failed) + waiting} events not acknowledged: {failures}")

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.topic()] += 1
        else:
            self._failed.append(str(error))


def _main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python replay.py BOOTSTRAP_SERVERS")
    done = replay(sys.argv[1], lambda count: print(f"\r{count:,} rows", end="", flush=True))
    print(f"\n{done.impressions:,} impressions and {done.clicks:,} clicks acknowledged")


if __name__ == "__main__":
    _main()
