"""mirror run, list, accept: copies topics of other sites."""

from __future__ import annotations

import click

from headrace.cli.session import epilog
from headrace.links.copying.commands import add_copy_commands


@click.group(epilog=epilog("Example", "headrace mirror run warsaw"))
def mirror() -> None:
    """Copy topics of other sites."""


add_copy_commands(mirror, "warsaw", verb="mirror")
