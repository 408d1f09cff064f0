"""Runs a service in a command, until it ends or a signal stops it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from headrace.cli.output import Live
from headrace.cli.session import Session
from headrace.cli.signals import stop_on_signal
from headrace.cli.view import Stopping

Status = TypeVar("Status", covariant=True)  # noqa: PLC0105 - as typing's own names


class Runnable(Protocol[Status]):
    """What a command runs, such as a ``ServiceRun``."""

    def stop(self) -> None:
        """Ends it. May be called on any thread."""

    def run(self, observe: Callable[[Status], None]) -> None:
        """Runs until it is stopped; calls ``observe`` with its status."""


def run_service(
    session: Session,
    run: Runnable[Status],
    shown: Live[Callable[[Status], None]],
    worker: str = "",
) -> None:
    """Runs a service, and shows its status.

    Args:
        session: the session of the command.
        run: the service.
        shown: how its status is shown while it runs.
        worker: the name that is shown at the signal; empty: none.

    Raises:
        Exception: why the service has failed.
    """

    def stop() -> None:
        run.stop()
        session.output.show(Stopping(worker))

    with session.output.live(shown) as observe, stop_on_signal(stop):
        run.run(observe)
