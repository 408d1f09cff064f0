"""sites check: whether the topics of sites fit each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.session import REFUSED, Session, command, epilog

if TYPE_CHECKING:
    from headrace.links.sites.views import LinkChecks


@click.group(epilog=epilog("Example", "headrace sites check"))
def sites() -> None:
    """Look at the sites of the project."""


@command("headrace sites check --json")
def check(session: Session) -> LinkChecks:
    """Compare the topics of links between sites, at both of them.

    Shows what would break the promise of the same key in the same partition, or lose records.
    Changes nothing. The exit code is 3 when something is wrong, or a site does not respond.
    """
    from headrace.links.sites.checks import check_links
    from headrace.links.sites.views import LinkChecks

    checks = tuple(check_links(session.project))
    if any(link.faults or link.unreachable for link in checks):
        session.exit_code = REFUSED
    return LinkChecks(checks)


sites.add_command(check)
