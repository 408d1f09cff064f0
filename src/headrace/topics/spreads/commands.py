"""topics spread: the load of a topic by account, and over how many partitions accounts are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli.parameters import Duration
from headrace.cli.session import Session, command, epilog
from headrace.model import Topic

if TYPE_CHECKING:
    from headrace.topics.spreads.report import SpreadReport

_SPREAD = """headrace topics spread events --last 6h
headrace topics spread events --apply
headrace topics spread events --set acme=1 --apply"""


class _Width(click.ParamType):  # type: ignore[type-arg]
    """An account and a number of partitions: acme=4."""

    name = "account=number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Parses what is before the last `=`, and a number above zero."""
        if isinstance(value, tuple):
            return value
        account, _, number = str(value).rpartition("=")
        if not account or not number.isascii() or not number.isdecimal() or int(number) < 1:
            what = "no account with a number of partitions"
            self.fail(f"{value!r} is {what}; write acme=4", param, ctx)
        return account, int(number)


@click.group(epilog=epilog("Example", "headrace topics spread events"))
def topics() -> None:
    """Show the load of topics, and spread it."""


@command(_SPREAD)
@click.argument("topic")
@click.option(
    "--last",
    type=Duration(),
    default="1h",
    show_default=True,
    help="Look at the records of this time, by their timestamps.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    help="Read about this many records at most: the newest, and of each partition the same part.",
)
@click.option(
    "--above",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    metavar="PERCENT",
    help="An account may put this percentage of the mean load of a partition on one.",
)
@click.option(
    "--set",
    "widths",
    type=_Width(),
    multiple=True,
    help="Spread this account over so many partitions, and change no other; can be repeated.",
)
@click.option("--apply", is_flag=True, help="Apply the changes; producers follow.")
def spread(  # noqa: PLR0913 - one for each option
    session: Session,
    topic: str,
    *,
    last: timedelta,
    limit: int,
    above: int,
    widths: tuple[tuple[str, int], ...],
    apply: bool,
) -> SpreadReport:
    """Show the load of TOPIC by account, and spread it.

    It shows over how many partitions the accounts should be spread. TOPIC is partitioned by
    account. Without --apply nothing is changed. What is applied counts from a window on that lies
    further ahead than the lead which the topic declares.
    """
    from headrace.topics.spreads.report import SpreadOptions, spread_topic

    [declared] = session.declared(Topic, topic)
    options = SpreadOptions(last, limit, above, dict(widths), apply)
    return spread_topic(session.settings, declared, options, datetime.now(UTC))


topics.add_command(spread)
