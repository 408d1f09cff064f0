"""tail: shows the records of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.closed_pipe import ReaderGoneError, interrupt_when_closed
from headrace.cli.parameters import RecordStart, TopicName
from headrace.cli.session import INTERRUPTED, OK, Session, command, log_to_file, unknown
from headrace.cli.signals import interrupt_on_sigterm
from headrace.errors import TopicMissingError
from headrace.model import Format, Raw

if TYPE_CHECKING:
    from headrace.topics.tail import TailFrom

_TAIL = """headrace tail page-views
headrace tail page-views --from earliest --limit 10
headrace tail page-views.dead --from 2026-11-21T18:00:00Z --once --json"""
_STDOUT = 1


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
    from headrace.topics.tail import TailOptions, tail_topic

    log_to_file(session)
    options = TailOptions(start, limit, once, _format_of(session, topic))
    try:
        with interrupt_on_sigterm(), interrupt_when_closed(_STDOUT):
            for record in tail_topic(session.settings, topic, options):
                session.output.show(record)
    except TopicMissingError:
        from headrace.project.check import project_topics

        known = [topic.name for topic in project_topics(session.project)]
        if topic in known:
            # Declared, and not created yet: the error says `headrace apply`.
            raise
        raise unknown("topic", topic, known) from None
    except ReaderGoneError:
        session.exit_code = OK
    except KeyboardInterrupt:
        session.exit_code = INTERRUPTED if once else OK


def _format_of(session: Session, topic: str) -> Format:
    # Without a registry no record names a schema, so `tail` needs no project that can be loaded.
    if session.settings.schema_registry is None or topic not in session.project.topics:
        return Raw()
    return session.project.topics[topic].record_format
