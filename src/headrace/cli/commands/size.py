"""size: how large a topic and its cluster must be."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from headrace.cli.parameters import Amount, Duration
from headrace.cli.session import Session, command

if TYPE_CHECKING:
    from headrace.control.sizing import CatchUp

_EXAMPLE = """headrace size --rate 10000 --event-bytes 2500 --retention 7d --brokers 4
headrace size --rate 10000 --event-bytes 2500 --planned-rate 20000 --consumer-rate 2650
headrace size --rate 20K --event-bytes 500 --lag 1d --within 1h --throughput 57.74K"""


@command(_EXAMPLE)
@click.option("--rate", type=Amount(), required=True, help="Events a second.")
@click.option("--event-bytes", type=Amount(), required=True, help="Mean size of an event.")
@click.option("--retention", type=Duration(), default="7d", show_default=True, help="Kept so long.")
@click.option("--replication", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--brokers", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--compression", type=Amount(), default="1", show_default=True, help="In for 1 out.")
@click.option("--planned-rate", type=Amount(), help="Events a second to be expected later.")
@click.option("--consumer-rate", type=Amount(), help="Events a second of one consumer, measured.")
@click.option("--lag", type=Duration(), help="To catch up with, as time of arrivals.")
@click.option("--throughput", type=Amount(), help="Events a second of all consumers together.")
@click.option("--within", type=Duration(), help="Time in which to catch up.")
def size(  # noqa: PLR0913 - one each option
    session: Session,
    *,
    rate: Fraction,
    event_bytes: Fraction,
    retention: timedelta,
    replication: int,
    brokers: int,
    compression: Fraction,
    planned_rate: Fraction | None,
    consumer_rate: Fraction | None,
    lag: timedelta | None,
    throughput: Fraction | None,
    within: timedelta | None,
) -> None:
    """Compute disk, partitions and the time to catch up with a lag.

    Needs no project. Units are binary: 1 TiB is 1024 GiB.
    """
    from headrace.control.sizing import Load
    from headrace.control.sizing import size as compute

    if lag is None and (throughput is not None or within is not None):
        raise click.UsageError("--throughput and --within need --lag, such as --lag 1d")
    if lag is not None and throughput is None and within is None:
        raise click.UsageError("--lag needs --throughput or --within, such as --within 1h")
    load = Load(
        rate,
        event_bytes,
        retention,
        replication=replication,
        brokers=brokers,
        compression=compression,
        planned_events_per_second=planned_rate,
        consumed_per_second=consumer_rate,
    )
    session.output.sized(load, compute(load), _catch_up(rate, lag, throughput, within))


def _catch_up(
    rate: Fraction, lag: timedelta | None, throughput: Fraction | None, within: timedelta | None
) -> CatchUp | None:
    from headrace.control.sizing import CatchUp, catch_up, rate_to_catch_up

    if lag is None:
        return None
    return CatchUp(
        lag,
        needs=catch_up(lag, rate, throughput) if throughput else None,
        within=within,
        rate_needed=rate_to_catch_up(lag, rate, within) if within else None,
    )
