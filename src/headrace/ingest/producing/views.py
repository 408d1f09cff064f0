"""Views of `produce`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, safe, status_line
from headrace.cli.view import view
from headrace.ingest.producing.produce import (
    ObserveProduce,
    ProduceProgress,
    ProduceResult,
    RejectedLine,
)

_ENDINGS = {
    "finished": "",
    "interrupted": " Interrupted: the lines that follow were not read.",
    "rejected": (
        " The last line that was read is not valid, and the lines that follow were not read. "
        "Correct it and continue from there, or leave such lines out with --on-invalid skip."
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
