"""dispatcher run, list, accept: sends records to the sites that want them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import REFUSED, Session, command, epilog, log_to_file
from headrace.runtime.logs import Subject

if TYPE_CHECKING:
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.dispatcher.declaration import Dispatcher
    from headrace.links.views import LinkStandings
    from headrace.model import TopicPartition


@click.group(epilog=epilog("Example", "headrace dispatcher run dispatch-clicks"))
def dispatcher() -> None:
    """Send records to other sites."""


@command("headrace dispatcher run dispatch-clicks --site warsaw")
@click.argument("name", metavar="DISPATCHER")
@click.option(
    "--site", "sites", multiple=True, help="Dispatch to this target alone; may be repeated."
)
@click.option("--once", is_flag=True, help="End when what the topic holds now is sent.")
@parameters.metrics_port
@parameters.metrics_host
@parameters.log_format
def run(  # noqa: PLR0913 - one for each option
    session: Session,
    name: str,
    *,
    sites: tuple[str, ...],
    once: bool,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
) -> None:
    """Run DISPATCHER until Ctrl-C or SIGTERM.

    Progress is shown. Each target has a query of its own in one Spark session: while a site does
    not respond, its query waits, and the others continue. One instance dispatches to a target; with
    --site, targets have processes of their own, on any machines.
    """
    from headrace.cli.service_run import run_service
    from headrace.links.dispatcher.declaration import Dispatcher
    from headrace.links.dispatcher.run import dispatcher_run
    from headrace.links.dispatcher.views import dispatching
    from headrace.service.run import RunOptions

    [declared] = session.declared(Dispatcher, name)
    for site in sites:
        _check_target(declared, site)
    log_to_file(session, log_format, Subject("dispatcher", name))
    options = RunOptions(metrics_host, metrics_port)
    instance = dispatcher_run(session.project, declared, options, sites, once=once)
    run_service(session, instance, dispatching, name)


@command("headrace dispatcher list --json", name="list")
def list_(session: Session) -> LinkStandings:
    """Show lag and refused partitions of each dispatcher, by target.

    The exit code is 3 when a site does not respond, or a partition is refused.
    """
    from headrace.links.dispatcher.declaration import Dispatcher
    from headrace.links.dispatcher.standing import route_standings
    from headrace.links.views import LinkStandings

    standings = tuple(
        standing
        for declared in session.declared(Dispatcher)
        for standing in route_standings(session.project, declared)
    )
    if any(standing.reasons for standing in standings):
        session.exit_code = REFUSED
    return LinkStandings("dispatcher", standings)


@command("headrace dispatcher accept dispatch-clicks warsaw clicks/3")
@click.argument("name", metavar="DISPATCHER")
@click.argument("site", metavar="SITE")
@click.argument("partition", type=parameters.PartitionName(), metavar="TOPIC/PARTITION")
def accept(session: Session, name: str, site: str, partition: TopicPartition) -> AcceptedLoss:
    """Accept that records of a partition are not sent to SITE.

    It continues after them, with the first record that the source has. A running instance does so
    within half a minute. Refused (exit code 3) if nothing of it is lost.
    """
    from headrace.links.dispatcher.declaration import Dispatcher
    from headrace.links.dispatcher.standing import accept_loss

    [declared] = session.declared(Dispatcher, name)
    _check_target(declared, site)
    if partition.topic != declared.source.name:
        message = f"{name} does not read {partition.topic!r}: {declared.source.name}"
        raise click.BadParameter(message)
    return accept_loss(session.project, declared, site, partition)


def _check_target(declared: Dispatcher, site: str) -> None:
    if site not in declared.targets:
        known = ", ".join(declared.targets)
        raise click.BadParameter(f"{declared.name} does not dispatch to {site!r}: {known}")


for subcommand in (run, list_, accept):
    dispatcher.add_command(subcommand)
