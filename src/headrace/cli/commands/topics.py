"""produce, tail: sends events to a topic, and shows its records."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.closed_pipe import ReaderGoneError, interrupt_when_closed
from headrace.cli.parameters import Header, RecordStart, Text, TopicName
from headrace.cli.session import (
    FAILED,
    INTERRUPTED,
    INVALID,
    OK,
    Session,
    command,
    log_to_file,
    unknown,
)
from headrace.cli.signals import interrupt_on_sigterm, stop_on_signal
from headrace.errors import TopicMissingError
from headrace.model import Format, Raw

if TYPE_CHECKING:
    from headrace.control.produce import ProduceResult
    from headrace.control.tail import TailFrom

_PRODUCE = """headrace produce page-views page-views.ndjson
my-program | headrace produce page-views --on-invalid skip"""
_TAIL = """headrace tail page-views
headrace tail page-views --from earliest --limit 10
headrace tail page-views.dead --from 2026-11-21T18:00:00Z --once --json"""
_STDOUT = 1
_EXITS = {"finished": OK, "rejected": INVALID, "interrupted": INTERRUPTED, "failed": FAILED}


@command(_PRODUCE)
@click.argument("topic")
@click.argument(
    "file",
    metavar="[FILE]",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
)
@click.option(
    "--on-invalid",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do at a line that is not a valid event of the topic.",
)
@click.option("--unchecked", is_flag=True, help="Send lines as they are, valid or not.")
@click.option(
    "--account",
    type=Text(),
    default="",
    help="Whose events these are: their key where the topic declares none.",
)
@click.option(
    "--header",
    "headers",
    type=Header(),
    multiple=True,
    help="Of every record; can be repeated.",
)
def produce(  # noqa: PLR0913 - one for each option
    session: Session,
    topic: str,
    file: Path,
    *,
    on_invalid: str,
    unchecked: bool,
    account: str,
    headers: tuple[tuple[str, bytes], ...],
) -> ProduceResult:
    """Send lines of FILE or stdin to TOPIC as JSON events.

    Events are checked, keyed and placed as `headrace ingest` does it, and counted when all in-sync
    replicas have them. A line that is not valid is shown with its number and the reason, and ends
    the command with 2, unless --on-invalid skip leaves it out. Ctrl-C stops reading, and waits
    until Kafka has acknowledged the events that were sent; a second one stops at once.
    """
    from headrace.cli.views.lifecycle import Stopping
    from headrace.cli.views.topics import producing
    from headrace.control.produce import ProduceOptions, produce_lines

    declared = session.project.topics
    if topic not in declared:
        raise unknown("topic", topic, declared)
    options = ProduceOptions(
        skip_invalid=on_invalid == "skip", unchecked=unchecked, account=account, headers=headers
    )
    log_to_file(session)
    with (
        _opened(file) as descriptor,
        session.output.live(producing) as observe,
        stop_on_signal(lambda: session.output.show(Stopping())) as stop,
    ):
        result = produce_lines(
            session.project, topic, descriptor, options, observe=observe, stop=stop
        )
    session.exit_code = _EXITS[result.state]
    return result


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    if str(file) == "-":
        # The descriptor, not the stream: Python would read ahead and keep lines back from `select`.
        yield sys.stdin.fileno()
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@command(_TAIL)
@click.argument("topic", type=TopicName())
@click.option(
    "--from",
    "start",
    type=RecordStart(),
    default="latest",
    show_default=True,
    help="earliest, latest, or the first records since a time such as 2026-11-21T18:00:00Z.",
)
@click.option("--limit", type=click.IntRange(min=1), help="End after this many records.")
@click.option("--once", is_flag=True, help="End with the records that the topic holds now.")
def tail(session: Session, topic: str, *, start: TailFrom, limit: int | None, once: bool) -> None:
    """Show records of TOPIC as they come, until Ctrl-C.

    It also ends when the command that reads its output does: `headrace tail T | head -1`.

    TOPIC is any topic of the cluster, also one of dead letters (TOPIC.dead). No consumer group
    is joined and no offset is committed. Values of Avro, JSON Schema and Protobuf topics
    of the project are shown as JSON.
    """
    from headrace.control.tail import TailOptions, tail_topic

    log_to_file(session)
    options = TailOptions(start, limit, once, _format_of(session, topic))
    try:
        with interrupt_on_sigterm(), interrupt_when_closed(_STDOUT):
            for record in tail_topic(session.settings, topic, options):
                session.output.show(record)
    except TopicMissingError:
        known = _known_topics(session)
        if topic in known:
            # Declared, and not created yet: the error says `headrace apply`.
            raise
        raise unknown("topic", topic, known) from None
    except ReaderGoneError:
        session.exit_code = OK
    except KeyboardInterrupt:
        session.exit_code = INTERRUPTED if once else OK


def _format_of(session: Session, topic: str) -> Format:
    # Without a registry no record names a schema, and a look needs no project that can be loaded.
    if session.settings.schema_registry is None or topic not in session.project.topics:
        return Raw()
    return session.project.topics[topic].record_format


def _known_topics(session: Session) -> list[str]:
    from headrace.control.plan import project_topics

    return [topic.name for topic in project_topics(session.project)]
