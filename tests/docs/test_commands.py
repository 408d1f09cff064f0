"""The command line and its reference say the same, and every command on a page exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import click
import pytest

from headrace.cli import main
from headrace.cli.session import EXIT_CODES

_PAGE = "docs/reference/commands.md"
_INLINE = re.compile(r"`(headrace [^`\n]+)`")
_HEADING = re.compile(r"^### `headrace (?P<usage>[^`]+)`$", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_COMMON = {"--json", "--project", "--debug", "--help", "-h"}
_SHELLS = ("sh", "bash")


def _commands(group: click.Group = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(_commands())


def _options(command: click.Command) -> set[str]:
    options = (one for one in command.params if isinstance(one, click.Option))
    return {name for one in options for name in one.opts}


@pytest.fixture(scope="session")
def sections(pages: dict[str, str]) -> dict[str, str]:
    """Text of each command's section, by the command's name."""
    parts = _HEADING.split(pages[_PAGE])[1:]
    return {_name_in(usage): text for usage, text in zip(parts[::2], parts[1::2], strict=True)}


def test_every_command_has_a_section_and_no_other(sections: dict[str, str]) -> None:
    assert sections.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name: str, sections: dict[str, str]) -> None:
    rows = "\n".join(line for line in sections[name].splitlines() if line.startswith("| `-"))
    assert set(_OPTION.findall(rows)) == _options(COMMANDS[name]) - _COMMON


def test_common_options_are_documented(pages: dict[str, str]) -> None:
    section = pages[_PAGE].partition("## Every command")[2].partition("\n## ")[0]
    documented = {
        name
        for line in section.splitlines()
        if line.startswith("| `-")
        for name in _OPTION.findall(line.partition(" | ")[0])
    }
    assert documented == _COMMON


def test_every_exit_code_is_documented(pages: dict[str, str]) -> None:
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in pages[_PAGE]


def test_every_command_on_a_page_exists_with_its_options(
    pages: dict[str, str], blocks: Callable[[str], list]
) -> None:
    wrong = [f"{page}: {line}" for page, line in _mentioned(pages, blocks) if not _exists(line)]
    assert not wrong


def _mentioned(pages: dict[str, str], blocks: Callable[[str], list]) -> Iterator[tuple[str, str]]:
    for page, text in pages.items():
        yield from ((page, line) for line in _INLINE.findall(text))
    for block in (block for shell in _SHELLS for block in blocks(shell)):
        for line in block.text.splitlines():
            if line.startswith("headrace "):
                yield block.page, line.partition("#")[0]


def _exists(line: str) -> bool:
    words = shlex.split(line)[1:]
    name = _name_in(" ".join(words))
    options = {word for word in words if word.startswith("-")}
    if name in COMMANDS:
        return options <= _options(COMMANDS[name]) | _COMMON
    return (
        name in {"COMMAND", "dead-letters", "checkpoint", "workers"} or line == "headrace --version"
    )


def _name_in(usage: str) -> str:
    """The longest command that ``usage`` begins with, or its first word."""
    words = usage.split()
    return next((name for size in (2, 1) if (name := " ".join(words[:size])) in COMMANDS), words[0])
