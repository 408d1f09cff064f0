"""measure: measures a worker, a pipeline or a producer of the project."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.session import Session, command, log_to_file
from headrace.cli.signals import interrupt_on_sigterm

if TYPE_CHECKING:
    from headrace.operations.measuring.result import MeasuredDeclaration

_EXAMPLE = """headrace measure enrich -o enrich.json
headrace size --rate 20K --measured enrich.json"""


@command(_EXAMPLE)
@click.argument("name")
@click.option(
    "--records",
    type=click.IntRange(min=1, max=1_000_000),
    default=2000,
    show_default=True,
    help="Records of the sample: the newest of each topic that it reads.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5, max=600),
    default=10.0,
    show_default=True,
    help="Duration of all rounds together, after the warm-up.",
)
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure with the events of this file, one JSON document a line.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to this file, for `headrace size --measured`.",
)
def measure(
    session: Session,
    /,
    *,
    name: str,
    records: int,
    seconds: float,
    file: Path | None,
    output: Path | None,
) -> MeasuredDeclaration:
    """Measure the worker NAME on a sample of its topics.

    It runs as declared, on topics and in a group of its own, which are deleted in the end and on
    Ctrl-C. Nothing is committed for its real group, and what it sends goes to a topic that is
    deleted, too.

    Its function is called for real, many times for each record of the sample: what it does other
    than by `send`, such as requests to a service, is done.
    """
    from headrace.operations.measuring.rounds import MeasureOptions
    from headrace.operations.measuring.views import measuring
    from headrace.operations.measuring.worker import measure_worker
    from headrace.workers.declaration import Worker

    if output is not None and not output.parent.is_dir():
        raise click.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    [worker] = session.declared(Worker, name)
    log_to_file(session)
    options = MeasureOptions(records, seconds, file, shlex.join(["headrace", *sys.argv[1:]]))
    # Without it, SIGTERM would leave the temporary topics behind.
    with interrupt_on_sigterm(), session.output.live(measuring) as on_step:
        result = measure_worker(session.settings, worker, options, on_step)
    if output is not None:
        result.write(output)
    return result
