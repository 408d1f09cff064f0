"""up, down, status: controls the project's servers on this machine."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.cli.session import Session, command
from headrace.errors import HeadraceError
from headrace.settings import environment

if TYPE_CHECKING:
    from headrace.operations.servers.views import ProjectStatus
    from headrace.project.loaded import LoadedProject
    from headrace.project.services import Services


@command("headrace up && headrace apply")
def up(session: Session) -> Services:
    """Start the project's own servers.

    These are Kafka, that of each site without bootstrap_servers, HDFS with lake = "embedded-hdfs",
    and ingest with [ingest]. Returns once they respond, and prints their addresses. Creates no
    topics. Servers that run already and your own clusters are left alone.
    """
    from headrace.operations.servers.views import fetching
    from headrace.project.services import up as start

    with session.output.live(fetching) as on_progress:
        return start(session.settings, environment(), on_progress)


@command("headrace down")
def down(session: Session) -> Services:
    """Stop what `up` started, and keep the data. Does nothing when the servers are down."""
    from headrace.project.services import down as stop

    return stop(session.settings)


@command("headrace status --json")
def status(session: Session) -> ProjectStatus:
    """Show the status of all parts of the project."""
    from headrace.operations.servers.statuses import all_statuses
    from headrace.operations.servers.views import ProjectStatus
    from headrace.project import services

    settings = session.settings
    project: LoadedProject | None = None
    # Status is needed most when something is broken, such as a module of the project.
    with suppress(HeadraceError):
        project = session.project
    return ProjectStatus(services.status(settings), all_statuses(settings, project))
