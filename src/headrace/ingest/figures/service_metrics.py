"""What the service counts, and its text for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from headrace.ingest.figures.counters import Counters, Labels
from headrace.ingest.spool.spool import SpoolStats
from headrace.runtime.prometheus import escaped

STATUSES = (
    200, 201, 202, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 500, 503,
)  # fmt: skip
OUTCOMES = ("accepted", "spooled", "rejected", "limited", "not-taken", "unknown")
OTHER = "other"
EVENT_CODES = (
    "empty", "not-utf8", "trailing-data", "not-json", "too-deep", "not-an-object",
    "missing-field", "wrong-type", "out-of-range", "unknown-value", "lone-surrogate",
    "event-time-out-of-bounds", "repeated-key", "too-many-keys", "text-too-long", "nul-character",
    "bad-event-id", "repeated-event-id", "bad-key", "event-too-large",
    "rejected-by-kafka",
)  # fmt: skip
UNAVAILABLE_CODES = (
    "unknown-outcome", "overloaded", "topic-missing", "not-ready", "spool-full", "spool-failed",
    "batch-rejected", "spreads-unknown",
)  # fmt: skip
SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

REQUESTS = "headrace_ingest_requests_total"
EVENTS = "headrace_ingest_events_total"
REJECTIONS = "headrace_ingest_rejections_total"
BYTES = "headrace_ingest_bytes_total"
ACCOUNT_EVENTS = "headrace_ingest_account_events_total"
ACCOUNT_BYTES = "headrace_ingest_account_bytes_total"
LATENCY = "headrace_ingest_accept_seconds"
UNAVAILABLE = "headrace_ingest_unavailable_total"
PRODUCER_QUEUE = "headrace_ingest_producer_queue_events"
LIMITED_LOCALLY = "headrace_ingest_limited_locally_total"
QUERY_STREAMS = "headrace_ingest_query_streams"
_MICROSECONDS = "sum_microseconds"


@dataclass(frozen=True, slots=True)
class ServiceMetric:
    """A metric of the service: Prometheus' name and type, its labels, what it counts."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


SERVICE_METRICS = (
    ServiceMetric(REQUESTS, "counter", ("status",), "requests answered"),
    ServiceMetric(EVENTS, "counter", ("topic", "outcome"), "events by outcome"),
    ServiceMetric(REJECTIONS, "counter", ("topic", "code"), "events rejected, by reason"),
    ServiceMetric(BYTES, "counter", ("topic",), "bytes of accepted events"),
    ServiceMetric(
        UNAVAILABLE, "counter", ("topic", "code"), "requests for a topic answered with 503"
    ),
    ServiceMetric(PRODUCER_QUEUE, "gauge", (), "events that Kafka has not answered for"),
    ServiceMetric(LATENCY, "histogram", (), "from a request's last byte to its 202"),
    ServiceMetric(
        LIMITED_LOCALLY, "counter", (), "requests limited by this host alone: Redis did not answer"
    ),
    ServiceMetric(QUERY_STREAMS, "gauge", (), "open streams of results of standing queries"),
)

ACCOUNT_METRICS = (
    ServiceMetric(
        ACCOUNT_EVENTS, "counter", ("account", "outcome"), "events of an account by outcome"
    ),
    ServiceMetric(ACCOUNT_BYTES, "counter", ("account",), "bytes of an account's accepted events"),
)


@dataclass(frozen=True, slots=True)
class SpoolMetric:
    """A metric of the spool of each topic, and its figure."""

    name: str
    kind: str
    meaning: str
    value: Callable[[SpoolStats], float]


SPOOL_METRICS = (
    SpoolMetric(
        "headrace_ingest_spool_events", "gauge", "events that wait on disk", attrgetter("records")
    ),
    SpoolMetric(
        "headrace_ingest_spool_bytes", "gauge", "bytes of their files", attrgetter("bytes")
    ),
    SpoolMetric(
        "headrace_ingest_spool_budget_bytes",
        "gauge",
        "bytes that the spool may take",
        attrgetter("budget_bytes"),
    ),
    SpoolMetric(
        "headrace_ingest_spool_oldest_seconds",
        "gauge",
        "age of the oldest of these files",
        lambda stats: stats.oldest_age.total_seconds(),
    ),
    SpoolMetric(
        "headrace_ingest_spool_rejected_total",
        "counter",
        "events quarantined because Kafka rejects them permanently",
        attrgetter("rejected"),
    ),
    SpoolMetric(
        "headrace_ingest_spool_missing_total",
        "counter",
        "events lost from the spool: damaged, or deleted with their file",
        attrgetter("missing"),
    ),
    SpoolMetric(
        "headrace_ingest_spool_quarantine_files",
        "gauge",
        "quarantined files, which wait for an operator",
        attrgetter("quarantined"),
    ),
)


