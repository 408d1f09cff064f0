"""produce: sends events to a topic."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.parameters import Header, Text
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
from headrace.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from headrace.ingest.producing.produce import ProduceResult

_PRODUCE = """headrace produce page-views page-views.ndjson
my-program | headrace produce page-views --on-invalid skip"""
_AVRO = ".avro"
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
    until Kafka has acknowledged the events that were sent; a second one stops at once. A FILE whose
    name ends with .avro is an Avro container file, and each of its records is a line.
    """
    from headrace.cli.view import Stopping
    from headrace.ingest.producing.produce import ProduceOptions, produce_lines
    from headrace.ingest.producing.views import producing

    declared = session.project.topics
    if topic not in declared:
        raise unknown("topic", topic, declared)
    is_avro = file.suffix == _AVRO
    if is_avro and (unchecked or declared[topic].event is None):
        raise click.UsageError("an Avro file needs a topic with an event class, and no --unchecked")
    options = ProduceOptions(
        skip_invalid=on_invalid == "skip",
        unchecked=unchecked,
        account=account,
        headers=headers,
        is_avro=is_avro,
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
