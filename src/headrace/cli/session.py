"""Runs a command: common options, the project that it works in, exit codes, failures."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from headrace.errors import HeadraceError, Problem, ProjectError
from headrace.runtime.extras import require_extra
from headrace.runtime.logs import Subject, log_to
from headrace.settings import PROJECT_FILE, Settings, environment, find_project, read_settings

if TYPE_CHECKING:
    from headrace.cli.output import Output
    from headrace.project.kind import Value
    from headrace.project.loaded import LoadedProject

Arguments = ParamSpec("Arguments")

OK, FAILED, INVALID, REFUSED, DEAD_LETTER_LIMIT, CHANGES, UNBALANCED = range(7)
INTERRUPTED = 130
EXIT_CODES = {
    OK: "done",
    FAILED: "something failed",
    INVALID: "the project, the command line or an event is not valid",
    REFUSED: "refused: it would lose or repeat data, or Kafka does not allow it",
    DEAD_LETTER_LIMIT: "a pipeline or worker reached its dead-letter limit",
    CHANGES: "there are changes (`plan --exit-code` only)",
    UNBALANCED: "events are missing or too many (`reconcile` and `drill` only)",
    INTERRUPTED: "interrupted",
}


_COMMON_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Answer in JSON."),
    click.option(
        "--project",
        "folder",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"The project's folder; by default the nearest one upwards with a {PROJECT_FILE}.",
    ),
    click.option("--debug", is_flag=True, help="Show the traceback of an unexpected failure."),
)


@dataclass
class Session:
    """One run of a command. Settings and project are loaded at their first use.

    Attributes:
        output: where results go.
        folder: folder of the project; ``None``: the nearest one upwards.
        debug: show tracebacks.
        exit_code: exit code of the process when nothing fails.
    """

    output: Output
    folder: Path | None = None
    debug: bool = False
    exit_code: int = field(default=OK, init=False)

    @property
    def has_project(self) -> bool:
        """Returns whether there is a project, for commands that need none."""
        return (self.folder or find_project(Path.cwd())) is not None

    @cached_property
    def settings(self) -> Settings:
        """Returns the settings of the project. Raises ProjectError."""
        settings, problems = self._read
        if problems:
            raise ProjectError(problems)
        return settings

    @cached_property
    def _read(self) -> tuple[Settings, list[Problem]]:
        folder = self.folder or find_project(Path.cwd())
        if folder is None:
            where = str(Path.cwd() / PROJECT_FILE)
            remedy = "`headrace init DIR` makes a project; --project DIR names one elsewhere"
            raise ProjectError(
                [Problem(where, 1, "no project here or in any folder above", remedy)]
            )
        return read_settings(folder, environment())

    @cached_property
    def project(self) -> LoadedProject:
        """Returns the declarations of the project. Raises ProjectError."""
        from headrace.project.check import load_project, name_problems

        settings, problems = self._read
        if problems:
            raise ProjectError([*problems, *name_problems(settings)])
        return load_project(self.settings)

    def declared(self, type_: type[Value], *names: str) -> list[Value]:
        """Returns declared values of a type by name; all of them when none is named.

        Raises a usage error for a name that none of them has.
        """
        from headrace.project.kinds import kinds

        declared = self.project.declared(type_)
        for name in names:
            if name not in declared:
                label = next(kind.label for kind in kinds() if issubclass(type_, kind.type))
                hints = [
                    f"; {name!r} is a {kind.label}: {kind.hint}"
                    for kind, value in self.project.by_kind
                    if value.name == name
                ]
                raise unknown(label, name, declared, "".join(hints[:1]))
        return [declared[name] for name in dict.fromkeys(names or declared)]

    @property
    def log(self) -> Path:
        """Returns the file for tracebacks and log lines."""
        if "settings" in self.__dict__:  # loading them could fail again, while a failure is shown
            return self.settings.log
        return Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}.log"


def unknown(kind: str, name: str, declared: Iterable[str], hint: str = "") -> click.BadParameter:
    """Returns the error for an undeclared name, with the closest declared one or a hint."""
    known = list(declared)
    close = difflib.get_close_matches(name, known, n=1)
    hint = hint or (f"; did you mean {close[0]!r}?" if close else "")
    return click.BadParameter(f"no {kind} {name!r}; declared: {', '.join(known) or 'none'}{hint}")


def command(
    example: str,
    *,
    name: str | None = None,
    extra: str = "",
    words: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[Concatenate[Session, Arguments], object]], click.Command]:
    """Makes ``function(session, ...)`` a command with common options, an example, exit codes.

    What the function returns is shown: as JSON, or by the view that ``views.py`` beside its
    ``commands.py`` has for it; ``None`` shows nothing. A command that names an ``extra`` fails with
    ExtraMissingError when that is not installed. ``words`` replace names in braces of the
    docstring, which is its help.
    """
    ending = epilog("Example", example)
    if extra:
        ending += "\n\n" + epilog("Needs", f"pip install 'headrace[{extra}]'")

    def decorate(function: Callable[Concatenate[Session, Arguments], object]) -> click.Command:
        @functools.wraps(function)
        def body(*, as_json: bool, folder: Path | None, debug: bool, **values: Any) -> None:
            session = Session(_output(as_json=as_json), folder, debug)
            bound: Callable[..., object] = functools.partial(function, session)

            def action() -> object:
                if extra:
                    require_extra(extra)
                if not as_json:  # programs need neither the views nor what they import
                    importlib.import_module(function.__module__.replace(".commands", ".views"))
                return bound(**values)

            # Click would end with 0 whatever the body returns.
            sys.exit(_run(session, action))

        # Decorators apply from the inside out; help shows options in the order of the tuple.
        for option in reversed(_COMMON_OPTIONS):
            option(body)
        text = function.__doc__ or ""
        shown = text.format(**words) if words else text
        return click.command(name, help=shown, epilog=ending)(body)

    return decorate


def _output(*, as_json: bool) -> Output:
    if as_json:
        from headrace.cli.json_output import JsonOutput

        return JsonOutput()
    from headrace.cli.console import ConsoleOutput

    return ConsoleOutput()


def epilog(title: str, text: str) -> str:
    """Returns a paragraph for the end of a help page, with its lines kept as they are."""
    lines = "\n".join(f"  {line}" for line in text.splitlines())
    # Click wraps paragraphs, except those that begin with a backspace.
    return f"\b\n{title}:\n{lines}"


def _run(session: Session, action: Callable[[], object]) -> int:
    try:
        result = action()
        if result is not None:
            session.output.show(result)
    # What is raised on purpose says what to do, so it has no traceback.
    except HeadraceError as error:
        session.output.failed(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.ClickException:
        raise  # click shows errors of the command line itself, with the usage
    except Exception as error:
        if session.debug:
            raise
        session.log.parent.mkdir(parents=True, exist_ok=True)
        with session.log.open("a", encoding="utf-8") as file:
            file.writelines(traceback.format_exception(error))
        session.output.crashed(error, session.log)
        return FAILED
    return session.exit_code


def log_to_file(
    session: Session, log_format: str | None = None, subject: Subject | None = None
) -> None:
    """Writes the log to the project's log file, for commands that run for long.

    With a ``log_format``, lines have that format, and go to standard error too.
    """
    log_to(
        session.log,
        stderr=log_format is not None,
        log_format=log_format or "text",
        subject=subject,
    )
