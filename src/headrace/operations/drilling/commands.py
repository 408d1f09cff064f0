"""drill: runs workers and pipelines of the project under faults."""

from __future__ import annotations

import secrets
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.session import UNBALANCED, Session, command, log_to_file, unknown
from headrace.cli.signals import interrupt_on_sigterm
from headrace.runtime.extras import require_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.operations.drilling.drill import DrillOptions
    from headrace.operations.drilling.report import DrillReport
    from headrace.pipelines.declaration import Pipeline
    from headrace.workers.declaration import Worker

_KINDS = ("leader", "controller", "brokers", "kill", "restart", "cut")


@command("headrace drill enrich --from clicks.ndjson\nheadrace drill --fault leader --rounds 10")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--fault",
    "kinds",
    type=click.Choice(_KINDS),
    multiple=True,
    help="Only this kind of fault; can be repeated.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1, max=1000),
    default=1,
    show_default=True,
    help="How often each kind of fault happens.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Faults of this seed; by default any.")
@click.option(
    "--rate",
    type=click.IntRange(min=1, max=2000),
    default=200,
    show_default=True,
    help="Events a second, over all topics.",
)
@click.option(
    "--instances",
    type=click.IntRange(min=1, max=8),
    default=2,
    show_default=True,
    help="Instances of each worker.",
)
@click.option(
    "--records",
    type=click.IntRange(min=1, max=100_000),
    default=200,
    show_default=True,
    help="Records of the sample: the newest of each topic that is read.",
)
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Make events of those in this file, one JSON document a line.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="KIND.KEY=VALUE",
    help="A setting of [sinks.KIND] for the drill, such as postgres.url=...; can be repeated.",
)
@click.option(
    "--report",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report to this file, as --json has it.",
)
def drill(  # noqa: PLR0913 - one for each option
    session: Session,
    /,
    *,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    rounds: int,
    seed: int | None,
    rate: int,
    instances: int,
    records: int,
    file: Path | None,
    sinks: tuple[str, ...],
    path: Path | None,
) -> DrillReport:
    """Run workers and pipelines under faults.

    NAME is a worker or a pipeline; by default all. They run as declared, on three brokers that are
    started for the drill, with a lake in a temporary folder; both are removed in the end and on
    Ctrl-C. Your own cluster, lake and positions are not touched.

    Events made of a sample are sent at a rate. A broker that leads is killed, so is the active
    controller; brokers are restarted in order; instances are killed, and restarted in order;
    clients are cut off. The report says for each how long writing and processing stood still, and
    whether anything was lost, or repeated beyond the promise: then the exit code is 6.

    The code of workers and steps is called for real: what it does by itself, such as requests to a
    service, is done.
    """
    from headrace.cli.encoding import encoded
    from headrace.operations.drilling.drill import drill as run
    from headrace.operations.drilling.views import drilling
    from headrace.runtime.files.json_files import write_json

    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}", param_hint="--report")
    chosen = _chosen(session, names)
    limits = {"rounds": rounds, "rate": rate, "instances": instances, "records": records}
    options = _options(kinds, seed, file, sinks, limits)
    log_to_file(session)
    with interrupt_on_sigterm(), session.output.live(drilling) as (on_step, on_download):
        report: DrillReport = run(session.project, chosen, options, on_step, on_download)
    if path is not None:
        write_json(path, encoded(report))
    if not report.has_held:
        session.exit_code = UNBALANCED
    return report


def _options(
    kinds: tuple[str, ...],
    seed: int | None,
    file: Path | None,
    sinks: tuple[str, ...],
    limits: dict[str, int],
) -> DrillOptions:
    from headrace.operations.drilling.drill import DrillOptions
    from headrace.operations.drilling.schedule import FaultKind

    return DrillOptions(
        kinds=[FaultKind(kind) for kind in kinds or _KINDS],
        seed=secrets.randbelow(2**32) if seed is None else seed,
        file=file,
        sinks=_sink_settings(sinks),
        command=_shown_command(sys.argv[1:]),
        **limits,
    )


def _chosen(session: Session, names: tuple[str, ...]) -> Sequence[Pipeline | Worker]:
    from headrace.pipelines.declaration import Pipeline
    from headrace.workers.declaration import Worker

    declared: dict[str, Pipeline | Worker] = {
        **session.project.declared(Pipeline),
        **session.project.declared(Worker),
    }
    for name in names:
        if name not in declared:
            raise unknown("worker or pipeline", name, declared)
    chosen = [declared[name] for name in dict.fromkeys(names or declared)]
    if any(isinstance(value, Pipeline) for value in chosen):
        require_extra("spark")
    return chosen


def _shown_command(words: Sequence[str]) -> str:
    """Returns the command line without settings of sinks, which may be secrets."""
    shown = ["headrace"]
    for before, word in pairwise(["", *words]):
        is_sink = before == "--sink" or word.startswith("--sink=")
        name, equals, _ = word.removeprefix("--sink=").partition("=")
        prefix = "--sink=" if word.startswith("--sink=") else ""
        shown.append(f"{prefix}{name}{equals}***" if is_sink else word)
    return shlex.join(shown)


def _sink_settings(texts: tuple[str, ...]) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        kind, dot, key = place.partition(".")
        if not (equals and dot and kind and key):
            raise click.BadParameter(f"{text!r} is not KIND.KEY=VALUE", param_hint="--sink")
        settings.setdefault(kind, {})[key] = value
    return settings
