"""``headrace`` and ``python -m headrace``: the command, which Ctrl-C ends from the first import."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # as in `headrace.cli.session`, which may not be imported yet


def main() -> None:
    """Imports the command line, which takes a third of a second, and runs it."""
    try:
        from headrace.cli import main as command

        command(prog_name="headrace")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
