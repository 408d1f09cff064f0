"""measure: measures a worker, a pipeline or a producer of the project."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.session import Session, command, log_to_file, unknown
from headrace.cli.signals import beside_main_thread, interrupt_on_sigterm, stop_on_signal
from headrace.runtime.extras import require_extra

if TYPE_CHECKING:
    from headrace.model import Topic
    from headrace.operations.measuring.result import MeasuredDeclaration
    from headrace.operations.measuring.rounds import MeasureOptions
    from headrace.pipelines.declaration import Pipeline
    from headrace.workers.declaration import Worker

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
    "--as",
    "kind",
    type=click.Choice(["worker", "pipeline", "producer"]),
    help="What NAME is, where several have that name.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to this file, for `headrace size --measured`.",
)
def measure(  # noqa: PLR0913 - one for each option
    session: Session,
    /,
    *,
    name: str,
    records: int,
    seconds: float,
    file: Path | None,
    kind: str | None,
    output: Path | None,
) -> MeasuredDeclaration:
    """Measure a worker, a pipeline or a producer.

    NAME is one of the project, or a topic for its producer. It is measured on a sample of its
    topics. It runs as declared, on topics and in a group of its own, which are deleted in the end
    and on Ctrl-C. Nothing is committed for its real group. What a worker sends goes to a topic
    that is deleted, too; rows of a pipeline go to a table in a temporary folder of this machine.

    The code of a worker or a step is called for real, many times for each record of the sample:
    what it does by itself, such as requests to a service, is done.
    """
    from headrace.operations.measuring.rounds import MeasureOptions

    if output is not None and not output.parent.is_dir():
        raise click.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    declared = _declared(session, name, kind)
    log_to_file(session)
    options = MeasureOptions(records, seconds, file, shlex.join(["headrace", *sys.argv[1:]]))
    result = _measured(session, declared, options)
    if output is not None:
        result.write(output)
    return result


def _declared(session: Session, name: str, kind: str | None) -> Worker | Pipeline | Topic:
    from headrace.pipelines.declaration import Pipeline
    from headrace.workers.declaration import Worker

    declared: dict[str, Mapping[str, Worker | Pipeline | Topic]] = {
        "worker": session.project.declared(Worker),
        "pipeline": session.project.declared(Pipeline),
        "producer": session.project.topics,
    }
    if kind is not None:
        declared = {kind: declared[kind]}
    named = {kind: values[name] for kind, values in declared.items() if name in values}
    if not named:
        raise unknown(" or ".join(declared), name, chain.from_iterable(declared.values()))
    if len(named) > 1:
        raise click.BadParameter(f"{name!r} is a {' and a '.join(named)}; --as says which")
    return next(iter(named.values()))


def _measured(
    session: Session, declared: Worker | Pipeline | Topic, options: MeasureOptions
) -> MeasuredDeclaration:
    from headrace.operations.measuring.views import measuring
    from headrace.pipelines.declaration import Pipeline
    from headrace.workers.declaration import Worker

    if isinstance(declared, Pipeline):
        return _measured_pipeline(session, declared, options)
    # Without it, SIGTERM would leave the temporary topics behind.
    with interrupt_on_sigterm(), session.output.live(measuring) as on_step:
        if isinstance(declared, Worker):
            from headrace.operations.measuring.worker import measure_worker
            from headrace.workers.tasks.sent_events import event_topics

            sending = replace(declared, event_topics=event_topics(session.project))
            return measure_worker(session.settings, sending, options, on_step)
        from headrace.operations.measuring.producer import measure_producer

        return measure_producer(session.project, declared, options, on_step)


def _measured_pipeline(
    session: Session, pipeline: Pipeline, options: MeasureOptions
) -> MeasuredDeclaration:
    require_extra("spark")
    from headrace.cli.view import Stopping
    from headrace.operations.measuring.pipeline import measure_pipeline
    from headrace.operations.measuring.views import measuring

    with (
        session.output.live(measuring) as on_step,
        stop_on_signal(lambda: session.output.show(Stopping())) as stop,
    ):
        result: MeasuredDeclaration = beside_main_thread(
            measure_pipeline, session.settings, pipeline, options, on_step, stop
        )
        return result
