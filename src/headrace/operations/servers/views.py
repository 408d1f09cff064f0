"""Views of `up`, `down` and `status`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, status_line
from headrace.cli.view import view
from headrace.project.services import Services

if TYPE_CHECKING:
    from headrace.project.kind import StatusKind
    from headrace.runtime.java.jars import Progress
    from headrace.service.status import ServiceStatus

_NOT_STARTED = "not started yet (`headrace up`)"


@dataclass(frozen=True)
class ProjectStatus:
    """The project's servers, and the statuses of what runs by their kinds."""

    services: Services
    statuses: Mapping[StatusKind, Sequence[ServiceStatus]]

    def to_json(self) -> dict[str, Any]:
        """Returns the servers' members beside those of what runs."""
        statuses = {kind.name: statuses for kind, statuses in self.statuses.items()}
        return merged(self.services, statuses)


@view.register
def _services(services: Services, screen: Screen) -> None:
    own, *others = services.clusters
    screen.line(f"Kafka  {escape(own.bootstrap_servers or _NOT_STARTED)}")
    for cluster in others:
        screen.line(f"Kafka of {cluster.site}  {escape(cluster.bootstrap_servers or _NOT_STARTED)}")
    screen.line(f"Lake   {escape(services.lake or _NOT_STARTED)}")
    for server in services.servers:
        state = f"[green]up[/], process {server.pid}" if server.running else "[red]down"
        screen.out.print(f"  {server.name} {escape(server.address)}: {state}", highlight=False)


@view.register
def _status(status: ProjectStatus, screen: Screen) -> None:
    view(status.services, screen)
    for kind, statuses in status.statuses.items():
        if statuses:
            summary = importlib.import_module(kind.view).summary
            screen.out.print(summary(statuses))
    if not any(status.statuses.values()):
        screen.out.print("Nothing has run yet (`headrace run`, `headrace workers run`).")


@contextmanager
def _download(screen: Screen) -> Iterator[Progress]:
    if not screen.err.is_terminal:
        with status_line(screen.err, "Fetching") as show:
            yield lambda done, total, name: show(f"Fetching {name}: {done:,} of {total:,} bytes")
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as ProgressBar

    # One bar for all files: there are dozens of jars, most of them small.
    columns = (TextColumn("Fetching {task.description}"), BarColumn(), DownloadColumn())
    with ProgressBar(*columns, console=screen.err, transient=True) as bar:
        task = bar.add_task("jars", visible=False)

        def on_progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name, visible=True)

        yield on_progress


@contextmanager
def _silent(_print_line: PrintLine) -> Iterator[Progress]:
    yield lambda *_: None


fetching = Live(_download, _silent)
