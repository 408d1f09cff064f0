"""The quickstart as a recorded terminal: ``make recording`` runs its page and draws the picture."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.docs.terminal import Step, run, svg

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/quickstart.md"
PICTURE = ROOT / "docs/images/quickstart.svg"
SHOWN = (
    "headrace init ads",
    "cd ads",
    "headrace up",
    "headrace apply",
    "headrace produce page-views page-views.ndjson",
    "headrace run --once",
    "headrace run --once",
    "headrace status",
    "headrace down",
)
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The commands of the page, one a line."""
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [line for block in blocks for line in block.splitlines() if line]


def shown(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps that the picture has, in order."""
    waited_for = iter(SHOWN)
    command = next(waited_for)
    for step in steps:
        if step.command == command:
            yield step
            command = next(waited_for, "")


def drawn(steps: Sequence[Step]) -> str:
    """The picture of a run of the page."""
    return svg(list(shown(steps)), "The quickstart, in a terminal")


def without_figures(lines: Iterable[str]) -> list[str]:
    """Lines that are equal in each run: without numbers, the width of columns, and slow starts."""
    lasting = (line for line in lines if ": idle: " not in line)
    return [re.sub(r"[\d.,]*\d", "0", " ".join(line.split())) for line in lasting]


def main() -> None:
    """Runs the page in an empty folder, and replaces the picture."""
    bin_folder = Path(sys.executable).parent
    environ = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(drawn(run(commands(), Path(folder), environ)), encoding="utf-8")


if __name__ == "__main__":
    main()
