"""mirror run, list, accept: copies topics of other sites."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from headrace.cli.session import epilog
from headrace.links.commands import link_command, refuse_unknown

if TYPE_CHECKING:
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.commands import LinkRun
    from headrace.links.mirror.declaration import Mirror
    from headrace.links.views import LinkStandings
    from headrace.model import TopicPartition
    from headrace.project.loaded import LoadedProject


@click.group(epilog=epilog("Example", "headrace mirror run warsaw"))
def mirror() -> None:
    """Copy topics of other sites."""


@link_command(mirror, "warsaw --metrics-port 9400")
def run(project: LoadedProject, declared: Mirror) -> LinkRun:
    """Run an instance of MIRROR until Ctrl-C or SIGTERM.

    Progress is shown. Start as many instances as you need, on any machines: they share the
    partitions. While a site does not respond, the instance waits. A partition whose source has lost
    what comes next, or whose next record the copy does not take, is refused; others continue,
    and `headrace mirror list` says why.
    """
    from headrace.links.mirror.run import mirror_run
    from headrace.links.mirror.views import mirroring

    return partial(mirror_run, project, declared), mirroring


@link_command(mirror, "--json")
def list_(project: LoadedProject, mirrors: Sequence[Mirror]) -> LinkStandings:
    """Show instances, lag and refused partitions of each mirror.

    The exit code is 3 when a site does not respond, or a partition is refused.
    """
    from headrace.links.mirror.standing import mirror_standing
    from headrace.links.views import LinkStandings

    standings = (mirror_standing(project.settings, declared) for declared in mirrors)
    return LinkStandings("mirror", tuple(standings))


@link_command(mirror, "warsaw clicks/3")
@click.option(
    "--to",
    type=click.IntRange(min=0),
    help="The next offset to mirror, instead of the first that the source has.",
)
def accept(
    project: LoadedProject, declared: Mirror, partition: TopicPartition, to: int | None
) -> AcceptedLoss:
    """Accept that records of a partition are lost.

    It continues after them, with the first record that the source has. TOPIC is the source's name.
    Refused (exit code 3) while an instance runs, and if nothing of it is lost. With --to, records
    are left out that the source still has.
    """
    from headrace.links.mirror.standing import accept_loss

    refuse_unknown(declared.name, "mirror", partition.topic, declared.topics)
    return accept_loss(project.settings, declared, partition, to)
