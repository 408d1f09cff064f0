"""headrace.toml to :class:`Settings`: everything checked, all problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from headrace.errors import Problem, ProjectError
from headrace.settings.document import Document, Table
from headrace.settings.ingest import PASSWORD, ingest_settings
from headrace.settings.kafka import kafka_settings
from headrace.settings.kafka_clients import declared_clients
from headrace.settings.model import (
    STATE_FOLDER,
    KafkaSettings,
    LedgerSettings,
    RestartSettings,
    Secret,
    Settings,
    SparkSettings,
)
from headrace.settings.s3 import s3_settings
from headrace.settings.schema_registry import schema_registry_settings

PROJECT_FILE = "headrace.toml"
MASTERS = "local[*], local[4], or spark://host:7077 of a standalone cluster"
EMBEDDED_HDFS = "embedded-hdfs"

# `?`, `#` and `%` are part of a key or a path for some clients, and not for those that parse a URL.
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]+(/[^?#%\x00-\x1f]*)?$")
_HDFS = re.compile(r"hdfs://[^?#%\x00-\x1f]*")
# The client of Delta reads these in the path of a folder as another character.
_NOT_IN_LAKES = re.compile(r"%[0-9A-Fa-f]{2}|\\")
# `:` ends a path in a class path, and Java can't decode its own URLs of what is beyond U+FFFF.
_NOT_IN_CLASS_PATHS = re.compile("[:\U00010000-\U0010ffff]")
_NOT_IN_PATHS = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# It is a part of the names of topics, and of an address of records.
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SITE_LETTERS = "up to 63 letters, digits, '_' and '-'"
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
    settings, problems = read_settings(folder, environ)
    if problems:
        raise ProjectError(problems)
    return settings


def read_settings(folder: Path, environ: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
    """Returns the settings as far as they can be read, and every problem in the file, by line.

    Nothing may run with settings that have problems.

    Raises:
        ProjectError: if the file is missing, or is not TOML.
    """
    root = folder.resolve()
    document = Document.read(root / PROJECT_FILE, environ)
    top = document.root()
    project = top.table("project")
    lake = _lake(project, root)
    ingest = ingest_settings(top.table("ingest"))
    own_site = _site(project)
    sites, longest_cuts = _sites(top.table("sites"), root, own_site)
    settings = Settings(
        root=root,
        name=_name(project),
        modules=_modules(project),
        lake=lake,
        kafka=kafka_settings(top.table("kafka"), root),
        site=own_site,
        sites=sites,
        longest_cuts=longest_cuts,
        spark=_spark(top.table("spark")),
        restart=_restart(top.table("restart")),
        sinks=_sinks(top.table("sinks")),
        s3=s3_settings(top.table("s3"), environ),
        embedded_hdfs=lake == EMBEDDED_HDFS,
        checkpoints=_checkpoints(project, root),
        ledger=_ledger(top.table("ledger")),
        clients=declared_clients(top),
        ingest=ingest if "ingest" in top else None,
        schema_registry=schema_registry_settings(
            top.table("schema_registry"), root, is_given="schema_registry" in top
        ),
    )
    _check_folder(document, settings)
    # Last: only now is it known which keys nothing has asked for.
    problems = document.finish()
    return replace(settings, unset=tuple(document.unset)), problems


def find_project(start: Path) -> Path | None:
    """The nearest folder from ``start`` upwards that holds a headrace.toml."""
    folders = (start.resolve(), *start.resolve().parents)
    return next((folder for folder in folders if (folder / PROJECT_FILE).is_file()), None)


def _check_folder(document: Document, settings: Settings) -> None:
    """Reports a folder that a program which gets its path would take for another one."""
    root = str(settings.root)
    if (forbidden := _NOT_IN_PATHS.search(root)) is not None:
        reason = f"{forbidden[0]!r} is no character of a name"
    elif (forbidden := _NOT_IN_CLASS_PATHS.search(root)) is not None:
        reason = f"Java takes no {forbidden[0]!r} in a class path"
    elif "," in root and not settings.kafka.bootstrap_servers:
        reason = "the embedded broker takes ',' for the end of a path"
    else:
        return
    document.report((), f"the project is in {root!r}: {reason}", "rename the folder")


def _name(project: Table) -> str:
    name = project.required("name")
    if name and not _NAME.fullmatch(name):
        project.report("name", f"project.name {name!r} may hold letters, digits, '.', '_', '-'")
    return name


def _modules(project: Table) -> tuple[str, ...]:
    modules = project.required_texts(
        "modules", "project.modules names no module", 'such as modules = ["flow"]'
    )
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
    if lake == EMBEDDED_HDFS or _HDFS.fullmatch(lake) or _BUCKET.match(lake):
        return lake.rstrip("/")
    if not lake or _is_no_folder(lake):
        unsupported = "; other object stores and viewfs are not supported" if lake else ""
        remedy = (
            "a folder, `hdfs://...` or `s3://bucket/prefix` without '?', '#' and '%', or "
            f"`embedded-hdfs`{unsupported}"
        )
        project.report("lake", f"project.lake is {lake!r}", remedy)
        return ""
    folder = str((root / lake).resolve())
    if (misread := _NOT_IN_LAKES.search(folder)) is not None:
        message = (
            f"project.lake is {folder!r}: Delta's client takes {misread[0]!r} for something else"
        )
        project.report("lake", message, "a folder without it in its path")
    return folder


def _checkpoints(project: Table, root: Path) -> str:
    checkpoints = project.text("checkpoints")
    if not checkpoints or _HDFS.fullmatch(checkpoints):
        return checkpoints.rstrip("/")
    if _is_no_folder(checkpoints):
        remedy = (
            "a folder, or `hdfs://...` without '?', '#' and '%': Spark writes them with Hadoop's "
            "client"
        )
        project.report("checkpoints", f"project.checkpoints is {checkpoints!r}", remedy)
        return ""
    return str((root / checkpoints).resolve())


def _is_no_folder(text: str) -> bool:
    return "://" in text or _NOT_IN_PATHS.search(text) is not None


def _site(project: Table) -> str:
    site = project.text("site", Settings.site)
    if not _SITE.fullmatch(site):
        project.report("site", f"project.site is {site!r}", _SITE_LETTERS)
    return site


def _sites(sites: Table, root: Path, own: str) -> tuple[dict[str, KafkaSettings], dict[str, float]]:
    """The clusters of other sites, and the longest cuts of those that say one."""
    for name in sites.names:
        if not _SITE.fullmatch(name):
            sites.report(name, f"{name!r} is no name of a site", _SITE_LETTERS)
        if name == own:
            sites.report(name, f"site {name!r} is the project's own", "[kafka] is its cluster")
    tables = {name: sites.table(name) for name in sites.names}
    hours = {name: site.positive_or_none("longest_cut_hours") for name, site in tables.items()}
    return (
        {name: kafka_settings(site.table("kafka"), root) for name, site in tables.items()},
        {name: length for name, length in hours.items() if length is not None},
    )


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
        max_delay_seconds=restart.positive("max_delay_seconds", RestartSettings.max_delay_seconds),
    )
    if settings.max_delay_seconds < settings.first_delay_seconds:
        restart.report(
            "max_delay_seconds",
            "restart.max_delay_seconds is shorter than restart.first_delay_seconds",
        )
    return settings


def _ledger(ledger: Table) -> LedgerSettings:
    window_seconds = ledger.integer("window_seconds", LedgerSettings.window_seconds)
    lengths = LedgerSettings.WINDOW_SECONDS
    if window_seconds not in lengths:
        remedy = f"one of {', '.join(map(str, lengths))}"
        ledger.report("window_seconds", f"ledger.window_seconds is {window_seconds}", remedy)
    enabled = ledger.boolean("enabled", default=LedgerSettings.enabled)
    return LedgerSettings(enabled, window_seconds)


def _sinks(sinks: Table) -> dict[str, dict[str, Secret]]:
    """Any keys: each sink knows its own. Every value may be a secret, and is kept as one."""
    return {kind: _sink(sinks.table(kind)) for kind in sinks.names}


def _sink(sink: Table) -> dict[str, Secret]:
    """Returns the settings of a sink; those of a table within it have dotted names."""
    tables = [name for name in sink.names if sink.is_table(name)]
    # Which keys there are is known to the sink alone, so all of them count as known here.
    texts = {name: sink.secret_text(name, PASSWORD) for name in sink.names if name not in tables}
    settings = {name: Secret(text) for name, text in texts.items() if text is not None}
    for table in tables:
        within = _sink(sink.table(table))
        settings |= {f"{table}.{name}": value for name, value in within.items()}
    return settings
