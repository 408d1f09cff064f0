"""What must be there by the raw file and the rules of README.md, beside what is there.

The expected side is computed from the CSV file in plain Python, without headrace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, LiteralString

import flow
import polars as pl
import psycopg
import replay

IMPRESSIONS = "SELECT window_start, campaign, impressions FROM impression_counts"
CLICKS = "SELECT window_start, campaign, clicks FROM click_counts"
LAKE = replay.PROJECT / ".headrace" / "lake"

Status = Mapping[str, Mapping[str, Any]]


class Sum:
    """Compares what is there, ``actual``, with what must be there, each as often."""

    def __init__(
        self,
        what: str,
        actual: Iterable[Hashable] | Mapping[Hashable, int],
        expected: Iterable[Hashable] | Mapping[Hashable, int],
    ) -> None:
        self.what = what
        self.actual, self.expected = Counter(actual), Counter(expected)

    @property
    def missing(self) -> int:
        """How many are expected and not there."""
        return (self.expected - self.actual).total()

    @property
    def extra(self) -> int:
        """How many are there and not expected, or too often."""
        return (self.actual - self.expected).total()


@dataclass(frozen=True)
class Account:
    """The events of a topic: each is in one of two tables, or was dropped as a duplicate."""

    topic: str
    sent: int
    table: int
    beside: int
    duplicates: int

    @property
    def unaccounted(self) -> int:
        """Events that are nowhere; below 0: events that are somewhere twice."""
        return self.sent - self.table - self.beside - self.duplicates


class Week:
    """The week as the raw file and the rules have it.

    Attributes:
        sent: how many events of each topic are sent, duplicates included.
        impressions: of the raw file, by id.
        late: impressions that come days later, by id.
        clicks: those whose impression was sent, by id.
        unmatched: clicks whose impression was never sent, by id.
        last_clicks: the click of each conversion by its id; None: there is none within a day.
    """

    def __init__(self) -> None:
        rows = list(replay.rows())
        self.rows = {replay.impression(row).event_id: row for row in rows}
        self.sent: Counter[str] = Counter()
        events: dict[str, dict[str, Any]] = {"impressions": {}, "clicks": {}, "conversions": {}}
        for sending in (sending for row in rows for sending in replay.sendings(row)):
            self.sent[sending.topic.name] += 1
            events[sending.topic.name][sending.event.event_id] = sending.event
        shown, clicked = events["impressions"], events["clicks"]
        self.impressions = {id_: event for id_, event in shown.items() if id_ in self.rows}
        self.late = {id_: event for id_, event in shown.items() if id_ not in self.rows}
        self.clicks = {id_: event for id_, event in clicked.items() if event.impression_id in shown}
        self.unmatched = {id_: event for id_, event in clicked.items() if id_ not in self.clicks}
        conversions = events["conversions"].values()
        self.last_clicks = {
            conversion.event_id: self._last_click(conversion) for conversion in conversions
        }

    def duplicates(self, topic: str) -> int:
        """How many events of a topic are sent for a second time."""
        ids = {
            "impressions": len(self.impressions) + len(self.late),
            "clicks": len(self.clicks) + len(self.unmatched),
            "conversions": len(self.last_clicks),
        }
        return self.sent[topic] - ids[topic]

    def by_day(self, events: Iterable[flow.Impression | flow.Click]) -> Counter[tuple[date, str]]:
        """How many events each campaign has on each day."""
        return Counter((event.event_time.date(), event.campaign) for event in events)

    def _last_click(self, bought: flow.Conversion) -> flow.Click | None:
        own = (
            click
            for click in self.clicks.values()
            if click.user == bought.user
            and timedelta(0) <= bought.event_time - click.event_time <= timedelta(days=1)
        )
        return max(own, key=lambda click: click.event_time, default=None)


def accounts(week: Week, status: Status) -> list[Account]:
    """Returns an account of each topic, by lake and status."""

    def duplicates(*pipelines: str) -> int:
        return sum(status[name]["lake_duplicate_rows"] for name in pipelines)

    return [
        Account(
            "impressions",
            week.sent["impressions"],
            lake("impressions").height,
            lake("late_impressions").height,
            duplicates("impressions-to-lake"),
        ),
        Account(
            "clicks",
            week.sent["clicks"],
            lake("clicks").height,
            lake("unmatched").height,
            duplicates("clicks-with-impressions", "clicks-to-lake"),
        ),
        Account(
            "conversions",
            week.sent["conversions"],
            lake("conversions").height,
            lake("unmatched_conversions").height,
            duplicates("conversions-with-clicks"),
        ),
    ]


def sums(
    week: Week, acknowledged: Counter[str], accounted: Iterable[Account], url: str
) -> Iterator[Sum]:
    """Everything that is compared, ids and values, not only numbers."""
    sent = {topic: acknowledged[topic] for topic in week.sent}
    yield Sum("Kafka: events acknowledged", sent, week.sent)
    yield Sum("Lake: impressions", lake("impressions")["event_id"], week.impressions.keys())
    yield Sum("Lake: late_impressions", lake("late_impressions")["event_id"], week.late.keys())
    yield Sum("Lake: clicks with impression", joined_clicks(), expected_clicks(week))
    yield Sum("Lake: unmatched", lake("unmatched")["event_id"], week.unmatched.keys())
    yield from of_conversions(week)
    for account in accounted:
        topic = account.topic
        dropped, expected = {topic: account.duplicates}, {topic: week.duplicates(topic)}
        yield Sum(f"Duplicates dropped: {topic}", dropped, expected)
    shown = [*week.impressions.values(), *week.late.values()]
    yield Sum("PostgreSQL: impressions", counts(url, IMPRESSIONS), week.by_day(shown))
    clicks = week.by_day(week.clicks.values())
    yield Sum("PostgreSQL: clicks", counts(url, CLICKS), clicks)


def joined_clicks() -> list[tuple[Any, ...]]:
    """Clicks of the lake, with values of their impressions and of their campaigns."""
    inner = pl.col("impression").struct
    columns = (
        pl.col("event_id"),
        inner.field("event_id").alias("impression"),
        inner.field("position"),
        *(pl.col("place"), pl.col("campaign"), pl.col("advertiser"), pl.col("cents_per_click")),
    )
    return lake("clicks").select(columns).rows()


def expected_clicks(week: Week) -> Iterator[tuple[Any, ...]]:
    """Yields the rows that :func:`joined_clicks` must give."""
    terms = {campaign.campaign: campaign for campaign in replay.CAMPAIGNS}
    for click in week.clicks.values():
        position = int(week.rows[click.impression_id]["position"])
        paid = terms[click.campaign]
        place = "centre" if position == 2 else "edge"
        values = (paid.campaign, paid.advertiser, paid.cents_per_click)
        yield (click.event_id, click.impression_id, position, place, *values)


def of_conversions(week: Week) -> Iterator[Sum]:
    """Each conversion has its user's last click, and that click its impression."""
    inner = pl.col("click").struct
    nested = inner.field("impression").struct.field("event_id").alias("impression")
    rows = lake("conversions").select("event_id", inner.field("event_id").alias("click"), nested)
    with_click = {id_: click for id_, click in week.last_clicks.items() if click is not None}
    expected = ((id_, click.event_id, click.impression_id) for id_, click in with_click.items())
    yield Sum("Lake: conversions with click", rows.rows(), expected)
    without = week.last_clicks.keys() - with_click.keys()
    ids = lake("unmatched_conversions")["event_id"]
    yield Sum("Lake: unmatched_conversions", ids, without)


def counts(url: str, query: LiteralString) -> dict[tuple[date, str], int]:
    """Counts of PostgreSQL by day and campaign."""
    with psycopg.connect(url, options="-c TimeZone=UTC") as connection:
        rows = connection.execute(query).fetchall()
    return {(start.date(), campaign): count for start, campaign, count in rows}


def lake(table: str) -> pl.DataFrame:
    """A table of the lake as it is now."""
    return pl.read_delta(str(LAKE / table))
