"""What the raw file says of each day, beside what each store says in its own query language.

The raw file is read in plain Python, without headrace. All sums are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import replay
from pyiceberg.catalog.sql import SqlCatalog

TABLE = "impressions"
NINE_DIGITS = Decimal("1e-9")
SQL = """
SELECT DATE(event_time), COUNT(*), COUNT(DISTINCT event_id),
       SUM(item_id), SUM(position), SUM(propensity_score)
FROM impressions GROUP BY 1
"""
AGGREGATION = {
    "size": 0,
    "aggs": {
        "days": {
            "date_histogram": {"field": "event_time", "calendar_interval": "day"},
            "aggs": {name: {"sum": {"field": name}} for name in ("item_id", "position")},
        }
    },
}
SCAN = {"size": 10_000, "sort": ["_doc"], "_source": ["event_id", "event_time", "propensity_score"]}

Query = Callable[[str], list[list[Any]]]
Request = Callable[[str, str, object], Any]


@dataclass(frozen=True)
class Day:
    """The impressions of a day.

    Attributes:
        rows: how many there are.
        events: how many different event ids they have.
        item_ids, positions, scores: sums of these columns.
    """

    rows: int
    events: int
    item_ids: int
    positions: int
    scores: Decimal


Week = Mapping[date, Day]


def of_raw_file() -> Week:
    """Returns what must be in each store."""
    rows_of = defaultdict(list)
    for row in replay.rows():
        rows_of[datetime.fromisoformat(row["timestamp"]).date()].append(row)
    return {
        day: Day(
            rows=len(rows),
            events=len({replay.impression(row).event_id for row in rows}),
            item_ids=sum(int(row["item_id"]) for row in rows),
            positions=sum(int(row["position"]) for row in rows),
            scores=sum(map(score, rows), Decimal()),
        )
        for day, rows in rows_of.items()
    }


def score(row: replay.Row) -> Decimal:
    """Returns the propensity score of a row with nine digits behind the point.

    The file has doubles, such as 0.019430000000000003, whose sum depends on their order.
    """
    return Decimal(row["propensity_score"]).quantize(NINE_DIGITS)


def of_bigquery(query: Query) -> Week:
    """Returns what BigQuery's SQL finds; its REST interface writes numbers as texts."""
    return {
        date.fromisoformat(day): Day(*map(int, numbers), Decimal(scores))
        for day, *numbers, scores in query(SQL)
    }


def of_iceberg(uri: str) -> Week:
    """Returns what pyiceberg reads and Polars adds up."""
    table = SqlCatalog("headrace", uri=uri).load_table(f"default.{TABLE}")
    days = (
        pl.DataFrame(table.scan().to_arrow())
        .group_by(pl.col("event_time").dt.date())
        .agg(
            pl.len(),
            pl.col("event_id").n_unique(),
            pl.col("item_id").sum(),
            pl.col("position").sum(),
            pl.col("propensity_score").sum(),
        )
    )
    return {day: Day(*numbers) for day, *numbers in days.iter_rows()}


def of_opensearch(request: Request) -> Week:
    """Returns what an aggregation and a scan find.

    An aggregation adds decimals as doubles, and counts different values by approximation. So these
    two are taken from the documents themselves.
    """
    request("POST", f"{TABLE}-*/_refresh", None)
    scanned = defaultdict(Scanned)
    for document in _documents(request):
        scanned[datetime.fromisoformat(document["event_time"]).date()].add(document)
    answer = request("POST", f"{TABLE}-*/_search", AGGREGATION)
    week = {}
    for bucket in answer["aggregations"]["days"]["buckets"]:
        day = datetime.fromtimestamp(bucket["key"] / 1000, UTC).date()
        sums = (int(bucket[name]["value"]) for name in ("item_id", "position"))
        week[day] = Day(bucket["doc_count"], len(scanned[day].ids), *sums, scanned[day].scores)
    return week


@dataclass
class Scanned:
    """What the documents of a day hold."""

    ids: set[str] = field(default_factory=set)
    scores: Decimal = Decimal()

    def add(self, document: Mapping[str, str]) -> None:
        """Adds a document."""
        self.ids.add(document["event_id"])
        self.scores += Decimal(document["propensity_score"])


def _documents(request: Request) -> Iterator[Mapping[str, str]]:
    page = request("POST", f"{TABLE}-*/_search?scroll=1m", SCAN)
    while page["hits"]["hits"]:
        yield from (hit["_source"] for hit in page["hits"]["hits"])
        page = request("POST", "_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})


def differing_days(raw: Week, stored: Week) -> list[date]:
    """Returns the days of which a store says something else, or that one of the two lacks."""
    return sorted(day for day in raw.keys() | stored.keys() if raw.get(day) != stored.get(day))
