"""The ``headrace`` command."""

from __future__ import annotations

import click

from headrace import __version__
from headrace.cli.commands import pipelines, project, services
from headrace.cli.commands.dead_letters import dead_letters
from headrace.cli.commands.dispatchers import dispatcher
from headrace.cli.commands.ingest import ingest, tokens
from headrace.cli.commands.ledger import reconcile
from headrace.cli.commands.mergers import merger
from headrace.cli.commands.mirrors import mirror
from headrace.cli.commands.offline_files import load_offline_files
from headrace.cli.commands.profiles import profile
from headrace.cli.commands.queries import query
from headrace.cli.commands.reprocess import reprocess
from headrace.cli.commands.sites import sites
from headrace.cli.commands.size import size
from headrace.cli.commands.spool import spool
from headrace.cli.commands.topics import produce, tail
from headrace.cli.commands.version import version
from headrace.cli.commands.workers import workers
from headrace.cli.session import EXIT_CODES, epilog

_EXAMPLE = "headrace init ads && cd ads\nheadrace up && headrace apply && headrace run"
_CODES = "\n".join(f"{code:>3}  {text}" for code, text in EXIT_CODES.items())


@click.group(
    epilog=f"{epilog('Example', _EXAMPLE)}\n\n{epilog('Exit codes', _CODES)}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """Real-time event pipelines in Python, on Kafka and PySpark."""


for subcommand in (
    project.init,
    project.check,
    project.plan,
    project.apply,
    services.up,
    services.down,
    services.status,
    produce,
    tail,
    ingest,
    tokens,
    spool,
    load_offline_files,
    size,
    pipelines.run,
    pipelines.pause,
    pipelines.resume,
    pipelines.compact,
    pipelines.checkpoint,
    reprocess,
    reconcile,
    workers,
    mirror,
    profile,
    merger,
    dispatcher,
    sites,
    query,
    dead_letters,
    version,
):
    main.add_command(subcommand)
