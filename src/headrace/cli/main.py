"""The ``headrace`` command, and `version`, which shows what is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from headrace import __version__
from headrace.cli.session import EXIT_CODES, INTERRUPTED, Session, command, epilog
from headrace.runtime.clock import use_utc

if TYPE_CHECKING:
    from headrace.cli.view import Versions

_EXAMPLE = "headrace init ads && cd ads\nheadrace up && headrace apply && headrace run"
_CODES = "\n".join(f"{code:>3}  {text}" for code, text in EXIT_CODES.items())
_MODULES = {
    "operations.commands": ("init", "check"),
    "operations.planning.commands": ("plan", "apply"),
    "operations.servers.commands": ("up", "down", "status"),
    "ingest.producing.commands": ("produce",),
    "topics.commands": ("tail",),
    "links.change.commands": ("topics",),
    "ingest.commands": ("ingest", "tokens"),
    "ingest.spool.commands": ("spool",),
    "offline_files.commands": ("load-offline-files",),
    "operations.sizing.commands": ("size",),
    "operations.measuring.commands": ("measure",),
    "operations.drilling.commands": ("drill",),
    "pipelines.commands": ("run", "pause", "resume", "compact", "checkpoint"),
    "pipelines.standby.commands": ("handover",),
    "pipelines.reprocessing.commands": ("reprocess",),
    "operations.reconciling.commands": ("reconcile",),
    "workers.commands": ("workers",),
    "links.mirror.commands": ("mirror",),
    "pipelines.profiles.commands": ("profile",),
    "links.merger.commands": ("merger",),
    "links.dispatcher.commands": ("dispatcher",),
    "links.sites.commands": ("sites",),
    "queries.commands": ("query",),
    "topics.dead_letters.commands": ("dead-letters",),
    "cli.main": ("version",),
}
_MODULE_OF = {command: module for module, commands in _MODULES.items() for command in commands}

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


class _Commands(Mapping[str, click.Command]):
    """The commands by name; the module of one is imported when it is used."""

    def __getitem__(self, name: str) -> click.Command:
        module = importlib.import_module(f"headrace.{_MODULE_OF[name]}")
        named: click.Command = getattr(module, name.replace("-", "_"))
        return named

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULE_OF)

    def __len__(self) -> int:
        return len(_MODULE_OF)


class _Group(click.Group):
    """The commands, which Ctrl-C ends with the code of a command also before one has started.

    Click would end with 1 and the word "Aborted!", as after a question that is not answered.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(
    cls=_Group,
    commands=_Commands(),
    epilog=f"{epilog('Example', _EXAMPLE)}\n\n{epilog('Exit codes', _CODES)}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """Real-time event pipelines in Python, on Kafka and PySpark."""
    use_utc()


@command("headrace version --json")
def version(_session: Session) -> Versions:
    """Show versions of headrace and of its dependencies."""
    import platform

    from headrace.cli.view import Versions

    versions = {"headrace": __version__, "python": platform.python_version()}
    return Versions(versions | {name: _installed(name) for name in _PARTS})


def _installed(package: str) -> str:
    # Inside: it imports much, and no other command needs it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