def count_names(topics: Iterable[str], max_accounts: int = 0) -> Iterator[Labels]:
    """Returns the names of all counts there can be; accounts have numbers, from 0 on."""
    for status in STATUSES:
        yield REQUESTS, str(status)
    yield (LIMITED_LOCALLY,)
    yield (PRODUCER_QUEUE,)
    yield (QUERY_STREAMS,)
    for topic in topics:
        yield BYTES, topic
        yield from ((EVENTS, topic, outcome) for outcome in OUTCOMES)
        yield from ((REJECTIONS, topic, code) for code in (*EVENT_CODES, OTHER))
        yield from ((UNAVAILABLE, topic, code) for code in UNAVAILABLE_CODES)
    for slot in map(str, range(max_accounts + 1)):
        yield ACCOUNT_BYTES, slot
        yield from ((ACCOUNT_EVENTS, slot, outcome) for outcome in OUTCOMES)
    yield from ((LATENCY, str(limit)) for limit in (*SECONDS, "+Inf"))
    yield LATENCY, _MICROSECONDS


def count_latency(counters: Counters, seconds: float) -> None:
    """Counts a latency in its bucket alone; ``metric_lines`` adds the buckets up for Prometheus."""
    place = bisect_left(SECONDS, seconds)
    limit = str(SECONDS[place]) if place < len(SECONDS) else "+Inf"
    counters.add((LATENCY, limit))
    counters.add((LATENCY, _MICROSECONDS), int(seconds * 1_000_000))


def known_code(code: str) -> str:
    """Returns ``code`` if it has a figure of its own, else ``other``: labels must be bounded."""
    return code if code in EVENT_CODES else OTHER


def metric_lines(totals: Mapping[Labels, int]) -> Iterator[str]:
    """Returns the figures of the service in Prometheus' text format."""
    for metric in SERVICE_METRICS:
        yield f"# HELP {metric.name} {metric.meaning}"
        yield f"# TYPE {metric.name} {metric.kind}"
        if metric.kind == "histogram":
            yield from _histogram(totals)
            continue
        for labels, count in totals.items():
            if labels[0] == metric.name:
                yield _sample(metric, labels[1:], count)


def account_lines(
    totals: Mapping[Labels, int], accounts: Mapping[str, str], shared_slot: str
) -> Iterator[str]:
    """Returns Prometheus' text of the accounts that have a number, and of all others together.

    An account named like the word for all others adds nothing to it: its label has quotes.
    """
    names = {number: repr(name) if name == OTHER else name for number, name in accounts.items()}
    names[shared_slot] = OTHER
    for metric in ACCOUNT_METRICS:
        yield f"# HELP {metric.name} {metric.meaning}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for labels, count in totals.items():
            if labels[0] == metric.name and labels[1] in names:
                yield _sample(metric, (names[labels[1]], *labels[2:]), count)


def _sample(metric: ServiceMetric, values: Iterable[str], count: int) -> str:
    pairs = zip(metric.labels, values, strict=True)
    inner = ",".join(f'{name}="{escaped(value)}"' for name, value in pairs)
    return f"{metric.name}{{{inner}}} {count}" if inner else f"{metric.name} {count}"


def spool_lines(spools: Mapping[str, SpoolStats]) -> Iterator[str]:
    """Returns the figures of the spools in Prometheus' text format; all workers say the same."""
    for metric in SPOOL_METRICS if spools else ():
        yield f"# HELP {metric.name} {metric.meaning}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for topic, stats in spools.items():
            yield f'{metric.name}{{topic="{topic}"}} {metric.value(stats)}'


def _histogram(totals: Mapping[Labels, int]) -> Iterator[str]:
    count = 0
    for limit in (*SECONDS, "+Inf"):
        count += totals[LATENCY, str(limit)]
        yield f'{LATENCY}_bucket{{le="{limit}"}} {count}'
    yield f"{LATENCY}_sum {totals[LATENCY, _MICROSECONDS] / 1_000_000}"
    yield f"{LATENCY}_count {count}"
