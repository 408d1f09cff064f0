"""dispatcher run, list, accept: sends records to the sites that want them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from headrace.cli.session import epilog
from headrace.links.commands import LinkRun, link_command, refuse_unknown

if TYPE_CHECKING:
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.dispatcher.declaration import Dispatcher
    from headrace.links.views import LinkStandings
    from headrace.model import TopicPartition
    from headrace.project.loaded import LoadedProject


@click.group(epilog=epilog("Example", "headrace dispatcher run dispatch-clicks"))
def dispatcher() -> None:
    """Send records to other sites."""


@link_command(dispatcher, "dispatch-clicks --site warsaw")
@click.option(
    "--site", "sites", multiple=True, help="Dispatch to this target alone; may be repeated."
)
@click.option("--once", is_flag=True, help="End when what the topic holds now is sent.")
def run(
    project: LoadedProject, declared: Dispatcher, *, sites: tuple[str, ...], once: bool
) -> LinkRun:
    """Run DISPATCHER until Ctrl-C or SIGTERM.

    Progress is shown. Each target has a query of its own in one Spark session: while a site does
    not respond, its query waits, and the others continue. One instance dispatches to a target; with
    --site, targets have processes of their own, on any machines.
    """
    from headrace.links.dispatcher.run import dispatcher_run
    from headrace.links.dispatcher.views import dispatching
    from headrace.settings import environment
    from headrace.spark.kafka_session import jars_notice

    for site in sites:
        refuse_unknown(declared.name, "dispatch to", site, declared.targets)
    start = partial(dispatcher_run, project, declared, sites=sites, once=once)
    return LinkRun(start, dispatching, jars_notice(environment()))


@link_command(dispatcher, "--json")
def list_(project: LoadedProject, dispatchers: Sequence[Dispatcher]) -> LinkStandings:
    """Show lag and refused partitions of each dispatcher, by target.

    The exit code is 3 when a site does not respond, or a partition is refused.
    """
    from headrace.links.dispatcher.standing import route_standings
    from headrace.links.views import LinkStandings

    standings = (route_standings(project, declared) for declared in dispatchers)
    return LinkStandings("dispatcher", tuple(target for of_one in standings for target in of_one))


@link_command(dispatcher, "dispatch-clicks warsaw clicks/3")
@click.argument("site", metavar="SITE")
def accept(
    project: LoadedProject, declared: Dispatcher, partition: TopicPartition, site: str
) -> AcceptedLoss:
    """Accept that records of a partition are not sent to SITE.

    It continues after them, with the first record that the source has. A running instance does so
    within half a minute. Refused (exit code 3) if nothing of it is lost.
    """
    from headrace.links.dispatcher.standing import accept_loss

    refuse_unknown(declared.name, "dispatch to", site, declared.targets)
    refuse_unknown(declared.name, "read", partition.topic, (declared.source.name,))
    return accept_loss(project, declared, site, partition)
