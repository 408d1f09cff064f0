"""dead-letters list, show, replay: records that were rejected."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

import click

from headrace.cli.parameters import Time
from headrace.cli.session import Session, command, epilog, unknown

if TYPE_CHECKING:
    from headrace.kafka.dead_letters.replay import DeadLetterFilter
    from headrace.topics.dead_letters.views import (
        DeadLetterContents,
        DeadLetterCounts,
        DeadLetterList,
        ReplayResult,
    )

_RECORD = "TOPIC/PARTITION:OFFSET[#INDEX]"
_LIST = """headrace dead-letters list
headrace dead-letters list impressions --reason wrong-type --since 2026-11-21T18:00:00Z"""
_reasons = click.option(
    "--reason", "reasons", multiple=True, help="Only with this reason; can be repeated."
)
_pipelines = click.option(
    "--pipeline",
    "pipelines",
    multiple=True,
    help="Only of this pipeline or worker; can be repeated.",
)
_since = click.option("--since", type=Time(), help="Only those written since this time.")


@click.group(name="dead-letters", epilog=epilog("Example", "headrace dead-letters list"))
def dead_letters() -> None:
    """List, show and replay dead letters."""


@command(_LIST, name="list")
@click.argument("topic", required=False)
@_reasons
@_pipelines
@_since
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Of TOPIC, at most this many.",
)
def list_(
    session: Session,
    topic: str | None,
    *,
    reasons: tuple[str, ...],
    pipelines: tuple[str, ...],
    since: datetime | None,
    limit: int,
) -> DeadLetterCounts | DeadLetterList:
    """Count dead letters per topic, or show the latest of TOPIC."""
    from headrace.project.services import broker_config
    from headrace.topics.dead_letters.held_letters import (
        counted_topics,
        latest_dead_letters,
        listable_topics,
        summarize,
    )
    from headrace.topics.dead_letters.views import DeadLetterCounts, DeadLetterList

    only = _filter(reasons, pipelines, (), since)
    if topic:
        _check_topic(topic, listable_topics(session.project))
        config = broker_config(session.settings)
        return DeadLetterList(tuple(latest_dead_letters(config, topic, only, limit)))
    config = broker_config(session.settings)
    topics = counted_topics(session.project, config)
    return DeadLetterCounts(tuple(summarize(config, name, only) for name in topics))


@command("headrace dead-letters show impressions/3:1042")
@click.argument("record", metavar=_RECORD)
def show(session: Session, record: str) -> DeadLetterContents:
    """Show why a record was rejected, and its content."""
    from headrace.project.services import broker_config
    from headrace.topics.dead_letters.held_letters import find_dead_letters
    from headrace.topics.dead_letters.views import DeadLetterContents

    _check_records((record,))
    letters = find_dead_letters(broker_config(session.settings), record)
    if not letters:
        raise click.BadParameter(f"no dead letter of {record}")
    return DeadLetterContents(tuple(letters))


@command("headrace dead-letters replay impressions --reason wrong-type --dry-run")
@click.argument("topic")
@_reasons
@_pipelines
@click.option(
    "--record",
    "records",
    multiple=True,
    metavar=_RECORD,
    help="Only of this record; can be repeated.",
)
@_since
@click.option("--again", is_flag=True, help="Also those replayed before.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
def replay(  # noqa: PLR0913 - one for each option
    session: Session,
    topic: str,
    *,
    reasons: tuple[str, ...],
    pipelines: tuple[str, ...],
    records: tuple[str, ...],
    since: datetime | None,
    again: bool,
    dry_run: bool,
) -> ReplayResult:
    """Send dead letters back to their TOPIC, each once.

    Only the pipelines and workers that rejected a record take it again. A second replay sends
    nothing that the first one sent. A record that was replayed three times is left out.
    """
    from headrace.topics.dead_letters.held_letters import replay_dead_letters
    from headrace.topics.dead_letters.views import ReplayResult

    _check_topic(topic, session.project.dead_lettered)
    _check_records(records)
    only = _filter(reasons, pipelines, records, since)
    replayed = replay_dead_letters(session.project, topic, only, again=again, dry_run=dry_run)
    return ReplayResult(topic, replayed, dry_run)


def _filter(
    reasons: tuple[str, ...],
    pipelines: tuple[str, ...],
    records: tuple[str, ...],
    since: datetime | None,
) -> DeadLetterFilter:
    from headrace.kafka.dead_letters.replay import DeadLetterFilter

    since_ms = -1 if since is None else round(since.timestamp() * 1000)
    return DeadLetterFilter(frozenset(reasons), frozenset(pipelines), frozenset(records), since_ms)


def _check_topic(topic: str, known: Collection[str]) -> None:
    if topic not in known:
        raise unknown("topic with dead letters", topic, known)


def _check_records(records: tuple[str, ...]) -> None:
    from headrace.topics.dead_letters.held_letters import wrong_origins

    for wrong in wrong_origins(records):
        raise click.BadParameter(f"{wrong!r} is not {_RECORD}")


for subcommand in (list_, show, replay):
    dead_letters.add_command(subcommand)
