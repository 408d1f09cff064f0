"""Prints on a terminal or into a file, and makes texts safe for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from headrace.cli.closed_pipe import end_output

# rich takes a file for a terminal of 80 columns, and wraps and cuts what programs search and people
# paste into issues. This is wider than any line.
FILE_WIDTH = 1_000_000
# Into a file or pipe, progress is a new line each time, so it is shown less often.
LINE_SECONDS = 5.0
MAX_SHOWN_BYTES = 4_000


class _Console(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        """Returns a text, in which nothing that a user wrote moves the cursor or sets a colour."""
        return super().render_str(_printable(text, but="\n\t"), **options)

    def on_broken_pipe(self) -> None:
        """Ends the process as JSON does, in place of rich's own SystemExit."""
        self.quiet = True
        end_output(sys.stdout.fileno())


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else FILE_WIDTH
    # With emoji, a value that holds ":x:" would be shown as a picture.
    return _Console(stderr=stderr, width=width, emoji=False)


@dataclass(frozen=True)
class Screen:
    """The console of results (``out``), and that of errors and progress (``err``)."""

    out: Console = field(default_factory=lambda: _console(stderr=False))
    err: Console = field(default_factory=lambda: _console(stderr=True))

    def line(self, markup: str) -> None:
        """Prints a line of markup, however long it is, on ``out``."""
        self.out.print(markup, highlight=False, soft_wrap=True)

    def error_line(self, markup: str) -> None:
        """Prints a line of markup, however long it is, on ``err``."""
        self.err.print(markup, highlight=False, soft_wrap=True)

    def warning(self, text: str) -> None:
        """Prints a text as it is, in yellow, on ``out``."""
        self.out.print(f"[yellow]{escape(text)}", soft_wrap=True)


class _Table(Table):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the rows; in a file, no line ends with the spaces that fill its last column."""
        shown = cast("Iterable[Segment]", super().__rich_console__(console, options))
        if console.is_terminal:
            yield from shown
            return
        for line in Segment.split_lines(shown):
            while line and not line[-1].text.strip(" "):
                line.pop()
            if line:
                text, style, control = line.pop()
                line.append(Segment(text.rstrip(" "), style, control))
            yield from (*line, Segment.line())


def table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    """Returns an empty table; the numbers of ``right`` are those of columns of figures."""
    empty = _Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        empty.add_column(name, overflow="fold", justify="right" if number in right else "left")
    return empty


def with_remarks(
    shown: Table, remarks: Iterable[tuple[str, str]], markup: Callable[[str], str] = escape
) -> Group:
    """Returns a table, and below it remarks, each after the name of what it is about.

    Args:
        shown: the table.
        remarks: pairs of a name and a text.
        markup: makes markup of a text; :func:`safe` where others than the operator wrote it.
    """
    return Group(shown, *(f"[dim]{markup(f'{name}: {text}')}" for name, text in remarks))


def time_text(milliseconds: int) -> str:
    """Returns a time since 1970 to the second, or the number if it is beyond the year 9999.

    The text is empty where there is no time.
    """
    if milliseconds < 0:
        return ""
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError):  # Kafka keeps any number that a producer has sent
        return f"{milliseconds} ms after 1970"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")


def content_text(content: bytes | None) -> str:
    """Returns bytes as text, cut at 4,000 bytes; still to be made :func:`safe`."""
    if content is None:
        return "null"
    shown = content[:MAX_SHOWN_BYTES]
    rest = f" ... ({len(content)} bytes)" if len(content) > MAX_SHOWN_BYTES else ""
    return shown.decode("utf-8", errors="backslashreplace") + rest


def safe(text: str) -> str:
    """Returns what producers wrote as markup, without characters that a terminal would execute."""
    return escape(_printable(text))


def _printable(text: str, but: str = "") -> str:
    return "".join(
        character
        if character.isprintable() or character in but
        else character.encode("unicode_escape").decode()
        for character in text
    )


@contextmanager
def status_line(console: Console, first: str) -> Iterator[Callable[[str], None]]:
    """Gives a function that shows the progress of a command.

    On a terminal it is a line that changes, elsewhere a new line every few seconds.
    """
    with console.status(first) as status:
        printed = time.monotonic()

        def show(text: str) -> None:
            nonlocal printed
            status.update(escape(text))
            if not console.is_terminal and time.monotonic() - printed >= LINE_SECONDS:
                printed = time.monotonic()
                console.print(text, markup=False, highlight=False, soft_wrap=True)

        yield show
