"""merger run, list, accept: merges topics of several sites into one that is sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import REFUSED, Session, command, epilog, log_to_file
from headrace.runtime.logs import Subject

if TYPE_CHECKING:
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.merger.views import MergerStandings
    from headrace.model import TopicPartition


@click.group(epilog=epilog("Example", "headrace merger run clicks"))
def merger() -> None:
    """Merge topics of several sites into a sorted one."""


@command("headrace merger run clicks --metrics-port 9400")
@click.argument("name", metavar="MERGER")
@parameters.metrics_port
@parameters.metrics_host
@parameters.log_format
def run(
    session: Session,
    name: str,
    *,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
) -> None:
    """Run an instance of MERGER until Ctrl-C or SIGTERM.

    Progress is shown. Start as many instances as you need, on any machines: they share the
    partitions, and each partition waits for its own sources alone. A partition of which a source
    has lost what comes next is refused; others continue, and `headrace merger list` says why.
    """
    from headrace.cli.service_run import run_service
    from headrace.links.merger.declaration import Merger
    from headrace.links.merger.run import merger_run
    from headrace.links.merger.views import merging
    from headrace.service.run import RunOptions

    [declared] = session.declared(Merger, name)
    log_to_file(session, log_format, Subject("merger", name))
    options = RunOptions(metrics_host, metrics_port)
    instance = merger_run(session.project, declared, options)
    run_service(session, instance, merging, name)


@command("headrace merger list --json", name="list")
def list_(session: Session) -> MergerStandings:
    """Show instances, lag and refused partitions of each merger.

    The exit code is 3 when a partition is refused.
    """
    from headrace.links.merger.declaration import Merger
    from headrace.links.merger.standing import merger_standing
    from headrace.links.merger.views import MergerStandings

    mergers = session.declared(Merger)
    standings = tuple(merger_standing(session.project, declared) for declared in mergers)
    if any(standing.reasons for standing in standings):
        session.exit_code = REFUSED
    return MergerStandings("merger", standings)


@command("headrace merger accept clicks warsaw.clicks/3")
@click.argument("name", metavar="MERGER")
@click.argument("partition", type=parameters.PartitionName(), metavar="TOPIC/PARTITION")
def accept(session: Session, name: str, partition: TopicPartition) -> AcceptedLoss:
    """Accept that records of a source are lost.

    TOPIC is a source of MERGER. It continues after them, with the first record that it has.
    Refused (exit code 3) while an instance runs, and if nothing of it is lost.
    """
    from headrace.links.merger.declaration import Merger
    from headrace.links.merger.standing import accept_loss

    [declared] = session.declared(Merger, name)
    sources = [topic.name for topic in declared.sources]
    if partition.topic not in sources:
        known = ", ".join(sources)
        raise click.BadParameter(f"{name} does not merge {partition.topic!r}: {known}")
    return accept_loss(session.project, declared, partition)


for subcommand in (run, list_, accept):
    merger.add_command(subcommand)
