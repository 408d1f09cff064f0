"""The queries of the customers' dashboards: eight shapes, two hundred queries.

Queries of one shape differ in constants alone. However many there are, an event looks up those that
ask for its account. ``python dashboards.py`` registers all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from traffic import ACCOUNTS

from headrace import Project

QUERIES = 200
# Events come up to three seconds late: a window waits for them.
ALLOWED_LATENESS_SECONDS = 5
REGISTERING_THREADS = 16


@dataclass(frozen=True)
class Column:
    """A column of a result.

    Attributes:
        name: in the result.
        function: of the language of standing queries.
        argument: an expression; empty: all events.
        percentage: of ``percentile``.
        where: which events count; empty: all that match.
    """

    name: str
    function: str
    argument: str = ""
    percentage: int | None = None
    where: str = ""

    @property
    def text(self) -> str:
        """Text in the language of standing queries."""
        percentage = "" if self.percentage is None else f", {self.percentage}"
        aggregate = f"{self.function}({self.argument or '*'}{percentage})"
        if self.where:
            aggregate = f"filter({aggregate}, WHERE {self.where})"
        return f"{aggregate} AS {self.name}"


@dataclass(frozen=True)
class DashboardQuery:
    """A query, part by part, so that DuckDB can be asked the same.

    Attributes:
        name: of the shape that it has.
        account: whose events it asks for; empty: all.
        columns: of the result.
        topic: of the events.
        where: which events of the account match; empty: all.
        facets: a name for each, and the field.
        window_seconds: length of a window.
        slide_seconds: how far apart windows begin.
    """

    name: str
    account: str
    columns: tuple[Column, ...]
    topic: str
    where: str
    facets: tuple[tuple[str, str], ...]
    window_seconds: int
    slide_seconds: int

    @property
    def id(self) -> str:
        """Id under which it is registered."""
        return f"{self.name}-{self.account}" if self.account else self.name

    @property
    def slides(self) -> bool:
        """Whether an event is in several windows."""
        return self.slide_seconds < self.window_seconds

    @property
    def condition(self) -> str:
        """What an event must meet; empty: nothing."""
        account = f"account.id = '{self.account}'" if self.account else ""
        return " AND ".join(part for part in (account, self.where) if part)

    @property
    def text(self) -> str:
        """Text in the language of standing queries."""
        facets = ", ".join(f"{field} AS {name}" for name, field in self.facets)
        clauses = [
            f"SELECT {', '.join(column.text for column in self.columns)}",
            f"FROM {self.topic}",
            f"WHERE {self.condition}" if self.condition else "",
            f"FACET {facets}" if facets else "",
            f"WINDOW {self.window_seconds} seconds",
            f"SLIDE BY {self.slide_seconds} seconds" if self.slides else "",
            f"ALLOWED LATENESS {ALLOWED_LATENESS_SECONDS} seconds",
        ]
        return " ".join(clause for clause in clauses if clause)


COUNT = Column("events", "count")
TOTAL_MS = "durations.total_ms"
APP = (("app", "app.name"),)


def page_load(account: str) -> DashboardQuery:
    """Returns how long the pages of an account take, by app."""
    columns = (
        COUNT,
        Column("mean_ms", "average", TOTAL_MS),
        Column("p95_ms", "percentile", TOTAL_MS, 95),
    )
    return DashboardQuery("page-load", account, columns, "page_views", "", APP, 10, 10)


def visitors(account: str) -> DashboardQuery:
    """Returns how many visitors an account has, by browser, in the last 20 seconds."""
    columns = (COUNT, Column("visitors", "uniqueCount", "session"))
    where = "browser.country IN ('PL', 'DE', 'FR')"
    browser = (("browser", "browser.name"),)
    return DashboardQuery("visitors", account, columns, "page_views", where, browser, 20, 5)


def slow_pages(account: str) -> DashboardQuery:
    """Returns which pages of an account are slow."""
    columns = (
        COUNT,
        Column("slowest_ms", "max", TOTAL_MS),
        Column("render_ms", "sum", "durations.render_ms"),
    )
    where = f"{TOTAL_MS} > 1000"
    path = (("path", "path"),)
    return DashboardQuery("slow-pages", account, columns, "page_views", where, path, 10, 10)


def error_types(account: str) -> DashboardQuery:
    """Returns the errors of an account, by type and app, and how many of them are fatal."""
    columns = (
        COUNT,
        Column("fatal", "count", where="error.severity = 'fatal'"),
        Column("sessions", "count", "session"),
    )
    facets = (("type", "error.type"), *APP)
    return DashboardQuery("error-types", account, columns, "errors", "", facets, 10, 10)


def failing_hosts(account: str) -> DashboardQuery:
    """Returns the hosts of an account with errors that matter, in the last 20 seconds."""
    columns = (COUNT, Column("types", "uniqueCount", "error.type"))
    where = "NOT error.severity = 'warning'"
    host = (("host", "error.host"),)
    return DashboardQuery("failing-hosts", account, columns, "errors", where, host, 20, 10)


def apdex(account: str) -> DashboardQuery:
    """Returns how many requests of an account are answered fast, slowly, and too slowly."""
    columns = (
        COUNT,
        Column("fast", "count", where=f"{TOTAL_MS} <= 100"),
        Column("slow", "count", where=f"{TOTAL_MS} BETWEEN 101 AND 400"),
        Column("p99_ms", "percentile", TOTAL_MS, 99),
    )
    where = "status < 500"
    return DashboardQuery("apdex", account, columns, "transactions", where, APP, 10, 5)


def database_time(account: str) -> DashboardQuery:
    """Returns the time that requests of an account spend in the database, by name."""
    columns = (
        Column("mean_ms", "average", "durations.database_ms"),
        Column("spread_ms", "stddev", "durations.database_ms"),
        Column("least_ms", "min", "durations.database_ms"),
    )
    name = (("request", "name"),)
    where = "name LIKE 'POST %'"
    return DashboardQuery("database-time", account, columns, "transactions", where, name, 20, 10)


def orders(account: str) -> DashboardQuery:
    """Returns what the customers of an account buy."""
    columns = (
        COUNT,
        Column("cents", "sum", "amount_cents"),
        Column("mean_cents", "average", "amount_cents"),
    )
    where = "amount_cents IS NOT NULL"
    return DashboardQuery("orders", account, columns, "transactions", where, (), 10, 10)


DASHBOARD: tuple[Callable[[str], DashboardQuery], ...] = (
    page_load,
    visitors,
    slow_pages,
    error_types,
    failing_hosts,
    apdex,
    database_time,
    orders,
)


def operators() -> Iterator[DashboardQuery]:
    """Yields what the operators of the service ask of all accounts together."""
    load = (COUNT, Column("accounts", "uniqueCount", "account.id"))
    latency = (COUNT, Column("p95_ms", "percentile", TOTAL_MS, 95))
    yield DashboardQuery("pages-by-app", "", (*load, latency[1]), "page_views", "", APP, 5, 5)
    yield DashboardQuery("errors-by-app", "", load, "errors", "", APP, 5, 5)
    yield DashboardQuery("requests-by-app", "", latency, "transactions", "", APP, 5, 5)
    account = (("account", "account.id"),)
    for topic in ("page_views", "errors", "transactions"):
        name = f"{topic.replace('_', '-')}-by-account"
        yield DashboardQuery(name, "", (COUNT,), topic, "", account, 10, 10)


def dashboards() -> list[DashboardQuery]:
    """Returns the queries: those of operators, and the dashboards of the first accounts."""
    queries = [*operators(), *(query(account) for account in ACCOUNTS for query in DASHBOARD)]
    return queries[:QUERIES]


def register(queries: list[DashboardQuery], project: Project) -> None:
    """Registers queries; those that are registered already live on.

    Raises:
        HeadraceError: if a query is refused, or Kafka does not respond.
    """
    with ThreadPoolExecutor(REGISTERING_THREADS) as threads:
        for _ in threads.map(
            lambda query: project.register_query(query.text, query_id=query.id), queries
        ):
            pass


if __name__ == "__main__":
    register(dashboards(), Project.open(Path(__file__).parent))
