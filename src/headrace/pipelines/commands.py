"""run, pause, resume, compact, checkpoint: runs and controls pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import (
    FAILED,
    OK,
    Session,
    command,
    epilog,
    log_to_file,
    unknown,
)
from headrace.cli.signals import beside_main_thread, stop_on_signal
from headrace.model import Start, TopicPartition
from headrace.runtime.extras import require_extra
from headrace.settings import environment

if TYPE_CHECKING:
    from headrace.cli.view import PausedPartitions
    from headrace.metrics import Metric
    from headrace.pipelines.declaration import Pipeline
    from headrace.pipelines.run.pipeline_run import Deployment
    from headrace.pipelines.run.runner import Observe
    from headrace.pipelines.status import PipelineStatus
    from headrace.pipelines.views import PipelineCheckpoint, RunResult
    from headrace.runtime.prometheus import MetricsServer
    from headrace.settings import Settings

_PARTITION = "TOPIC/PARTITION"
_STARTS = ["table", *(start.value for start in Start)]


@command(
    "headrace run --once\nheadrace run impressions-to-lake --master spark://host:7077",
    extra="spark",
)
@click.argument("pipelines", nargs=-1, metavar="[PIPELINE]...")
@click.option("--once", is_flag=True, help="End when caught up with what the topics hold now.")
@click.option(
    "--standby",
    is_flag=True,
    help="Wait, warm, while another driver with --standby runs a pipeline, and take over from it.",
)
@click.option(
    "--master",
    type=parameters.Master(),
    help="Spark's master, instead of spark.master in headrace.toml.",
)
@parameters.metrics_port
@parameters.metrics_host
@parameters.log_format
def run(  # noqa: PLR0913 - one for each option
    session: Session,
    pipelines: tuple[str, ...],
    *,
    once: bool,
    standby: bool,
    master: str | None,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
) -> RunResult:
    """Run pipelines, all of them when none is named.

    They run side by side in one driver, and their progress is shown. With --once, one that reads
    what another one writes starts when that one has ended.

    Ctrl-C (or SIGTERM) stops after the current batches; a second one at once, which is safe too.
    The exit code is 0, also when it was stopped; 1, 3 or 4 when a pipeline failed, was refused,
    or reached its dead-letter limit.
    """
    from headrace.cli.view import Stopping
    from headrace.pipelines.run.runner import run_pipelines
    from headrace.pipelines.views import RunResult, running
    from headrace.runtime.prometheus import serving

    chosen = _declared(session, *pipelines)
    if not chosen:
        raise click.UsageError(_nothing_to_run(session))
    own_metrics = list(dict.fromkeys(metric for pipeline in chosen for metric in pipeline.metrics))
    if once and standby:
        raise click.UsageError("--standby waits until it is stopped: leave out --once")
    deployment = replace(deployment_of(session, master, chosen), standby=standby)
    log_to_file(session, log_format)
    with (
        session.output.live(running) as observe,
        stop_on_signal(lambda: session.output.show(Stopping())) as stop,
        serving(metrics_host, metrics_port) as server,
    ):
        outcomes = beside_main_thread(
            run_pipelines,
            session.settings,
            chosen,
            deployment=deployment,
            once=once,
            observe=_also_served(observe, server, own_metrics, session.settings),
            stop=stop,
        )
    session.exit_code = exit_code(outcomes)
    return RunResult(tuple(outcomes.values()))


@command("headrace pause impressions-to-lake impressions/3", extra="spark")
@click.argument("pipeline")
@click.argument("partitions", nargs=-1, required=True, metavar=f"{_PARTITION}...")
def pause(session: Session, pipeline: str, partitions: tuple[str, ...]) -> PausedPartitions:
    """Pause partitions of a pipeline until `resume`."""
    from headrace.pipelines.start.checkpoints import hold, missing_partitions, paused

    [declared] = _declared(session, pipeline)
    named = _partitions(declared, partitions)
    for missing, count in missing_partitions(session.settings, declared, named).items():
        raise click.BadParameter(f"topic {missing.topic} has {count} partitions: 0 to {count - 1}")
    held = paused(session.settings, declared) | named
    hold(session.settings, declared, held)
    return _paused(pipeline, held)


@command("headrace resume impressions-to-lake", extra="spark")
@click.argument("pipeline")
@click.argument("partitions", nargs=-1, metavar=f"[{_PARTITION}]...")
def resume(session: Session, pipeline: str, partitions: tuple[str, ...]) -> PausedPartitions:
    """Resume paused partitions, all when none is named."""
    from headrace.pipelines.start.checkpoints import hold, paused

    [declared] = _declared(session, pipeline)
    held = paused(session.settings, declared)
    held -= _partitions(declared, partitions) if partitions else held
    hold(session.settings, declared, held)
    return _paused(pipeline, held)


@command("headrace compact impressions", extra="spark")
@click.argument("table")
def compact(session: Session, table: str) -> None:
    """Merge small files of TABLE, remove unreferenced ones.

    Files are removed that no version of the last week holds. Works beside a running pipeline.
    If merging fails, unreferenced files are removed all the same.
    """
    from headrace.pipelines.sinks import sink_context
    from headrace.pipelines.views import Compacted
    from headrace.sinks.api import Compactable, CompactionResult

    tables = {
        sink.target: (sink, pipeline)
        for pipeline in _declared(session)
        for sink in pipeline.sinks
        if isinstance(sink, Compactable)
    }
    if table not in tables:
        raise unknown("table", table, tables)
    sink, pipeline = tables[table]
    context = sink_context(session.settings, pipeline, sink)
    merged = CompactionResult()
    try:
        merged = sink.merge_small_files(context)
    finally:
        # Unreferenced files cost disk also where nothing can be merged; the error follows.
        session.output.show(Compacted(table, merged + sink.remove_dead_files(context)))


@click.group(epilog=epilog("Example", "headrace checkpoint show impressions-to-lake"))
def checkpoint() -> None:
    """Show or reset the checkpoint of a pipeline."""


@command("headrace checkpoint show impressions-to-lake", extra="spark")
@click.argument("pipeline")
def show(session: Session, pipeline: str) -> PipelineCheckpoint:
    """Show a pipeline's checkpoint and positions.

    For each partition: the position that the table records, the committed offset of the consumer
    group, and the first and last offset in the topic.
    """
    from headrace.pipelines.start.checkpoints import standing
    from headrace.pipelines.views import PipelineCheckpoint

    [declared] = _declared(session, pipeline)
    return PipelineCheckpoint(pipeline, standing(session.settings, declared))


@command("headrace checkpoint reset impressions-to-lake --to table", extra="spark")
@click.argument("pipeline")
@click.option(
    "--to", type=click.Choice(_STARTS), required=True, help="Where the new checkpoint begins."
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="With --to table: begin at the earliest record where retention has passed that place.",
)
def reset(session: Session, pipeline: str, *, to: str, accept_loss: bool) -> PipelineCheckpoint:
    """Begin a new checkpoint with the next run. Deletes nothing.

    `--to table` continues exactly at the positions that the table records: no row is missing, none
    is there twice. With the others, records after the new start are written again, and records
    before it are left out. The state of stateful steps (windows, de-duplication) starts over.
    Refused (exit code 3) while the pipeline runs, and if there are no such offsets.
    """
    from headrace.pipelines.start.checkpoints import reset as start_over
    from headrace.pipelines.views import PipelineCheckpoint

    [declared] = _declared(session, pipeline)
    standing = start_over(session.settings, declared, to, accept_loss=accept_loss)
    return PipelineCheckpoint(pipeline, standing)


for subcommand in (show, reset):
    checkpoint.add_command(subcommand)


def exit_code(outcomes: Mapping[str, PipelineStatus]) -> int:
    """Returns 0, the exit code of the failures if they agree, else 1."""
    # A supervisor restarts a failed process, and not one that was refused (3): where pipelines end
    # differently, a restart is worth a try.
    codes = {outcome.exit_code for outcome in outcomes.values()} - {OK}
    return codes.pop() if len(codes) == 1 else FAILED if codes else OK


def _declared(session: Session, *names: str) -> list[Pipeline]:
    from headrace.pipelines.declaration import Pipeline

    return session.declared(Pipeline, *names)


def _nothing_to_run(session: Session) -> str:
    runnable = [(kind, value) for kind, value in session.project.by_kind if kind.run_command]
    if not runnable:
        return "no pipelines are declared"
    labels = " and ".join(dict.fromkeys(kind.label for kind, _ in runnable))
    commands = ", ".join(f"`{kind.run_command} {value.name}`" for kind, value in runnable)
    return f"no pipelines are declared; run each {labels} by itself: {commands}"


def _also_served(
    observe: Observe, server: MetricsServer | None, own: Sequence[Metric], settings: Settings
) -> Observe:
    """Returns an observer that shows progress and publishes it as metrics."""
    from headrace.pipelines.standby.status import DriverStatus, own_statuses
    from headrace.pipelines.status import PipelineStatus
    from headrace.service.metrics import exposition

    if server is None:
        return observe

    def both(progress: Mapping[str, PipelineStatus]) -> None:
        drivers = own_statuses(settings.state, progress)
        metrics = exposition(PipelineStatus, [*progress.values()], own)
        server.publish(metrics + exposition(DriverStatus, drivers) if drivers else metrics)
        observe(progress)

    return both


def deployment_of(
    session: Session, master: str | None, pipelines: Sequence[Pipeline]
) -> Deployment:
    """Returns where pipelines run: on ``master``, or where the settings say.

    Raises:
        ExtraMissingError: if a package is missing that their sinks need.
    """
    from headrace.pipelines.run.pipeline_run import Deployment
    from headrace.project.services import bootstrap_servers, lake_uri
    from headrace.runtime.java.installation import find_java

    settings = session.settings
    # Before Spark is started, which takes seconds.
    sinks = [pipeline.sink for pipeline in pipelines]
    for extra in {sink.extra_for(settings.sinks.get(sink.kind, {})) for sink in sinks} - {""}:
        require_extra(extra)
    return Deployment(
        bootstrap=bootstrap_servers(settings),
        lake=lake_uri(settings),
        master=master or settings.spark.master,
        java=find_java(environment()).environ(),
    )


def _partitions(pipeline: Pipeline, texts: tuple[str, ...]) -> set[TopicPartition]:
    from headrace.pipelines.start.checkpoints import parse_partition

    topics = {source.topic.name for source in pipeline.sources}
    partitions = set()
    for text in texts:
        partition = parse_partition(text)
        if partition is None or partition.topic not in topics:
            known = ", ".join(sorted(topics))
            raise click.BadParameter(f"{text!r} is not {_PARTITION} of {known}")
        partitions.add(partition)
    return partitions


def _paused(pipeline: str, partitions: set[TopicPartition]) -> PausedPartitions:
    from headrace.cli.view import PausedPartitions

    names = (f"{partition.topic}/{partition.partition}" for partition in sorted(partitions))
    return PausedPartitions("pipeline", pipeline, tuple(names))
