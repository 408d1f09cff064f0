"""size: computes how large a topic and its cluster must be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from headrace.cli.parameters import Amount, ByteSize, Duration
from headrace.cli.session import Session, command
from headrace.cli.signals import interrupt_on_sigterm

if TYPE_CHECKING:
    from headrace.operations.measuring.result import MeasuredDeclaration
    from headrace.operations.sizing.measuring import Measurement
    from headrace.operations.sizing.needs import Origins
    from headrace.operations.sizing.sizes import CatchUp, JoinSize, TopicLoad
    from headrace.operations.sizing.views import SizeResult

_WAIT = timedelta(minutes=10)  # that of a Join which declares none
_EXAMPLE = """headrace size --rate 10000 --event-bytes 2500 --retention 7d --brokers 4
headrace size --rate 10000 --event-bytes 2500 --planned-rate 20000 --consumer-rate 2650
headrace size --rate 20K --event-bytes 500 --lag 1d --within 1h --throughput 57.74K
headrace size --rate 1000 --event-bytes 300 --join-within 1d --join-wait 10m --later-rate 50
headrace size --rate 10000 --measure --topic clicks
headrace size --rate 10000 --measured enrich.json"""


@command(_EXAMPLE)
@click.option("--rate", type=Amount(), required=True, help="Events a second.")
@click.option("--event-bytes", type=ByteSize(), help="Mean size of an event.")
@click.option(
    "--retention",
    type=Duration(),
    default="7d",
    show_default=True,
    help="How long records are kept.",
)
@click.option(
    "--replication", type=click.IntRange(min=1), default=3, show_default=True, help="Copies."
)
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of brokers that share the copies.",
)
@click.option(
    "--compression",
    type=Amount(),
    default="1",
    show_default=True,
    help="Bytes of events for each byte on disk.",
)
@click.option("--planned-rate", type=Amount(), help="Events a second that are expected later.")
@click.option("--consumer-rate", type=Amount(), help="Events a second that a consumer processes.")
@click.option(
    "--lag", type=Duration(), help="Lag to catch up with, as the time in which it arrived."
)
@click.option("--throughput", type=Amount(), help="Events a second of all consumers together.")
@click.option("--within", type=Duration(), help="Time in which to catch up.")
@click.option(
    "--join-within",
    type=Duration(),
    help="Size a join, too: these are its earlier events, and this is its `within`.",
)
@click.option("--join-wait", type=Duration(), help="`wait` of the join.  [default: 10m]")
@click.option("--later-rate", type=Amount(), help="Later events a second of the join.")
@click.option("--later-bytes", type=ByteSize(), help="Mean size of a later event of the join.")
@click.option(
    "--join-compression",
    type=Amount(),
    help="Bytes of events for each byte that the join needs on disk.  [default: 3]",
)
@click.option(
    "--measured",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the size of an event, the rate of a consumer, CPU and memory from this file of "
    "`headrace measure`, and say of each figure what it is made of.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure event size and rates on the project's own cluster.",
)
@click.option("--topic", help="Measure with this declared topic's newest events.")
@click.option(
    "--sample",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure with the events of this file, one JSON document a line.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=60),
    default=3.0,
    show_default=True,
    help="Duration of each measurement.",
)
def size(  # noqa: PLR0913 - one for each option
    session: Session,
    /,
    *,
    rate: Fraction,
    event_bytes: Fraction | None,
    retention: timedelta,
    replication: int,
    brokers: int,
    compression: Fraction,
    planned_rate: Fraction | None,
    consumer_rate: Fraction | None,
    lag: timedelta | None,
    throughput: Fraction | None,
    within: timedelta | None,
    file: Path | None,
    measure: bool,
    topic: str | None,
    sample: Path | None,
    seconds: float,
    **join: Any,
) -> SizeResult:
    """Compute disk, partitions and time to catch up.

    Needs no project. Units are binary: 1 TiB is 1024 GiB. With --measure it does need one: it
    sends and reads a sample of events on a topic of its own, which it deletes again. --measured
    adds cores, memory, network and `retention.bytes`. Both give the size and the consumer's rate.
    """
    from headrace.operations.sizing import needs, sizes, views

    caught_up = _catch_up(rate, lag, throughput, within)
    _check_join(join)
    _check_measure(measure, file, event_bytes, topic, sample)
    own = None if file is None else _read(file)
    origins = _origins(event_bytes, consumer_rate)
    measured = _measured(session, topic, sample, seconds) if measure else None
    event_bytes, consumer_rate = _rates(measured or own, event_bytes, consumer_rate)
    load = sizes.TopicLoad(
        rate,
        event_bytes or Fraction(0),
        retention,
        replication=replication,
        brokers=brokers,
        compression=compression,
        planned_events_per_second=planned_rate,
        consumed_per_second=consumer_rate,
    )
    needed = None if own is None else needs.needs_of(load, own, origins)
    joined = _join(load, **join)
    return views.SizeResult(load, sizes.size(load), caught_up, measured, joined, own, needed)


def _rates(
    source: Measurement | MeasuredDeclaration | None,
    event_bytes: Fraction | None,
    consumer_rate: Fraction | None,
) -> tuple[Fraction | None, Fraction | None]:
    """Returns the size of an event and the rate of a consumer: options come first."""
    if source is None:
        return event_bytes, consumer_rate
    return event_bytes or source.event_bytes, consumer_rate or source.consumer_rate


def _check_lag(
    lag: timedelta | None, throughput: Fraction | None, within: timedelta | None
) -> None:
    if lag is None and (throughput is not None or within is not None):
        raise click.UsageError("--throughput and --within need --lag, such as --lag 1d")
    if lag is not None and throughput is None and within is None:
        raise click.UsageError("--lag needs --throughput or --within, such as --within 1h")


def _check_join(join: Mapping[str, object]) -> None:
    options = [f"--{name.replace('_', '-')}" for name, value in join.items() if value is not None]
    if join["join_within"] is None and options:
        names = ", ".join(options)
        raise click.UsageError(f"{names} needs --join-within, such as --join-within 1d")


def _check_measure(
    measure: bool,
    file: Path | None,
    event_bytes: Fraction | None,
    topic: str | None,
    sample: Path | None,
) -> None:
    if measure and file is not None:
        raise click.UsageError("--measure and --measured both give rates; keep one")
    if not measure and file is None and event_bytes is None:
        raise click.UsageError(
            "--event-bytes is missing; give it, or --measured or --measure to find it out"
        )
    if not measure and (topic is not None or sample is not None):
        raise click.UsageError("--topic and --sample are for --measure, which is missing")
    if topic is not None and sample is not None:
        raise click.UsageError("--topic and --sample both give events; keep one")


def _read(file: Path) -> MeasuredDeclaration:
    from headrace.operations.measuring.result import read_measured

    try:
        return read_measured(file)
    except (OSError, ValueError) as error:
        remedy = "`headrace measure NAME -o FILE` writes one"
        raise click.BadParameter(f"{file}: {error}; {remedy}", param_hint="--measured") from error


def _origins(event_bytes: Fraction | None, consumer_rate: Fraction | None) -> Origins:
    """Returns which values of the load are from the command line, and which are from nowhere."""
    from headrace.operations.sizing.needs import Origins

    context = click.get_current_context()
    defaults = (
        name
        for name in ("retention", "replication", "brokers", "compression")
        if context.get_parameter_source(name) is ParameterSource.DEFAULT
    )
    return Origins(frozenset(defaults), event_bytes is None, consumer_rate is None)


def _measured(
    session: Session, topic: str | None, sample: Path | None, seconds: float
) -> Measurement:
    from headrace.kafka.admin.measuring import Bounds
    from headrace.operations.sizing.measuring import measure, sample_of_file, sample_of_topic
    from headrace.operations.sizing.views import measuring
    from headrace.project.services import broker_config

    # Before a request to the broker: a wrong name is an error of the command line.
    name = "" if sample else _declared(session, topic)
    config = broker_config(session.settings)
    events = sample_of_file(sample) if sample else sample_of_topic(config, name)
    # Without it, SIGTERM would leave the temporary topic behind.
    with interrupt_on_sigterm(), session.output.live(measuring) as on_run:
        return measure(config, events, Bounds(seconds), on_run)


def _declared(session: Session, topic: str | None) -> str:
    topics = session.project.topics.values()
    declared = [declared.name for declared in topics if declared.event is not None]
    if topic is None and len(declared) == 1:
        return declared[0]
    known = ", ".join(declared) or "none"
    if topic is None:
        raise click.UsageError(f"--measure needs --topic or --sample; declared topics: {known}")
    if topic not in declared:
        raise click.BadParameter(
            f"no topic {topic!r} with events; declared: {known}", param_hint="--topic"
        )
    return topic


def _join(
    load: TopicLoad,
    *,
    join_within: timedelta | None,
    join_wait: timedelta | None,
    later_rate: Fraction | None,
    later_bytes: Fraction | None,
    join_compression: Fraction | None,
) -> JoinSize | None:
    from headrace.operations.sizing.sizes import JOIN_COMPRESSION, JoinLoad, join_size

    if join_within is None:
        return None
    return join_size(
        JoinLoad(
            load.highest_rate,
            load.event_bytes,
            join_within,
            _WAIT if join_wait is None else join_wait,
            later_rate or Fraction(0),
            later_bytes or load.event_bytes,
            join_compression or JOIN_COMPRESSION,
        )
    )


def _catch_up(
    rate: Fraction, lag: timedelta | None, throughput: Fraction | None, within: timedelta | None
) -> CatchUp | None:
    from headrace.operations.sizing.sizes import CatchUp, catch_up, rate_to_catch_up

    _check_lag(lag, throughput, within)
    if lag is None:
        return None
    return CatchUp(
        lag,
        needs=catch_up(lag, rate, throughput) if throughput else None,
        within=within,
        rate_needed=rate_to_catch_up(lag, rate, within) if within else None,
    )
