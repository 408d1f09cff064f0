"""``python -m headrace.cli``: the command where its script is not on the path."""

from headrace.cli import main

main(prog_name="headrace")
