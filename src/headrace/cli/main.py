"""The ``headrace`` command."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

import click

from headrace import __version__
from headrace.cli.session import EXIT_CODES, epilog
from headrace.runtime.clock import use_utc

_EXAMPLE = "headrace init ads && cd ads\nheadrace up && headrace apply && headrace run"
_CODES = "\n".join(f"{code:>3}  {text}" for code, text in EXIT_CODES.items())
_MODULES = {
    "operations.commands": ("init", "check"),
    "operations.planning.commands": ("plan", "apply"),
    "operations.servers.commands": ("up", "down", "status"),
    "ingest.producing.commands": ("produce",),
    "topics.commands": ("tail",),
    "ingest.commands": ("ingest", "tokens"),
    "ingest.spool.commands": ("spool",),
    "offline_files.commands": ("load-offline-files",),
    "operations.sizing.commands": ("size",),
    "pipelines.commands": ("run", "pause", "resume", "compact", "checkpoint"),
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
    "cli.commands": ("version",),
}
_MODULE_OF = {command: module for module, commands in _MODULES.items() for command in commands}


class _Commands(Mapping[str, click.Command]):
    """The commands by name; the module of one is imported when it is used."""

    def __getitem__(self, name: str) -> click.Command:
        module = importlib.import_module(f"headrace.{_MODULE_OF[name]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULE_OF)

    def __len__(self) -> int:
        return len(_MODULE_OF)


@click.group(
    commands=_Commands(),
    epilog=f"{epilog('Example', _EXAMPLE)}\n\n{epilog('Exit codes', _CODES)}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """Real-time event pipelines in Python, on Kafka and PySpark."""
    use_utc()
