"""Telemetry: what customers send to a monitoring service, and the queries that they ask of it.

Each customer registers the queries of its dashboards while events flow. A query is answered for
every window of time, and the same three pipelines match the events of all queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from headrace import MatchQueries, Pipeline, Random, StandingQueries, Topic

PARTITIONS = 4
DAY = timedelta(days=1)

Plan = Literal["free", "team", "enterprise"]
BrowserName = Literal["chrome", "safari", "firefox", "edge"]
Severity = Literal["warning", "error", "fatal"]


@dataclass(frozen=True)
class Account:
    """A customer of the monitoring service."""

    id: str
    plan: Plan


@dataclass(frozen=True)
class App:
    """A program of the customer, which reports the event."""

    name: str
    version: str


@dataclass(frozen=True)
class Browser:
    """The visitor's browser, and the country that it is in."""

    name: BrowserName
    version: int
    country: str


@dataclass(frozen=True)
class PageDurations:
    """How long the parts of a page view took, in milliseconds."""

    backend_ms: int
    render_ms: int
    total_ms: int


@dataclass(frozen=True)
class PageView:
    """A page was shown to a visitor."""

    event_id: str
    at: datetime
    account: Account
    app: App
    browser: Browser
    session: str
    path: str
    durations: PageDurations


@dataclass(frozen=True)
class ErrorDetails:
    """What went wrong, and where."""

    type: str
    severity: Severity
    host: str


@dataclass(frozen=True)
class ReportedError:
    """An error was thrown in an app."""

    event_id: str
    at: datetime
    account: Account
    app: App
    error: ErrorDetails
    session: str | None


@dataclass(frozen=True)
class TransactionDurations:
    """How long the parts of a transaction took, in milliseconds."""

    database_ms: int
    total_ms: int


@dataclass(frozen=True)
class WebTransaction:
    """A server has answered a request; an order has an amount."""

    event_id: str
    at: datetime
    account: Account
    app: App
    name: str
    status: int
    durations: TransactionDurations
    amount_cents: int | None


def events(name: str, event: type) -> Topic:
    """Returns a topic of events, in any partition: no account makes one of them hot."""
    return Topic(
        name,
        event=event,
        event_id="event_id",
        event_time="at",
        partitions=PARTITIONS,
        partitioning=Random(),
        retention=DAY,
        config={"segment.ms": "3600000"},
    )


page_views = events("page_views", PageView)
errors = events("errors", ReportedError)
transactions = events("transactions", WebTransaction)

# Two instances answer the queries, with four partitions each; a third one would be a spare.
telemetry = StandingQueries("telemetry", partitions=8, partitions_per_instance=4)

match_page_views = Pipeline("match-page-views", page_views, MatchQueries(telemetry))
match_errors = Pipeline("match-errors", errors, MatchQueries(telemetry))
match_transactions = Pipeline("match-transactions", transactions, MatchQueries(telemetry))
