"""merger run, list, accept: merges topics of several sites into one that is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from headrace.cli.session import epilog
from headrace.links.commands import LinkRun, link_command, refuse_unknown

if TYPE_CHECKING:
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.merger.declaration import Merger
    from headrace.links.merger.views import MergerStandings
    from headrace.model import TopicPartition
    from headrace.project.loaded import LoadedProject


@click.group(epilog=epilog("Example", "headrace merger run clicks"))
def merger() -> None:
    """Merge topics of several sites into a sorted one."""


@link_command(merger, "clicks --metrics-port 9400")
def run(project: LoadedProject, declared: Merger) -> LinkRun:
    """Run an instance of MERGER until Ctrl-C or SIGTERM.

    Progress is shown. Start as many instances as you need, on any machines: they share the
    partitions, and each partition waits for its own sources alone. A partition of which a source
    has lost what comes next is refused; others continue, and `headrace merger list` says why.
    """
    from headrace.links.merger.run import merger_run
    from headrace.links.merger.views import merging

    return LinkRun(partial(merger_run, project, declared), merging)


@link_command(merger, "--json")
def list_(project: LoadedProject, mergers: Sequence[Merger]) -> MergerStandings:
    """Show instances, lag and refused partitions of each merger.

    The exit code is 3 when a partition is refused.
    """
    from headrace.links.merger.standing import merger_standing
    from headrace.links.merger.views import MergerStandings

    standings = (merger_standing(project, declared) for declared in mergers)
    return MergerStandings("merger", tuple(standings))


@link_command(merger, "clicks warsaw.clicks/3")
def accept(project: LoadedProject, declared: Merger, partition: TopicPartition) -> AcceptedLoss:
    """Accept that records of a source are lost.

    TOPIC is a source of MERGER. It continues after them, with the first record that it has.
    Refused (exit code 3) while an instance runs, and if nothing of it is lost.
    """
    from headrace.links.merger.standing import accept_loss

    sources = [topic.name for topic in declared.sources]
    refuse_unknown(declared.name, "merge", partition.topic, sources)
    return accept_loss(project, declared, partition)
