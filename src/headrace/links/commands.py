"""run, list, accept: what they do for each kind of link, which has their words."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headrace.cli import parameters
from headrace.cli.session import REFUSED, Session, command, log_to_file
from headrace.runtime.logs import Subject

if TYPE_CHECKING:
    from headrace.cli.output import Live
    from headrace.links.accepted import AcceptedLoss
    from headrace.links.views import LinkStandings
    from headrace.service.run import RunOptions, ServiceRun


class LinkRun(NamedTuple):
    """What runs an instance.

    Attributes:
        start: makes it.
        shown: how its status is shown.
        notice: what users are to know before it starts; empty: nothing.
    """

    start: Callable[[RunOptions], ServiceRun[Any]]
    shown: Live[Any]
    notice: str = ""


def link_command(
    group: click.Group, example: str
) -> Callable[[Callable[..., object]], click.Command]:
    """Makes a function a command of a kind of link. Its name says which, its docstring is the help.

    Options and arguments of the kind's own are decorators of the function:

    - ``run(project, link, ...)`` returns a :class:`LinkRun`;
    - ``list_(project, links)`` returns :class:`headrace.links.views.LinkStandings` of all;
    - ``accept(project, link, partition, ...)`` returns an ``AcceptedLoss``.

    Args:
        group: with the name of the kind's folder.
        example: the arguments of an example.
    """

    def decorate(function: Callable[..., object]) -> click.Command:
        form, *common = _FORMS[function.__name__]
        kind, name = str(group.name), function.__name__.rstrip("_")

        @functools.wraps(function)
        def body(session: Session, /, **values: Any) -> object:
            declaration = importlib.import_module(f"headrace.links.{kind}.kind").KIND.type
            names = (values.pop("name"),) if common else ()
            links = session.declared(declaration, *names)
            return form(session, functools.partial(function, session.project), links, **values)

        if form is _run:  # the command returns nothing, unlike the function of the kind
            body.__annotations__ = {"return": "None"}
        # Click reverses them. Help shows arguments first; what is the kind's own precedes the rest.
        own = vars(body).pop("__click_params__", [])
        for parameter in reversed(common):
            parameter(body)
        if common:
            vars(body)["__click_params__"] += own
            click.argument("name", metavar=kind.upper())(body)
            vars(body)["__click_params__"].sort(key=lambda p: isinstance(p, click.Argument))
        added = command(f"headrace {kind} {name} {example}", name=name)(body)
        group.add_command(added)
        return added

    return decorate


def _run(
    session: Session,
    start: Callable[..., LinkRun],
    links: list[Any],
    *,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
    **values: Any,
) -> None:
    from headrace.cli.service_run import run_service
    from headrace.project.kinds import kind_of
    from headrace.service.run import RunOptions

    [link] = links
    link_run = start(link, **values)
    log_to_file(session, log_format, Subject(kind_of(link).label, link.name))
    if link_run.notice:
        session.output.warn(link_run.notice)
    instance = link_run.start(RunOptions(metrics_host, metrics_port))
    run_service(session, instance, link_run.shown, link.name)


def _list(session: Session, read: Callable[..., LinkStandings], links: list[Any]) -> LinkStandings:
    result = read(links)
    if any(standing.reasons for standing in result.standings):
        session.exit_code = REFUSED
    return result


def _accept(
    _: Session, accept: Callable[..., AcceptedLoss], links: list[Any], **values: Any
) -> AcceptedLoss:
    return accept(*links, **values)


_PARTITION = click.argument("partition", type=parameters.PartitionName(), metavar="TOPIC/PARTITION")
_FORMS: dict[str, tuple[Any, ...]] = {
    "run": (_run, parameters.metrics_port, parameters.metrics_host, parameters.log_format),
    "list_": (_list,),
    "accept": (_accept, _PARTITION),
}


def refuse_unknown(name: str, does: str, value: str, known: Iterable[str]) -> None:
    """Raises a usage error for a topic or a site that a link does not have.

    Args:
        name: of the link.
        does: what it does with those that it has: ``mirror``, ``dispatch to``.
        value: the topic or site.
        known: those that it has.
    """
    if value not in (names := list(known)):
        raise click.BadParameter(f"{name} does not {does} {value!r}: {', '.join(names)}")
