"""The command line: the only place that prints."""


def main() -> None:
    """Entry point of the ``headrace`` command."""
    raise SystemExit("headrace: nothing here yet")
