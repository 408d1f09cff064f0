"""The table ``[ingest]`` of headrace.toml."""

from __future__ import annotations

import re

from headrace.settings.document import Table
from headrace.settings.model import ANY_ORIGIN, IngestSettings, Rate, Secret, SecretUrl

# redis-py checks no more than the scheme.
_REDIS = re.compile(
    r"rediss?://(?:[^\s:@/?#]*(?::[^\s@/?#]*)?@)?"
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:@/?#\[\]]+)(?::(?P<port>\d{1,5}))?(?:/\d*)?"
)
# A password in the text itself; one that `${VAR}` stands for is none.
PASSWORD = re.compile(r"//.*:(?!\$\{\w+\}@).+@")
_MAX_EVENTS = 10_000
# Each account is several time series of Prometheus, for every host.
_MAX_ACCOUNTS = 10_000
_MIN_KEY_CHARACTERS = 32
_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s/?#]+)*")
# Origins are compared as text, so one that a browser would write otherwise never matches.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?")


def ingest_settings(ingest: Table) -> IngestSettings:
    """Returns the settings of the HTTP service; problems are reported to the table's document."""
    default, limits, spool = IngestSettings(), ingest.table("limits"), ingest.table("spool")
    access_log = ingest.table("access_log")
    settings = IngestSettings(
        host=ingest.text("host", default.host),
        port=ingest.integer("port", default.port, most=65_535),
        workers=ingest.integer("workers", default.workers),
        deadline_seconds=ingest.positive("deadline_seconds", default.deadline_seconds),
        max_body_bytes=ingest.integer("max_body_bytes", default.max_body_bytes),
        max_decoded_bytes=ingest.integer("max_decoded_bytes", default.max_decoded_bytes),
        max_ratio=ingest.integer("max_ratio", default.max_ratio),
        max_events=ingest.integer("max_events", default.max_events, most=_MAX_EVENTS),
        max_header_bytes=ingest.integer("max_header_bytes", default.max_header_bytes),
        max_depth=ingest.integer("max_depth", default.max_depth),
        max_keys=ingest.integer("max_keys", default.max_keys),
        max_string_bytes=ingest.integer("max_string_bytes", default.max_string_bytes),
        header_seconds=ingest.positive("header_seconds", default.header_seconds),
        body_seconds=ingest.positive("body_seconds", default.body_seconds),
        max_connections=ingest.integer("max_connections", default.max_connections),
        max_memory_bytes=ingest.integer("max_memory_bytes", default.max_memory_bytes),
        linger_seconds=ingest.positive("linger_seconds", default.linger_seconds),
        drain_seconds=ingest.positive("drain_seconds", default.drain_seconds),
        token_rate=_rate(limits, "token"),
        account_rate=_rate(limits, "account"),
        burst_seconds=limits.positive("burst_seconds", default.burst_seconds),
        redis=_redis(ingest),
        public_url=_public_url(ingest),
        webhook_key=_webhook_key(ingest),
        cors_origins=_origins(ingest),
        metrics_accounts=ingest.integer(
            "metrics_accounts", default.metrics_accounts, least=0, most=_MAX_ACCOUNTS
        ),
        access_log=access_log.choice("format", ("json", "text")),
        access_log_lines_per_second=access_log.integer(
            "lines_per_second", default.access_log_lines_per_second
        ),
        spool_segment_bytes=spool.integer("segment_bytes", default.spool_segment_bytes),
        spool_segment_seconds=spool.positive("segment_seconds", default.spool_segment_seconds),
        spool_budget_bytes=spool.integer("budget_bytes", default.spool_budget_bytes),
    )
    _check_together(ingest, settings)
    return settings


def _check_together(ingest: Table, settings: IngestSettings) -> None:
    """Reports values of which each is allowed, and all of them together are not."""
    if settings.max_decoded_bytes < settings.max_body_bytes:
        ingest.report(
            "max_decoded_bytes", "ingest.max_decoded_bytes is below ingest.max_body_bytes"
        )
    if settings.max_memory_bytes < settings.max_body_bytes + settings.max_decoded_bytes:
        ingest.report(
            "max_memory_bytes",
            "ingest.max_memory_bytes is below ingest.max_body_bytes and ingest.max_decoded_bytes",
        )
    # Every request would wait longer for others than it may take: all answers would be 503.
    if settings.linger_seconds >= settings.deadline_seconds:
        ingest.report(
            "linger_seconds", "ingest.linger_seconds is not below ingest.deadline_seconds"
        )


def _redis(ingest: Table) -> SecretUrl | None:
    text = ingest.secret_text("redis", PASSWORD)
    if text is None:
        return None
    url = SecretUrl(text)
    if not is_redis_server(text):
        ingest.report(
            "redis",
            f"ingest.redis is {str(url)!r}",
            "redis://host:6379/0 or rediss:// for TLS, user and password percent-encoded",
        )
    return url


def _public_url(ingest: Table) -> str:
    url = ingest.text("public_url")
    if url and not _URL.fullmatch(url):
        ingest.report(
            "public_url",
            f"ingest.public_url is {url!r}",
            "scheme, host and path, without a slash at the end: https://events.example.com/ingest",
        )
    return url


def _webhook_key(ingest: Table) -> Secret | None:
    key = ingest.secret("webhook_key")
    if key is not None and len(key.reveal()) < _MIN_KEY_CHARACTERS:
        ingest.report(
            "webhook_key",
            f"ingest.webhook_key has less than {_MIN_KEY_CHARACTERS} characters",
            "make one: openssl rand -base64 32",
        )
    return key


def _origins(ingest: Table) -> tuple[str, ...]:
    origins = ingest.texts("cors_origins")
    for origin in origins:
        if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(origin):
            ingest.report(
                "cors_origins",
                f"ingest.cors_origins has {origin!r}, which no browser sends as an origin",
                "scheme and host in lower case, no path, a port only where it is not the scheme's "
                "default: https://shop.example.com",
            )
    if ANY_ORIGIN in origins and len(origins) > 1:
        ingest.report("cors_origins", "ingest.cors_origins has '*' beside others", 'write ["*"]')
    return origins


def is_redis_server(url: str) -> bool:
    """Returns whether a URL without options names a server of Redis: host, port and database."""
    match = _REDIS.fullmatch(url)
    return match is not None and 0 < int(match["port"] or 1) < 1 << 16


def _rate(limits: Table, whose: str) -> Rate:
    return Rate(
        events_per_second=limits.positive_or_none(f"{whose}_events_per_second"),
        bytes_per_second=limits.positive_or_none(f"{whose}_bytes_per_second"),
    )
