"""load-offline-files: loads files of a legacy service into topics or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.parameters import DatabaseUrl, Duration, TableRoute
from headrace.cli.session import INTERRUPTED, Session, command, log_to_file
from headrace.cli.signals import stop_on_signal
from headrace.runtime.logs import Subject
from headrace.settings import Secret

if TYPE_CHECKING:
    from headrace.offline_files.loading import LoadStats
    from headrace.offline_files.options import FollowOptions, LoadOptions
    from headrace.offline_files.views import LoadResult
    from headrace.project.loaded import LoadedProject
    from headrace.service.run import RunOptions

_EXAMPLE = """headrace load-offline-files offline/ --into raw_item=occurrences --dry-run
headrace load-offline-files offline/ --into raw_item=occurrences --source api-1
headrace load-offline-files offline/ --into raw_item --postgres 'postgresql://app:${PASSWORD}@db/items'
headrace load-offline-files offline/ --into raw_item=occurrences --follow --remove-done"""


class _CompleteAfter(Duration):
    """A duration, or 0."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parses 0, or a number and a unit."""
        return timedelta() if value == "0" else super().convert(value, param, ctx)


@command(_EXAMPLE, name="load-offline-files")
@click.argument("files", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--into",
    type=TableRoute(),
    multiple=True,
    help="Lines of this table go into this topic (or table), by default the one of that name; "
    "can be repeated. Into PostgreSQL, other lines are dead letters.",
)
@click.option(
    "--postgres",
    type=DatabaseUrl(),
    help="Load into tables of this database; ${VAR} is taken from the environment.",
)
@click.option(
    "--source", default="", help="Whose counters these are; by default the folder's name."
)
@click.option(
    "--order",
    type=click.Choice(["name", "modified"]),
    default="name",
    show_default=True,
    help="How files are ordered: by the numbers in their names, or by time.",
)
@click.option("--pattern", default="*", show_default=True, help="Only files whose name matches.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Lines in a transaction.",
)
@click.option("--remove-done", is_flag=True, help="Delete files once all of their lines are done.")
@click.option(
    "--move-done",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Move them into this folder of the same file system instead.",
)
@click.option("--dry-run", is_flag=True, help="Read, check and count; write nothing.")
@click.option(
    "--follow", is_flag=True, help="Load files as they are completed, until Ctrl-C or SIGTERM."
)
@click.option(
    "--complete-after",
    type=_CompleteAfter(),
    default="60s",
    show_default=True,
    help="With --follow: the newest file is complete when nothing was written to it for so long, "
    "the others after a second. 0: files are renamed into DIR, and complete.",
)
@parameters.metrics_port
@parameters.metrics_host
@parameters.log_format
def load_offline_files(  # noqa: PLR0913 - one for each option
    session: Session,
    files: Path,
    *,
    into: tuple[tuple[str, str], ...],
    postgres: Secret | None,
    source: str,
    order: str,
    pattern: str,
    batch_size: int,
    remove_done: bool,
    move_done: Path | None,
    dry_run: bool,
    follow: bool,
    complete_after: timedelta,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
) -> LoadResult | None:
    """Load offline files into topics or PostgreSQL.

    Each line in the files of DIR is loaded once.

    A line is known by its source and its counter, so files may be copied, renamed, compressed, and
    loaded again after any crash. What can't be loaded is a dead letter, and stops nothing.
    With --postgres no project is needed. Ctrl-C ends it after the batch; a second one at once.

    With --follow it continues with the files that come, in the order of their creation: a file is
    complete when a newer one is there, or nothing was written to it for a while.
    """
    from headrace.offline_files.files import FileOrder
    from headrace.offline_files.options import FollowOptions, LoadOptions
    from headrace.service.run import RunOptions

    choice = (source, dict(into), FileOrder(order), pattern, batch_size)
    options = LoadOptions(files, *choice, remove_done, move_done, dry_run)
    _check(options, follow, metrics_port)
    # Lines name their table: without this list, files could write to any table of the database.
    if postgres and not into:
        raise click.UsageError("--postgres takes the lines of the tables that --into TABLE names")
    target: Secret | LoadedProject = postgres or session.project
    if follow:
        options_of_run = RunOptions(metrics_host, metrics_port)
        _follow(session, FollowOptions(options, complete_after), target, options_of_run, log_format)
        return None
    log_to_file(session, log_format)
    return _load(session, options, target)


def _check(options: LoadOptions, follow: bool, metrics_port: int | None) -> None:
    if options.remove_done and options.move_done is not None:
        raise click.UsageError("--remove-done and --move-done exclude each other")
    if follow and options.dry_run:
        raise click.UsageError("--dry-run reads what is there, so it can't follow")
    if metrics_port is not None and not follow:
        raise click.UsageError("--metrics-port is for --follow")


def _follow(
    session: Session,
    options: FollowOptions,
    target: LoadedProject | Secret,
    run_options: RunOptions,
    log_format: str | None,
) -> None:
    from headrace.cli.service_run import run_service
    from headrace.offline_files.run import follow_run
    from headrace.offline_files.views import following

    # A loader into PostgreSQL needs no project; the one in whose folder it runs shows it.
    settings = session.settings if session.has_project else None
    log_to_file(session, log_format, Subject("loader", options.load.source_name))
    run_service(session, follow_run(options, target, settings, run_options), following)


def _load(session: Session, options: LoadOptions, target: LoadedProject | Secret) -> LoadResult:
    from headrace.offline_files.loading import LoadStats
    from headrace.offline_files.run import load_offline_files as load
    from headrace.offline_files.views import LoadResult

    # Made here, so that what was loaded before a Ctrl-C is shown, too.
    figures = LoadStats()
    with _between_batches(session) as on_batch:
        load(options, target, figures, on_batch)
    return LoadResult(options.source_name, figures, options.dry_run)


@contextmanager
def _between_batches(session: Session) -> Iterator[Callable[[LoadStats], None]]:
    """Gives what is called after each batch: it shows the progress, and ends after a signal."""
    from headrace.offline_files.views import loading

    with session.output.live(loading) as show, stop_on_signal(lambda: None) as stop:

        def on_batch(progress: LoadStats) -> None:
            show(progress)
            # Between batches, since the progress of a batch is stored with it.
            if stop.is_set():
                raise KeyboardInterrupt

        try:
            yield on_batch
        except KeyboardInterrupt:
            session.exit_code = INTERRUPTED
