"""up, down, status: the project's servers on this machine."""

from __future__ import annotations

from collections.abc import Collection

from headrace.cli.session import Session, command
from headrace.errors import HeadraceError
from headrace.settings import environment


@command("headrace up && headrace apply")
def up(session: Session) -> None:
    """Start the project's own Kafka (HDFS with lake = "embedded-hdfs", ingest with [ingest]).

    Returns once they answer, and prints where. Creates no topics. What runs already is left
    alone, and so are clusters of your own.
    """
    from headrace.control.services import up as start

    with session.output.fetching() as on_progress:
        found = start(session.settings, environment(), on_progress)
    session.output.services(found)


@command("headrace down")
def down(session: Session) -> None:
    """Stop what `up` started. The data stays. Harmless when it is down already."""
    from headrace.control.services import down as stop

    session.output.services(stop(session.settings))


@command("headrace status --json")
def status(session: Session) -> None:
    """Show the project's servers, and how pipelines and workers are doing or how they ended."""
    from headrace.control.checkpoints import progress
    from headrace.control.services import status as look
    from headrace.control.workers import progress as of_workers

    settings = session.settings
    pipelines = progress(settings, _declared(session))
    session.output.status(look(settings), pipelines, of_workers(settings))


def _declared(session: Session) -> Collection[str] | None:
    """Names of the pipelines; None where the project's modules can't be read."""
    try:
        return session.project.pipelines.keys()
    except HeadraceError:
        return None
