"""The events that every benchmark reads: the demo's impressions, repeated with ids of their own.

Deterministic: event ``n`` is the same bytes in every run. Values come from real impressions in
their real order, so they repeat, skew and compress as real ones do; ids are random UUIDs, as
clients make them. Event time runs over two hours, up to half a minute out of order.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace import EpochMillis, Topic

IMPRESSIONS = (
    Path(__file__).resolve().parents[1] / "examples/ad_serving/data/open_bandit_impressions.csv.gz"
)
BEGIN = datetime(2019, 11, 24, 10, tzinfo=UTC)
SPAN = timedelta(hours=2)
DISORDER_MS = 30_000
ITEMS_A_CATEGORY = 10
"""The data's 80 items make 8 categories, of very unequal size."""


class Impression:
    """One ad shown: ten fields, about 280 bytes of JSON."""

    event_id: str
    event_time: EpochMillis
    category: str
    campaign: str
    item_id: int
    position: int
    clicked: bool
    propensity: float
    user_group: str
    user_segment: str


def impressions_topic(name: str, partitions: int) -> Topic:
    """The topic of the events, as a project would declare it."""
    return Topic(name, event=Impression, event_time="event_time", partitions=partitions)


def events(count: int, source: Path = IMPRESSIONS, *, span: timedelta = SPAN) -> Iterator[bytes]:
    """``count`` events as JSON, over ``span``, in order of event time but for a little disorder."""
    bodies = _bodies(source)
    draw = random.Random(count)
    begin_ms = int(BEGIN.timestamp() * 1000)
    span_ms = int(span.total_seconds() * 1000)
    for number in range(count):
        event_id = uuid.UUID(int=draw.getrandbits(128), version=4)
        in_order = DISORDER_MS + number * (span_ms - DISORDER_MS) // count
        event_ms = begin_ms + in_order - draw.randrange(DISORDER_MS)
        body = bodies[number % len(bodies)]
        yield b'{"event_id":"%s","event_time":%d,%s' % (str(event_id).encode(), event_ms, body)


@functools.cache
def _bodies(source: Path) -> list[bytes]:
    """The JSON of every impression after its id and time, brace included."""
    content = gzip.decompress(source.read_bytes()).decode()
    return [_body(row) for row in csv.DictReader(io.StringIO(content))]


def _body(row: dict[str, str]) -> bytes:
    item_id = int(row["item_id"])
    fields = {
        "category": f"category-{item_id // ITEMS_A_CATEGORY}",
        "campaign": row["campaign"],
        "item_id": item_id,
        "position": int(row["position"]),
        "clicked": row["click"] == "1",
        "propensity": float(row["propensity_score"]),
        "user_group": row["user_feature_0"],
        "user_segment": row["user_feature_2"],
    }
    return json.dumps(fields, separators=(",", ":"))[1:].encode()
