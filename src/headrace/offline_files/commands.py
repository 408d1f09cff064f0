"""load-offline-files: loads files of a legacy service into topics or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.parameters import DatabaseUrl, TableRoute
from headrace.cli.session import INTERRUPTED, Session, command, log_to_file
from headrace.cli.signals import stop_on_signal
from headrace.settings import Secret

if TYPE_CHECKING:
    from headrace.offline_files.loading import LoadStats
    from headrace.offline_files.views import LoadResult

_EXAMPLE = """headrace load-offline-files offline/ --into raw_item=occurrences --dry-run
headrace load-offline-files offline/ --into raw_item=occurrences --source api-1
headrace load-offline-files offline/ --into raw_item --postgres 'postgresql://app:${PASSWORD}@db/items'"""


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
@click.option("--dry-run", is_flag=True, help="Read, check and count; write nothing.")
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
    dry_run: bool,
    log_format: str | None,
) -> LoadResult:
    """Load offline files into topics or PostgreSQL.

    Each line in the files of DIR is loaded once.

    A line is known by its source and its counter, so files may be copied, renamed, compressed,
    and loaded again after any crash. What can't be loaded is a dead letter, and stops nothing.
    With --postgres no project is needed. Ctrl-C ends it after the batch; a second one at once.
    """
    from headrace.offline_files.files import FileOrder
    from headrace.offline_files.loading import LoadStats
    from headrace.offline_files.run import LoadOptions
    from headrace.offline_files.run import load_offline_files as load
    from headrace.offline_files.views import LoadResult

    options = LoadOptions(
        files,
        source,
        dict(into),
        FileOrder(order),
        pattern,
        batch_size,
        remove_done=remove_done,
        dry_run=dry_run,
    )
    # Lines name their table: without this list, files could write to any table of the database.
    if postgres and not into:
        raise click.UsageError("--postgres takes the lines of the tables that --into TABLE names")
    # Made here, so that what was loaded before a Ctrl-C is shown, too.
    target, figures = postgres or session.project, LoadStats()
    log_to_file(session, log_format)
    with _between_batches(session) as on_batch:
        load(options, target, figures, on_batch)
    return LoadResult(options.source_name, figures, dry_run)


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
