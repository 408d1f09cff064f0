"""headrace.toml to :class:`Settings`: everything checked, all problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from headrace.settings.document import Document, Table
from headrace.settings.kafka import kafka_settings
from headrace.settings.model import (
    STATE_FOLDER,
    IngestSettings,
    Rate,
    RestartSettings,
    SecretUrl,
    Settings,
    SparkSettings,
)

PROJECT_FILE = "headrace.toml"
MASTERS = "local[*], local[4], or spark://host:7077 of a standalone cluster"
EMBEDDED_HDFS = "embedded-hdfs"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REDIS = re.compile(
    r"rediss?://(?:[^\s:@/?#]*(?::[^\s@/?#]*)?@)?"
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:@/?#\[\]]+)(?::(?P<port>\d{1,5}))?(?:/\d*)?"
)
_PASSWORD = re.compile(r"//.*:(?!\$\{\w+\}@).+@")
_MOST_EVENTS = 10_000
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def environment() -> Mapping[str, str]:
    """The process's environment; the only place that reads it."""
    return os.environ


def load_settings(folder: Path, environ: Mapping[str, str]) -> Settings:
    """Settings of the project in ``folder``, from its headrace.toml.

    ``${VAR}`` and ``${VAR:-default}`` in strings are taken from ``environ``.

    Raises:
        ProjectError: every problem in the file, each with its line.
    """
    root = folder.resolve()
    document = Document.read(root / PROJECT_FILE, environ)
    top = document.root()
    project = top.table("project")
    lake = _lake(project, root)
    ingest = _ingest(top.table("ingest"))
    settings = Settings(
        root=root,
        name=_name(project),
        modules=_modules(project),
        lake=lake,
        kafka=kafka_settings(top.table("kafka"), root),
        spark=_spark(top.table("spark")),
        restart=_restart(top.table("restart")),
        embedded_hdfs=lake == EMBEDDED_HDFS,
        ingest=ingest if "ingest" in top else None,
    )
    document.finish()
    return settings


def find_project(start: Path) -> Path | None:
    """The nearest folder from ``start`` upwards that holds a headrace.toml."""
    folders = (start.resolve(), *start.resolve().parents)
    return next((folder for folder in folders if (folder / PROJECT_FILE).is_file()), None)


def _name(project: Table) -> str:
    name = project.required("name")
    if name and not _NAME.fullmatch(name):
        project.report("name", f"project.name {name!r} may hold letters, digits, '.', '_', '-'")
    return name


def _modules(project: Table) -> tuple[str, ...]:
    modules = project.texts("modules")
    if not modules:
        project.report("modules", "project.modules names no module", 'such as modules = ["flow"]')
    for module in modules:
        if not _MODULE.fullmatch(module):
            project.report(
                "modules",
                f"{module!r} is not a module's name",
                "write `flow` for flow.py, `flows.ads` for flows/ads.py",
            )
    return modules


def _lake(project: Table, root: Path) -> str:
    lake = project.text("lake", f"{STATE_FOLDER}/lake")
    if lake == EMBEDDED_HDFS or lake.startswith("hdfs://"):
        return lake.rstrip("/")
    if "://" in lake or not lake:
        unsupported = "; object stores and viewfs are not supported" if "://" in lake else ""
        way_out = f"a folder, `hdfs://...`, or `embedded-hdfs`{unsupported}"
        project.report("lake", f"project.lake is {lake!r}", way_out)
    return str((root / lake).resolve())


def _spark(spark: Table) -> SparkSettings:
    config = spark.table("config")
    settings = SparkSettings(master=_master(spark), config=config.flat())
    for name, value in settings.config.items():
        if not name.startswith("spark."):
            config.report(name, f"unknown key spark.config.{name}", "Spark's names begin `spark.`")
        if name.startswith("spark.kerberos.") or value.lower() == "kerberos":
            config.report(name, f"spark.config.{name}: Kerberos is not supported")
    return settings


def _master(spark: Table) -> str:
    master = spark.text("master", SparkSettings.master)
    if (problem := master_problem(master)) is not None:
        spark.report("master", f"spark.master is {master!r}: {problem}", MASTERS)
    return master


def master_problem(master: str) -> str | None:
    """Why pipelines can't run on a master of Spark's; ``None``: they can."""
    if re.match(r"yarn\b|k8s://|mesos://", master):
        return "YARN, Kubernetes and Mesos are not supported as masters"
    return None if re.match(r"local(\[.+\])?$|spark://", master) else "no master of Spark's"


def _restart(restart: Table) -> RestartSettings:
    settings = RestartSettings(
        budget=restart.integer("budget", RestartSettings.budget, least=0),
        first_delay_seconds=restart.positive(
            "first_delay_seconds", RestartSettings.first_delay_seconds
        ),
        longest_delay_seconds=restart.positive(
            "longest_delay_seconds", RestartSettings.longest_delay_seconds
        ),
    )
    if settings.longest_delay_seconds < settings.first_delay_seconds:
        restart.report(
            "longest_delay_seconds",
            "restart.longest_delay_seconds is shorter than restart.first_delay_seconds",
        )
    return settings


def _ingest(ingest: Table) -> IngestSettings:
    default, limits, spool = IngestSettings(), ingest.table("limits"), ingest.table("spool")
    settings = IngestSettings(
        host=ingest.text("host", default.host),
        port=ingest.integer("port", default.port, most=65_535),
        workers=ingest.integer("workers", default.workers),
        deadline_seconds=ingest.positive("deadline_seconds", default.deadline_seconds),
        max_body_bytes=ingest.integer("max_body_bytes", default.max_body_bytes),
        max_decoded_bytes=ingest.integer("max_decoded_bytes", default.max_decoded_bytes),
        max_ratio=ingest.integer("max_ratio", default.max_ratio),
        max_events=ingest.integer("max_events", default.max_events, most=_MOST_EVENTS),
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
        spool_segment_bytes=spool.integer("segment_bytes", default.spool_segment_bytes),
        spool_segment_seconds=spool.positive("segment_seconds", default.spool_segment_seconds),
        spool_budget_bytes=spool.integer("budget_bytes", default.spool_budget_bytes),
    )
    if settings.max_decoded_bytes < settings.max_body_bytes:
        ingest.report(
            "max_decoded_bytes", "ingest.max_decoded_bytes is below ingest.max_body_bytes"
        )
    if settings.max_memory_bytes < settings.max_body_bytes + settings.max_decoded_bytes:
        ingest.report(
            "max_memory_bytes",
            "ingest.max_memory_bytes is below ingest.max_body_bytes and ingest.max_decoded_bytes",
        )
    if settings.linger_seconds >= settings.deadline_seconds:
        ingest.report(
            "linger_seconds", "ingest.linger_seconds is not below ingest.deadline_seconds"
        )
    return settings


def _redis(ingest: Table) -> SecretUrl | None:
    text = ingest.secret_text("redis", _PASSWORD)
    if text is None:
        return None
    url = SecretUrl(text)
    if not _is_redis(text):
        ingest.report(
            "redis",
            f"ingest.redis is {str(url)!r}",
            "redis://host:6379/0 or rediss:// for TLS, user and password percent-encoded",
        )
    return url


def _is_redis(url: str) -> bool:
    found = _REDIS.fullmatch(url)
    return found is not None and 0 < int(found["port"] or 1) < 1 << 16


def _rate(limits: Table, whose: str) -> Rate:
    return Rate(
        events_per_second=limits.positive_or_none(f"{whose}_events_per_second"),
        bytes_per_second=limits.positive_or_none(f"{whose}_bytes_per_second"),
    )
