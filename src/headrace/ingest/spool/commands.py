"""spool list, replay, drop: controls the events that ingest keeps on this host's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.session import FAILED, Session, command, epilog

if TYPE_CHECKING:
    from headrace.ingest.spool.views import SpoolDrop, SpoolList, SpoolReplay


@click.group(epilog=epilog("Example", "headrace spool list"))
def spool() -> None:
    """Manage events that ingest keeps on this host's disk."""


@command("headrace spool list\nheadrace spool list occurrences --json", name="list", extra="ingest")
@click.argument("topic", required=False, default="")
def list_(session: Session, topic: str) -> SpoolList:
    """Show events that wait for Kafka or were quarantined."""
    from headrace.ingest.spool.operations import list_spools
    from headrace.ingest.spool.views import SpoolList

    return SpoolList(tuple(list_spools(session.settings, topic)))


@command(
    "headrace spool replay occurrences --dry-run\nheadrace spool replay occurrences", extra="ingest"
)
@click.argument("topic")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--dry-run", is_flag=True, help="Only count the events.")
def replay(session: Session, topic: str, *, files: tuple[str, ...], dry_run: bool) -> SpoolReplay:
    """Put quarantined events back into the spool of TOPIC.

    The running service sends them; one that starts later does. Without FILE, all that hold events.
    A file that can't be put back stays, its reason is shown, and the command ends with 1.
    """
    from headrace.ingest.spool import operations as spools
    from headrace.ingest.spool.views import SpoolReplay

    changes = spools.replay(session.settings, topic, files, dry_run=dry_run)
    if any(change.failure for change in changes):
        session.exit_code = FAILED
    return SpoolReplay(dry_run, tuple(changes))


@command(
    "headrace spool drop occurrences --quarantined\nheadrace spool drop gone --waiting --dry-run",
    extra="ingest",
)
@click.argument("topic")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--quarantined", is_flag=True, help="All files that were quarantined.")
@click.option("--waiting", is_flag=True, help="All events that wait; the service must be stopped.")
@click.option("--dry-run", is_flag=True, help="Only count the events.")
def drop(
    session: Session,
    topic: str,
    *,
    files: tuple[str, ...],
    quarantined: bool,
    waiting: bool,
    dry_run: bool,
) -> SpoolDrop:
    """Remove events of TOPIC from the spool for good.

    These are the quarantined FILEs, all that were quarantined, or all that wait.
    """
    from headrace.ingest.spool import operations as spools
    from headrace.ingest.spool.views import SpoolDrop

    # Nothing is dropped by default, since nothing brings it back.
    if (bool(files) + quarantined + waiting) != 1:
        raise click.UsageError("name what to drop: FILE..., --quarantined or --waiting")
    changes = spools.drop(session.settings, topic, files, waiting=waiting, dry_run=dry_run)
    return SpoolDrop(dry_run, tuple(changes))


for subcommand in (list_, replay, drop):
    spool.add_command(subcommand)
