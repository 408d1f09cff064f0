"""topics change: the records of a topic in another one, with other partitions or another key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.session import FAILED, Session, command
from headrace.model import Topic
from headrace.topics.spreads.commands import topics

if TYPE_CHECKING:
    from headrace.links.change.comparison import ChangeCheck
    from headrace.links.change.plan import ChangePlan
    from headrace.links.change.standing import ChangeStanding
    from headrace.links.change.views import GroupMoves

_CHANGE = """headrace topics change orders orders-2
headrace topics change orders orders-2 --copy
headrace topics change orders orders-2 --check
headrace topics change orders orders-2 --move headrace.charge --dry-run"""


@command(_CHANGE)
@click.argument("old")
@click.argument("new")
@click.option(
    "--copy", is_flag=True, help="Copy OLD to NEW, up to the end that OLD has at the start."
)
@click.option(
    "--late",
    is_flag=True,
    help="Copy even if NEW has other records; their order to the copies is lost.",
)
@click.option("--check", is_flag=True, help="Read both topics, and compare them record by record.")
@click.option(
    "--move",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Let this consumer group start in NEW where it is in OLD; can be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only say where the groups of --move would start.")
def change(  # noqa: PLR0913 - one for each option
    session: Session,
    old: str,
    new: str,
    *,
    copy: bool,
    late: bool,
    check: bool,
    groups: tuple[str, ...],
    dry_run: bool,
) -> ChangeStanding | ChangeCheck | GroupMoves:
    """Change the partitions or the key of a topic: copy OLD to NEW.

    Both are declared, and NEW is made by `headrace apply`. Without --copy, --check and --move
    nothing is changed, and it is shown how far the change has come. Each step can be repeated, and
    continues where it was stopped.
    """
    from headrace.links.change.plan import change_plan
    from headrace.links.change.rules import require_fit
    from headrace.links.change.standing import change_standing
    from headrace.project.services import broker_config

    if copy + check + bool(groups) > 1:
        raise click.UsageError("choose one of --copy, --check and --move")
    if late and not copy:
        raise click.UsageError("--late is for --copy")
    if dry_run and not groups:
        raise click.UsageError("--dry-run is for --move; without options nothing is changed")
    old_topic, new_topic = (session.declared(Topic, name)[0] for name in (old, new))
    require_fit(broker_config(session.settings), old_topic, new_topic)
    plan = change_plan(session.settings, old_topic, new_topic)
    if check:
        return _check(session, plan)
    if groups:
        return _move(session, plan, groups, dry_run=dry_run)
    if copy:
        _copy(session, plan, late=late)
    return change_standing(session.project, plan, old_topic, new_topic)


def _copy(session: Session, plan: ChangePlan, *, late: bool) -> None:
    from headrace.cli.service_run import run_service
    from headrace.links.change.copy_run import ChangeCopy
    from headrace.links.change.views import changing

    run = ChangeCopy(plan, late=late)
    run_service(session, run, changing, plan.name)
    if not run.is_whole:
        session.exit_code = FAILED


def _check(session: Session, plan: ChangePlan) -> ChangeCheck:
    from headrace.links.change.comparison import compare

    result = compare(plan)
    if not result.is_whole:
        session.exit_code = FAILED
    return result


def _move(
    session: Session, plan: ChangePlan, groups: tuple[str, ...], *, dry_run: bool
) -> GroupMoves:
    from headrace.links.change.groups import move_groups
    from headrace.links.change.views import GroupMoves
    from headrace.workers.declaration import Worker

    workers = session.project.declared(Worker).values()
    return GroupMoves(move_groups(plan, workers, groups, dry_run=dry_run))


topics.add_command(change)
