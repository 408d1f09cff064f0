"""Views of `tail`."""

from __future__ import annotations

from headrace.cli.screen import Screen, content_text, safe, time_text
from headrace.cli.view import view
from headrace.kafka.read.tail import TailedRecord


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
