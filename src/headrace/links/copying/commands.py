"""run, list, accept of links that copy, which are the same for each kind but for its words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from headrace.links.commands import LinkRun, link_command, refuse_unknown

if TYPE_CHECKING:
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.copying.declaration import CopyLink
    from headrace.links.views import LinkStandings
    from headrace.model import TopicPartition
    from headrace.project.loaded import LoadedProject

Function = TypeVar("Function", bound=Callable[..., object])


def add_copy_commands(group: click.Group, link: str, verb: str = "copy") -> None:
    """Adds the commands of a kind of links that copy to its group.

    Args:
        group: with the name of the kind's folder.
        link: the name of a link, for examples.
        verb: what a link does with a topic.
    """
    _add_run(group, link)
    _add_list(group)
    _add_accept(group, link, verb)


def _in_words(group: click.Group) -> Callable[[Function], Function]:
    """Returns a decorator that puts the name of the kind into the help of a command."""

    def decorate(function: Function) -> Function:
        kind = str(group.name)
        function.__doc__ = (function.__doc__ or "").format(kind=kind, LINK=kind.upper())
        return function

    return decorate


def _add_run(group: click.Group, link: str) -> None:
    @link_command(group, f"{link} --metrics-port 9400")
    @_in_words(group)
    def run(project: LoadedProject, declared: CopyLink) -> LinkRun:
        """Run an instance of {LINK} until Ctrl-C or SIGTERM.

        Progress is shown. Start as many instances as you need, on any machines: they share the
        partitions. While a site does not respond, the instance waits. A partition whose source has
        lost what comes next, or whose next record the copy does not take, is refused; others
        continue, and `headrace {kind} list` says why.
        """
        from headrace.links.copying.run import copy_run
        from headrace.links.copying.views import copying

        return LinkRun(partial(copy_run, project, declared), copying)


def _add_list(group: click.Group) -> None:
    @link_command(group, "--json")
    @_in_words(group)
    def list_(project: LoadedProject, links: Sequence[CopyLink]) -> LinkStandings:
        """Show instances, lag and refused partitions of each {kind}.

        The exit code is 3 when a site does not respond, or a partition is refused.
        """
        from headrace.links.copying.standing import copy_standing
        from headrace.links.views import LinkStandings

        standings = (copy_standing(project.settings, declared) for declared in links)
        return LinkStandings(str(group.name), tuple(standings))


def _add_accept(group: click.Group, link: str, verb: str) -> None:
    @link_command(group, f"{link} clicks/3")
    @click.option(
        "--to",
        type=click.IntRange(min=0),
        help=f"The next offset to {verb}, instead of the first that the source has.",
    )
    @_in_words(group)
    def accept(
        project: LoadedProject, declared: CopyLink, partition: TopicPartition, to: int | None
    ) -> AcceptedLoss:
        """Accept that records of a partition are lost.

        It continues after them, with the first record that the source has. TOPIC is the source's
        name. Refused (exit code 3) while an instance runs, and if nothing of it is lost. With --to,
        records are left out that the source still has.
        """
        from headrace.links.copying.kind import copy_kind_of
        from headrace.links.copying.standing import accept_loss

        refuse_unknown(declared.name, verb, partition.topic, declared.topics)
        plan = copy_kind_of(declared).plan(project.settings, declared)
        return accept_loss(project.settings, plan, partition, to)
