"""Runs commands in a terminal, and draws what it shows: text, colours, and lines drawn again."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

# Tables are not folded in so wide a terminal; the picture has what fits a page of each line.
COLUMNS, ROWS, DRAWN_COLUMNS = 160, 50, 108
_NEXT = "\x1e"  # ends the output of a command
_TOKEN = re.compile(r"\x1b\[(?P<numbers>[\d;?]*)(?P<act>[A-Za-z])|[\r\n]|[^\x1b\r\n]")
_COLOURS = {31: "red", 32: "green", 33: "yellow", 34: "blue", 35: "magenta", 36: "cyan"}
_LINE_HEIGHT, _LEFT, _TOP = 16, 16, 44
_WIDTH = 800
_STYLE = """\
    text { font: 11px ui-monospace, monospace; fill: #1f2328; white-space: pre }
    .prompt { fill: #59636e } .bold { font-weight: 700 } .dim { fill: #59636e }
    .red { fill: #d1242f } .green { fill: #1a7f37 } .yellow { fill: #9a6700 }
    .blue { fill: #0969da } .magenta { fill: #8250df } .cyan { fill: #1b7c83 }
    .page { fill: #f6f8fa; stroke: #d1d9e0 } .button { fill: #d1d9e0 }
    .step { animation: appear 0.1s backwards } @keyframes appear { from { opacity: 0 } }
    @media (prefers-reduced-motion: reduce) { .step { animation: none } }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc } .prompt, .dim { fill: #9198a1 }
      .red { fill: #f85149 } .green { fill: #3fb950 } .yellow { fill: #d29922 }
      .blue { fill: #4493f8 } .magenta { fill: #ab7df8 } .cyan { fill: #39c5cf }
      .page { fill: #0d1117; stroke: #3d444d } .button { fill: #3d444d }
    }"""

Cell = tuple[str, str]
"""A character, and its classes."""


@dataclass(frozen=True)
class Step:
    """A command, and what the terminal shows of it at its end."""

    command: str
    lines: tuple[tuple[Cell, ...], ...]

    @property
    def texts(self) -> list[str]:
        """The lines without colours."""
        return ["".join(text for text, _ in line).rstrip() for line in self.lines]


def run(commands: Sequence[str], folder: Path, environ: Mapping[str, str]) -> list[Step]:
    """Runs commands in one shell, until one fails.

    Raises:
        CalledProcessError: if one fails, with what the terminal showed, and the errors.
    """
    script = "".join(f"{command}\nprintf '{_NEXT}\\n'\n" for command in commands)
    terminal, own_end = pty.openpty()
    fcntl.ioctl(own_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    # Set here, since the width of the terminal around this process may be in its environment.
    size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    environ = {**environ, **size, "TERM": "xterm-256color"}
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            ["bash", "-ec", script],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=own_end,
            stderr=errors,
        ) as shell:
            os.close(own_end)
            shown = b"".join(_read(terminal)).decode()
        os.close(terminal)
        if shell.returncode:
            errors.seek(0)
            raise subprocess.CalledProcessError(
                shell.returncode, script, shown, errors.read().decode()
            )
    outputs = shown.split(f"{_NEXT}\r\n")
    return [
        Step(command, tuple(_screen(output.replace(f"{folder}/", "~/"))))
        for command, output in zip(commands, outputs, strict=False)
    ]


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # no process has the terminal any more
            return
        yield read


def _screen(output: str) -> Iterator[tuple[Cell, ...]]:
    """The lines that stay: rich goes up and erases a line before it draws it again."""
    lines: list[list[Cell]] = [[]]
    row = column = 0
    style: dict[str, None] = {}
    for token in _TOKEN.finditer(output):
        match token["act"], token[0]:
            case "A", _:
                row = max(0, row - int(token["numbers"] or 1))
            case "K", _:
                lines[row] = []
            case "m", _:
                style = _styled(style, token["numbers"])
            case None, "\r":
                column = 0
            case None, "\n":
                row += 1
                lines += [[] for _ in range(row + 1 - len(lines))]
            case None, text:
                lines[row] += [(" ", "")] * (column + 1 - len(lines[row]))
                lines[row][column] = text, " ".join(style)
                column += 1
    while lines and not lines[-1]:
        lines.pop()
    return map(tuple, lines)


def _styled(style: dict[str, None], numbers: str) -> dict[str, None]:
    style = dict(style)
    for number in map(int, filter(None, (numbers or "0").split(";"))):
        if number == 0:
            style = {}
        elif name := {1: "bold", 2: "dim"}.get(number) or _COLOURS.get(number):
            style[name] = None
    return style


def svg(steps: Sequence[Step], title: str) -> str:
    """The terminal after these steps; a step appears after the one before."""
    rows = sum(1 + len(step.lines) for step in steps)
    height = _TOP + _LINE_HEIGHT * rows
    content: list[str] = []
    row = 0
    for number, step in enumerate(steps):
        prompt = (("$ ", "prompt"), (step.command, "bold"))
        texts = [
            _text(prompt, row),
            *(_text(line, row + 1 + n) for n, line in enumerate(step.lines)),
        ]
        row += len(texts)
        content += [f'  <g class="step" style="animation-delay: {number}s">', *texts, "  </g>"]
    drawn = "\n".join(content)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" \
height="{height}" role="img" aria-labelledby="title desc">
  <title id="title">{escape(title)}</title>
  <desc id="desc">A terminal: {escape(", ".join(step.command for step in steps))}.</desc>
  <style>
{_STYLE}
  </style>
  <rect class="page" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>
  <circle class="button" cx="20" cy="16" r="5"/><circle class="button" cx="38" cy="16" r="5"/>
{drawn}
</svg>
"""


def _text(line: Sequence[Cell], row: int) -> str:
    if len(line) > DRAWN_COLUMNS:
        line = [*line[: DRAWN_COLUMNS - 1], ("…", "dim")]
    spans = [
        (style, escape("".join(text for text, _ in cells)))
        for style, cells in groupby(line, key=lambda cell: cell[1])
    ]
    styled = (f'<tspan class="{style}">{text}</tspan>' if style else text for style, text in spans)
    y = _TOP + _LINE_HEIGHT * row
    return f'    <text x="{_LEFT}" y="{y}" xml:space="preserve">{"".join(styled).rstrip()}</text>'


def drawn_lines(picture: str) -> list[str]:
    """The lines of a picture that ``svg`` has made."""
    texts = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).rstrip() for text in texts]
