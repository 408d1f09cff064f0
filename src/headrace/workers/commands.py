"""workers run, list, pause, resume, reset: runs and controls workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import Session, command, epilog, log_to_file
from headrace.cli.signals import beside_main_thread, stop_on_signal
from headrace.runtime.extras import require_extra
from headrace.runtime.logs import Subject
from headrace.settings import Settings, environment

if TYPE_CHECKING:
    from headrace.cli.view import PausedPartitions
    from headrace.model import TopicPartition
    from headrace.workers.declaration import Worker
    from headrace.workers.reset import ResetTo
    from headrace.workers.run import WorkerRunOptions
    from headrace.workers.views import ResetResult, WorkerStandings

_worker = click.argument("name", metavar="WORKER")
_places = click.argument(
    "places", nargs=-1, type=parameters.PartitionName(), metavar="[TOPIC/PARTITION]..."
)
_topic = click.option(
    "--topic", "topics", multiple=True, help="Only of this topic; can be repeated."
)
_partition = click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; can be repeated.",
)


@click.group(epilog=epilog("Example", "headrace workers run enrich"))
def workers() -> None:
    """Run, list, pause and reset workers."""


@command("headrace workers run enrich --metrics-port 9400")
@_worker
@click.option(
    "--instance-id", default="", help="Makes it a static member of its group (`group.instance.id`)."
)
@click.option(
    "--protocol",
    type=click.Choice(["classic", "consumer"]),
    default="classic",
    show_default=True,
    help="Protocol of the consumer group; `consumer` is KIP-848.",
)
@parameters.metrics_port
@parameters.metrics_host
@parameters.log_format
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of instances on this machine, each in a process.",
)
@click.option(
    "--on",
    "place",
    type=click.Choice(["here", "spark"]),
    default="here",
    show_default=True,
    help="Where instances run.",
)
@click.option(
    "--instances",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of instances on Spark.",
)
@click.option(
    "--master",
    type=parameters.Master(),
    help="Spark's master, instead of spark.master in headrace.toml.",
)
def run(  # noqa: PLR0913 - one for each option
    session: Session,
    name: str,
    *,
    instance_id: str,
    protocol: str,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
    processes: int,
    place: str,
    instances: int,
    master: str | None,
) -> None:
    """Run an instance of WORKER until Ctrl-C or SIGTERM.

    Progress is shown. Start as many instances as you need, on any machines: they share the
    partitions. At the signal, records in process are completed and committed; a second signal
    stops at once, which is safe too.

    With `--processes N`, N instances run, each in a process, to use more than one core; an
    instance that ends by itself is started again.

    With `--on spark`, instances run as tasks of a Spark job, each a static member of the group,
    and are started again elsewhere when they are lost.
    """
    from headrace.cli.service_run import run_service
    from headrace.workers.output import with_project_topics
    from headrace.workers.run import WorkerRunOptions, worker_run
    from headrace.workers.views import working

    worker = with_project_topics(_declared(session, name), session.project)
    options = WorkerRunOptions(metrics_host, metrics_port, instance_id, protocol)
    # All refusals of the command line come before the first file is written.
    _check_place(place, instance_id, instances, master, processes)
    log_to_file(session, log_format, Subject("worker", name))
    if place == "spark":
        where = master or session.settings.spark.master
        _run_on_spark(session, worker, where, instances, options)
        return
    if processes > 1:
        _run_processes(session, worker, processes, options, log_format)
        return
    instance = worker_run(session.settings, worker, options)
    run_service(session, instance, working, name)


def _run_processes(
    session: Session,
    worker: Worker,
    processes: int,
    options: WorkerRunOptions,
    log_format: str | None,
) -> None:
    from headrace.cli.service_run import run_service
    from headrace.workers.placement.child import start_child
    from headrace.workers.placement.processes import WorkerProcesses
    from headrace.workers.views import working

    # The folder and a name travel to the process, which loads the project itself: declarations
    # need not be picklable.
    start = functools.partial(start_child, session.settings.root, worker.name, options, log_format)
    run = WorkerProcesses(session.settings, worker.name, processes, options, start)
    run_service(session, run, working, worker.name)


def _check_place(
    place: str, instance_id: str, instances: int, master: str | None, processes: int
) -> None:
    if place == "spark":
        require_extra("spark")
    if place == "spark" and processes > 1:
        raise click.UsageError(
            "--processes is for this machine; on Spark, --instances says how many"
        )
    if place == "spark" and instance_id:
        raise click.UsageError("--instance-id is for one instance; on Spark each has its own")
    if place != "spark" and (master or instances > 1):
        raise click.UsageError("--instances and --master are for --on spark, which is missing")


def _run_on_spark(
    session: Session, worker: Worker, master: str, instances: int, options: WorkerRunOptions
) -> None:
    from headrace.cli.view import Stopping
    from headrace.runtime.java.installation import find_java
    from headrace.workers.placement.spark import SparkPlacement, run_on_spark
    from headrace.workers.views import working

    java = find_java(environment()).environ()
    placement = SparkPlacement(
        master, instances, java, options.protocol, options.metrics_host, options.metrics_port
    )
    with (
        session.output.live(working) as observe,
        stop_on_signal(lambda: session.output.show(Stopping(worker.name))) as stop,
    ):
        beside_main_thread(
            run_on_spark, session.settings, worker, placement, observe=observe, stop=stop
        )


@command("headrace workers list --json", name="list")
def list_(session: Session) -> WorkerStandings:
    """Show members, lag and paused partitions of each worker."""
    from headrace.workers.declaration import Worker
    from headrace.workers.run import standings
    from headrace.workers.views import WorkerStandings

    return WorkerStandings(tuple(standings(session.settings, session.declared(Worker))))


@command("headrace workers pause enrich clicks/3\nheadrace workers pause enrich --topic clicks")
@_worker
@_places
@_topic
@_partition
def pause(
    session: Session,
    name: str,
    places: tuple[TopicPartition, ...],
    *,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
) -> PausedPartitions:
    """Pause partitions of WORKER in all instances until `resume`.

    Records in process are completed, those after them wait in Kafka. The pause survives restarts
    and rebalances.
    """
    from headrace.workers.run import pause as hold

    return _change_paused(session, name, hold, places, topics, partitions)


@command("headrace workers resume enrich\nheadrace workers resume enrich clicks/3")
@_worker
@_places
@_topic
@_partition
def resume(
    session: Session,
    name: str,
    places: tuple[TopicPartition, ...],
    *,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
) -> PausedPartitions:
    """Resume paused partitions of WORKER, all when none is named."""
    from headrace.workers.run import resume as release

    return _change_paused(session, name, release, places, topics, partitions)


@command("headrace workers reset enrich --to 2026-11-21T18:00:00Z --dry-run")
@_worker
@_topic
@_partition
@click.option(
    "--to",
    type=parameters.RecordStart("earliest", "latest", "committed"),
    default="earliest",
    show_default=True,
    help="earliest, latest, the first record since a time such as 2026-11-21T18:00:00Z, or "
    "committed: where a log was truncated before what is done.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
def reset(
    session: Session,
    name: str,
    *,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    to: ResetTo,
    dry_run: bool,
) -> ResetResult:
    """Set the offsets at which WORKER begins.

    With `--topic` and `--partition`, only in these partitions; the others keep their offsets.
    Refused (exit code 3) while an instance runs.
    """
    from headrace.workers.reset import PartitionSelection
    from headrace.workers.reset import reset as move
    from headrace.workers.views import ResetResult

    worker = _declared(session, name)
    _check_topics(worker, topics)
    only = PartitionSelection(topics, partitions)
    return ResetResult(move(session.settings, worker, to=to, only=only, dry_run=dry_run), dry_run)


def _declared(session: Session, name: str) -> Worker:
    from headrace.workers.declaration import Worker

    [declared] = session.declared(Worker, name)
    return declared


def _change_paused(
    session: Session,
    name: str,
    change: Callable[[Settings, Worker, Sequence[str], Sequence[int]], Sequence[str]],
    places: tuple[TopicPartition, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
) -> PausedPartitions:
    """Pauses or resumes the chosen partitions; returns those that are paused then."""
    from headrace.cli.view import PausedPartitions

    worker = _declared(session, name)
    if places and (topics or partitions):
        raise click.UsageError("name partitions by TOPIC/PARTITION or by options, not by both")
    _check_topics(worker, topics or tuple(place.topic for place in places))
    selections: list[tuple[Sequence[str], Sequence[int]]]
    selections = [((place.topic,), (place.partition,)) for place in places]
    paused: Sequence[str] = ()
    for chosen_topics, numbers in selections or [(topics, partitions)]:
        paused = change(session.settings, worker, chosen_topics, numbers)
    return PausedPartitions("worker", name, tuple(paused))


def _check_topics(worker: Worker, topics: tuple[str, ...]) -> None:
    from headrace.workers.tasks.retry_topics import topics_read

    read = topics_read(worker)
    for topic in topics:
        if topic not in read:
            raise click.BadParameter(f"{worker.name} does not read {topic!r}: {', '.join(read)}")


for subcommand in (run, list_, pause, resume, reset):
    workers.add_command(subcommand)
