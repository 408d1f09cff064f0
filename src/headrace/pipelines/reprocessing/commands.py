"""reprocess: reads a time range of a pipeline again."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import INTERRUPTED, Session, command, log_to_file
from headrace.cli.signals import beside_main_thread, stop_on_signal
from headrace.pipelines.commands import deployment_of
from headrace.runtime.logs import Subject

if TYPE_CHECKING:
    from headrace.pipelines.reprocessing.plan import ReprocessPlan
    from headrace.pipelines.reprocessing.reprocess import ReprocessResult

_EXAMPLE = """headrace reprocess clicks-to-lake --from 2026-11-21 --to 2026-11-22 --dry-run
headrace reprocess clicks-to-lake --from 2026-11-21T08:00 --to 2026-11-21T09:00"""


@command(_EXAMPLE, extra="spark")
@click.argument("pipeline")
@click.option(
    "--from",
    "start",
    type=parameters.Time(),
    required=True,
    help="Begin with the first record that came at this time or later.",
)
@click.option(
    "--to",
    "end",
    type=parameters.Time(),
    required=True,
    help="End before the first record that came at this time or later.",
)
@click.option(
    "--tasks",
    type=click.IntRange(1, 10_000),
    help="About how many tasks read at the same time; by default more than there are partitions.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Continue with what is left where retention has removed records of the range.",
)
@click.option("--dry-run", is_flag=True, help="Only show the ranges.")
@click.option(
    "--master",
    type=parameters.Master(),
    help="Spark's master, instead of spark.master in headrace.toml.",
)
@parameters.log_format
def reprocess(  # noqa: PLR0913 - one for each option
    session: Session,
    pipeline: str,
    *,
    start: datetime,
    end: datetime,
    tasks: int | None,
    accept_loss: bool,
    dry_run: bool,
    master: str | None,
    log_format: str | None,
) -> ReprocessPlan | ReprocessResult:
    """Read a time range of PIPELINE again.

    Its rows become what the pipeline makes of the records now: in a table of the lake, missing
    rows are added, wrong ones replaced, and right ones stay. Works beside a running pipeline. Times
    are those at which records came, not event times.

    Ctrl-C (or SIGTERM) stops after the current part (exit code 130); a second one at once, which is
    safe too. Refused (exit code 3) where the outcome would not be exact.
    """
    from headrace.cli.view import Stopping
    from headrace.pipelines.declaration import Pipeline
    from headrace.pipelines.reprocessing.ranges import TimeRange
    from headrace.pipelines.reprocessing.reprocess import ReprocessRequest, plan_reprocessing
    from headrace.pipelines.reprocessing.reprocess import reprocess as read_again
    from headrace.pipelines.reprocessing.views import reprocessing

    if start >= end:
        raise click.BadParameter(f"--to {end.isoformat()} is not after --from {start.isoformat()}")
    [declared] = session.declared(Pipeline, pipeline)
    request = ReprocessRequest(TimeRange(start, end), tasks, accept_loss)
    if dry_run:
        return plan_reprocessing(session.project, declared, request)
    deployment = deployment_of(session, master, [declared])
    log_to_file(session, log_format, Subject("pipeline", pipeline))
    with (
        session.output.live(reprocessing) as observe,
        stop_on_signal(lambda: session.output.show(Stopping())) as stop,
    ):
        result: ReprocessResult = beside_main_thread(
            read_again, session.project, declared, request, deployment, observe=observe, stop=stop
        )
    if result.state == "interrupted":
        session.exit_code = INTERRUPTED
    return result
