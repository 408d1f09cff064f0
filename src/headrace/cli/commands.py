"""version: shows what is installed."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.cli.session import Session, command

if TYPE_CHECKING:
    from headrace.cli.views import Versions

# Those whose versions matter most in a report of a bug.
_PARTS = (
    "pyspark",
    "confluent-kafka",
    "deltalake",
    "polars",
    "pyarrow",
    "psycopg",
    "redis",
    "cassandra-driver",
)


@command("headrace version --json")
def version(_session: Session) -> Versions:
    """Show versions of headrace and of its dependencies."""
    from headrace.cli.views import Versions

    versions = {"headrace": __version__, "python": platform.python_version()}
    return Versions(versions | {name: _installed(name) for name in _PARTS})


def _installed(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return "not installed"
