"""What a user types and gets back: help, options and exit codes of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
from tests.golden.files import golden, golden_folder

from headrace import errors
from headrace.cli import main
from headrace.cli.session import EXIT_CODES

_WIDTH = 100


def test_help_and_options_of_every_command() -> None:
    root = _context(main, None, "headrace")
    texts = {"headrace.txt": _page(root)}
    for context in _commands(root):
        texts[context.command_path.removeprefix("headrace ").replace(" ", "-") + ".txt"] = _page(
            context
        )
    golden_folder("commands", texts)


def test_exit_codes() -> None:
    lines = [f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()]
    lines += ["", "error: exit code, and the code in JSON"]
    for name in sorted(errors.__all__):
        error = getattr(errors, name)
        if isinstance(error, type) and issubclass(error, errors.HeadraceError):
            refused = issubclass(error, errors.RefusedError)
            codes = error.codes() if refused else (getattr(error, "code", name),)
            lines.append(" ".join((f"{name}: {error.exit_code}", *codes)))
    golden("exit-codes.txt", "\n".join(lines))


def _commands(parent: click.Context) -> Iterator[click.Context]:
    """The context of every command below ``parent``, groups first."""
    group = parent.command
    for name, command in group.commands.items() if isinstance(group, click.Group) else ():
        context = _context(command, parent, name)
        yield context
        yield from _commands(context)


def _context(command: click.Command, parent: click.Context | None, name: str) -> click.Context:
    # A command keeps its option for help, whose names are those of its first context.
    settings = {**command.context_settings, "terminal_width": _WIDTH}
    return click.Context(command, parent, info_name=name, **settings)


def _page(context: click.Context) -> str:
    parameters = (_described(parameter) for parameter in context.command.get_params(context))
    return "\n".join([context.get_help(), "", "Parameters:", *parameters])


def _described(parameter: click.Parameter) -> str:
    known = parameter.to_info_dict()
    names = " ".join((*known["opts"], *known["secondary_opts"]))
    kind = known["type"]["name"]
    choices = known["type"].get("choices")
    members = {
        "default": known["default"],
        "required": known["required"],
        "multiple": known["multiple"],
        "nargs": known["nargs"],
        "is_flag": known.get("is_flag", False),
        "hidden": known.get("hidden", False),
        "envvar": known["envvar"],
        "choices": choices and list(choices),
    }
    usual = {"nargs": 1}
    unusual = [
        f"{name}={value!r}"
        for name, value in members.items()
        if value and value != usual.get(name) and "UNSET" not in repr(value).upper()
    ]
    return " ".join((f"  {names}: {kind}", *unusual))
