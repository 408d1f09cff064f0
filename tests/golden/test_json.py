"""What commands show with ``--json``: members, types and values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import click
import pytest
from tests.golden.documents import LIVE, RESULTS
from tests.golden.files import golden_folder
from tests.golden.samples import samples_of_result

from headrace.cli import main
from headrace.cli.encoding import encoded
from headrace.cli.json_output import JsonOutput
from headrace.errors import Problem, ProjectError, TopicMissingError

_OF_FILES = "status"
"""This command is compared by :mod:`tests.golden.test_statuses`, from files to the document."""
_OF_THIS_MACHINE = "version"


def test_documents_of_every_command() -> None:
    texts = {
        f"{name.replace(' ', '-')}.json": _text(documents)
        for name, command in _commands(main)
        if name not in {_OF_FILES, _OF_THIS_MACHINE}
        and (documents := [*_live(name), *_results(name, command)])
    }
    golden_folder("json/commands", texts)


def test_documents_of_errors(capsys: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("shop.py", 3, "no topic", "declare it"), Problem("shop.py", 5, "no key")]
    failures = [ProjectError(problems), TopicMissingError("clicks")]
    for failure in failures:
        JsonOutput().failed(failure)
    lines = capsys.readouterr().out.splitlines()
    golden_folder("json/errors", {"errors.json": _text(map(json.loads, lines))})


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def _live(name: str) -> list[object]:
    """The lines that a command shows while it runs."""
    lines: list[object] = []
    if name in LIVE:
        live, progress = LIVE[name]
        with live.in_json(lines.append) as observe:
            for value in progress:
                observe(value)
    return lines


def _results(name: str, command: click.Command) -> list[object]:
    return RESULTS.get(name) or samples_of_result(command.callback.__wrapped__)


def _text(documents: Iterable[object]) -> str:
    """The documents that a command shows, in their order."""
    return json.dumps([encoded(value) for value in documents], ensure_ascii=False, indent=1)
