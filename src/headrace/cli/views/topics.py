"""Views of `produce` and `tail`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, content_text, safe, status_line, time_text
from headrace.cli.views import view
from headrace.control.produce import (
    ObserveProduce,
    ProduceProgress,
    ProduceResult,
    RejectedLine,
)
from headrace.kafka.tail import TailedRecord

_ENDINGS = {
    "finished": "",
    "interrupted": " Interrupted: the lines that follow were not read.",
    "rejected": (
        " The last line that was read is not valid, and the lines that follow were not read. "
        "Correct it and go on from there, or leave such lines out with --on-invalid skip."
    ),
    "failed": " The lines that follow the last one that was read were not sent.",
}


@view.register
def _rejected(line: RejectedLine, screen: Screen) -> None:
    screen.error_line(f"[bold]line {line.line}[/]: {safe(line.detail)} ({safe(line.reason)})")
    screen.error_line(f"  [dim]{safe(line.text)}")


@view.register
def _produced(result: ProduceResult, screen: Screen) -> None:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in result.reasons.items())
    rejected = f"{result.rejected:,} rejected" + (f" ({reasons})" if reasons else "")
    topic, ending = safe(result.topic), _ENDINGS[result.state]
    text = f"{result.sent:,} of {result.lines:,} line(s) sent to [bold]{topic}[/], {rejected}."
    screen.line(text + ending)
    if result.not_acknowledged:
        lines = ", ".join(map(str, result.failed_lines))
        more = " ..." if result.not_acknowledged > len(result.failed_lines) else ""
        screen.error_line(
            f"[red]{result.not_acknowledged:,} event(s) were not acknowledged and may be in the "
            f"topic or not (line {lines}{more}): {safe(result.failure)}"
        )


@view.register
def _tailed(record: TailedRecord, screen: Screen) -> None:
    place = f"[bold]{safe(record.topic)}/{record.partition}:{record.offset}[/]"
    key = safe(content_text(record.key))
    value = safe(content_text(record.value))
    screen.line(f"{place} [dim]{time_text(record.timestamp_ms)}[/] [cyan]{key}[/] {value}")
    if record.headers is None:
        screen.line("  [dim]headers can't be read: a name is not UTF-8")
    for header in record.headers or ():
        screen.line(f"  [dim]{safe(header.name)}: {safe(content_text(header.value))}")


@contextmanager
def _on_screen(screen: Screen) -> Iterator[ObserveProduce]:
    # On stderr: stdout holds the result alone.
    with status_line(screen.err, "Sending") as show:

        def observe(event: ProduceProgress | RejectedLine) -> None:
            if isinstance(event, RejectedLine):
                view(event, screen)
            else:
                lines, rejected = f"{event.lines:,} lines", f"{event.rejected:,} rejected"
                show(f"{lines} read, {event.sent:,} sent, {rejected}")

        yield observe


@contextmanager
def _in_json(print_line: PrintLine) -> Iterator[ObserveProduce]:
    def observe(event: ProduceProgress | RejectedLine) -> None:
        if isinstance(event, RejectedLine):
            print_line(event)

    yield observe


producing = Live(_on_screen, _in_json)
