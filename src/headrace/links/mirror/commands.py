"""mirror run, list, accept: copies topics of other sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import REFUSED, Session, command, epilog, log_to_file
from headrace.runtime.logs import Subject

if TYPE_CHECKING:
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.views import LinkStandings
    from headrace.model import TopicPartition


@click.group(epilog=epilog("Example", "headrace mirror run warsaw"))
def mirror() -> None:
    """Copy topics of other sites."""


@command("headrace mirror run warsaw --metrics-port 9400")
@click.argument("name", metavar="MIRROR")
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
    """Run an instance of MIRROR until Ctrl-C or SIGTERM.

    Progress is shown. Start as many instances as you need, on any machines: they share the
    partitions. While a site does not respond, the instance waits. A partition whose source has lost
    what comes next, or whose next record the copy does not take, is refused; others continue,
    and `headrace mirror list` says why.
    """
    from headrace.cli.service_run import run_service
    from headrace.links.mirror.declaration import Mirror
    from headrace.links.mirror.run import mirror_run
    from headrace.links.mirror.views import mirroring
    from headrace.service.run import RunOptions

    [declared] = session.declared(Mirror, name)
    log_to_file(session, log_format, Subject("mirror", name))
    options = RunOptions(metrics_host, metrics_port)
    instance = mirror_run(session.project, declared, options)
    run_service(session, instance, mirroring, name)


@command("headrace mirror list --json", name="list")
def list_(session: Session) -> LinkStandings:
    """Show instances, lag and refused partitions of each mirror.

    The exit code is 3 when a site does not respond, or a partition is refused.
    """
    from headrace.links.mirror.declaration import Mirror
    from headrace.links.mirror.standing import mirror_standing
    from headrace.links.views import LinkStandings

    mirrors = session.declared(Mirror)
    standings = tuple(mirror_standing(session.settings, declared) for declared in mirrors)
    if any(standing.reasons for standing in standings):
        session.exit_code = REFUSED
    return LinkStandings("mirror", standings)


@command("headrace mirror accept warsaw clicks/3")
@click.argument("name", metavar="MIRROR")
@click.argument("partition", type=parameters.PartitionName(), metavar="TOPIC/PARTITION")
@click.option(
    "--to",
    type=click.IntRange(min=0),
    help="The next offset to mirror, instead of the first that the source has.",
)
def accept(
    session: Session, name: str, partition: TopicPartition, *, to: int | None
) -> AcceptedLoss:
    """Accept that records of a partition are lost.

    It continues after them, with the first record that the source has. TOPIC is the source's name.
    Refused (exit code 3) while an instance runs, and if nothing of it is lost. With --to, records
    are left out that the source still has.
    """
    from headrace.links.mirror.declaration import Mirror
    from headrace.links.mirror.standing import accept_loss

    [declared] = session.declared(Mirror, name)
    if partition.topic not in declared.topics:
        known = ", ".join(declared.topics)
        raise click.BadParameter(f"{name} does not mirror {partition.topic!r}: {known}")
    return accept_loss(session.settings, declared, partition, to)


for subcommand in (run, list_, accept):
    mirror.add_command(subcommand)
