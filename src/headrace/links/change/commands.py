"""topics change: the records of a topic in another one, with other partitions or another key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.session import FAILED, Session, command
from headrace.model import Topic
from headrace.topics.spreads.commands import topics

if TYPE_CHECKING:
    from headrace.links.change.comparison import ChangeCheck
    from headrace.links.change.groups import GroupMove
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
@click.option("--copy", is_flag=True, help="Copy OLD to NEW, up to the end that OLD has.")
@click.option("--late", is_flag=True, help="Copy also behind records that NEW has of its own.")
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
        return _move(plan, groups, dry_run=dry_run)
    if copy:
        _copy(session, plan, late=late)
    return _standing(session, plan, old_topic, new_topic, is_copied=copy)


def _copy(session: Session, plan: ChangePlan, *, late: bool) -> None:
    from headrace.cli.service_run import run_service
    from headrace.links.change.copy_run import ChangeCopy, require_no_own_records
    from headrace.links.copying.views import copying

    if not late:
        require_no_own_records(plan)
    run_service(session, ChangeCopy(plan), copying, plan.name)


def _standing(
    session: Session, plan: ChangePlan, old: Topic, new: Topic, *, is_copied: bool
) -> ChangeStanding:
    from headrace.links.change.standing import change_standing

    standing = change_standing(session.project, plan, old, new)
    if is_copied and standing.behind:
        session.exit_code = FAILED
    return standing


def _check(session: Session, plan: ChangePlan) -> ChangeCheck:
    from headrace.links.change.comparison import compare

    result = compare(plan)
    if not result.is_whole:
        session.exit_code = FAILED
    return result


def _move(plan: ChangePlan, groups: tuple[str, ...], *, dry_run: bool) -> GroupMoves:
    from headrace.links.change.groups import move_group
    from headrace.links.change.views import GroupMoves

    moves: list[GroupMove] = [move_group(plan, group, dry_run=dry_run) for group in groups]
    return GroupMoves(tuple(moves))


topics.add_command(change)
