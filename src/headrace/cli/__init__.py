"""The command line: the only place that prints."""

from headrace.cli.main import main

__all__ = ["main"]
