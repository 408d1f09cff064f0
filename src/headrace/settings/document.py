"""A TOML document that knows the line of each key, and collects what is wrong with it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import Problem, ProjectError
from headrace.settings.model import Secret

KeyPath = tuple[str, ...]
Scalar = TypeVar("Scalar", str, int, float, bool)

_PLACEHOLDER = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
# tomllib reports no lines, so these find tables and keys in the text again. A line that they
# miss costs no more than the place of a problem: it is shown at the table around it.
_HEADER = re.compile(r"^\s*\[\[?(?P<path>[^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*(?P<path>(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_SYNTAX_LINE = re.compile(r"at line (\d+)")

# Tables of one server, which runs on machines of its own: commands elsewhere get by without its
# variables, and without its secrets.
_OF_ONE_SERVER = frozenset({"ingest"})

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_PLURALS = {str: "texts", int: "whole numbers"}


@dataclass
class Document:
    """One TOML file: values with ``${VAR}`` resolved on reading, and problems found so far.

    Attributes:
        unset: variables and secret files that a table of one server lacks, which only that server
            needs; without a value until then.
    """

    file: Path
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    unset: list[Problem] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, environ: Mapping[str, str]) -> Document:
        """Parse ``file``.

        Raises:
            ProjectError: if it is missing, unreadable or not TOML.
        """
        try:
            text = file.read_text(encoding="utf-8")
            return cls(file, tomllib.loads(text), key_lines(text), environ)
        except FileNotFoundError:
            problem = Problem(str(file), 1, "there is no such file", "`headrace init` writes one")
        except tomllib.TOMLDecodeError as error:
            problem = Problem(str(file), _syntax_line(str(error), text), f"not TOML: {error}")
        except (OSError, UnicodeDecodeError) as error:
            problem = Problem(str(file), 1, f"can't be read: {error}")
        raise ProjectError([problem])

    def report(self, path: KeyPath, message: str, remedy: str = "") -> None:
        """Note a problem at the line of ``path``, or of the closest table around it."""
        self.problems.append(Problem(str(self.file), self.line(path), message, remedy))

    def report_absent(self, path: KeyPath, message: str, remedy: str = "") -> None:
        """Note a value that is to come from outside the file, and is not there."""
        problems = self.unset if path[0] in _OF_ONE_SERVER else self.problems
        problems.append(Problem(str(self.file), self.line(path), message, remedy))

    def line(self, path: KeyPath) -> int:
        """Line of a key; of the table around it when it has none of its own."""
        while path and ".".join(path) not in self.lines:
            path = path[:-1]
        return self.lines.get(".".join(path), 1)

    def root(self) -> Table:
        """The whole document as a table."""
        return Table(self, (), self.values)

    def finish(self) -> list[Problem]:
        """Report keys that nothing asked for; return everything found, by line."""
        for table in self.tables:
            for name in table.unknown():
                remedy = self._closest(table, name)
                self.report((*table.path, name), f"unknown key {table.label(name)}", remedy)
        return sorted(self.problems, key=lambda problem: problem.line)

    def _closest(self, table: Table, name: str) -> str:
        close = difflib.get_close_matches(name, table.known, n=1)
        if close:
            return f"did you mean {close[0]!r}?"
        for other in self.tables:
            if name in other.known:
                return f"it belongs under [{'.'.join(other.path)}]"
        return f"known here: {', '.join(sorted(table.known))}"


class Table:
    """Typed access to one table. Each accessor also declares its key as known."""

    def __init__(self, document: Document, path: KeyPath, values: Mapping[str, Any]) -> None:
        self._document, self.path, self._values = document, path, values
        self.known: set[str] = set()
        document.tables.append(self)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that are there."""
        return tuple(self._values)

    def line(self, name: str) -> int:
        """The line of a key; of the table around it when the key has none."""
        return self._document.line((*self.path, name))

    def report(self, name: str, message: str, remedy: str = "") -> None:
        """Note a problem with the key ``name`` of this table."""
        self._document.report((*self.path, name), message, remedy)

    def table(self, name: str) -> Table:
        """The table called ``name``; empty when absent."""
        self.known.add(name)
        values = self._values.get(name, {})
        if not isinstance(values, dict):
            self.report(
                name, f"{self.label(name)} must be a table", f"write `[{self.label(name)}]`"
            )
            values = {}
        return Table(self._document, (*self.path, name), values)

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        return self._scalar(name, default, str)

    def required(self, name: str) -> str:
        """A string that must be there and not be empty."""
        # A placeholder without a variable was reported by `text`: it is not missing as well.
        before = len(self._document.problems)
        value = self.text(name)
        if not value and len(self._document.problems) == before:
            self.report(name, f"{self.label(name)} is missing")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of ``allowed``, or "" when absent."""
        value = self.text(name)
        if value and value not in allowed:
            self.report(name, f"{self.label(name)} is {value!r}", f"one of {', '.join(allowed)}")
        return value

    def integer(self, name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
        """A whole number of at least ``least`` and at most ``most``."""
        value = self._scalar(name, default, int)
        if value < least or (most is not None and value > most):
            upper = "" if most is None else f" and at most {most}"
            self.report(name, f"{self.label(name)} is {value}; it must be at least {least}{upper}")
            return default
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        """``true`` or ``false``."""
        return self._scalar(name, default, bool)

    def positive(self, name: str, default: float) -> float:
        """A number above zero."""
        value = self._scalar(name, default, float)
        if not 0 < value < float("inf"):
            self.report(name, f"{self.label(name)} is {value}; it must be above 0")
            return default
        return value

    def positive_or_none(self, name: str) -> float | None:
        """A number above zero; ``None`` when absent."""
        # The default only passes the check: it is not what an absent key means.
        value = self.positive(name, 1.0)
        return value if name in self else None

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        return self._list(name, str)

    def required_texts(self, name: str, missing: str, remedy: str) -> tuple[str, ...]:
        """A list of strings that must be there and not be empty: ``missing`` says so."""
        # One of another type was reported by `texts`: it is not missing as well.
        before = len(self._document.problems)
        values = self.texts(name)
        if not values and len(self._document.problems) == before:
            self.report(name, missing, remedy)
        return values

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; empty when absent."""
        return self._list(name, int)

    def secret(self, name: str) -> Secret | None:
        """A secret given as ``{ env = "NAME" }`` or ``{ file = "path" }``."""
        self.known.add(name)
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict) or len(value) != 1 or not set(value) <= {"env", "file"}:
            self._refuse_inline_secret(name)
            return None
        (kind, where), *_ = value.items()
        if not isinstance(where, str) or not where:
            self.report(name, f"{self.label(name)}.{kind} must be text")
            return None
        return (
            self._from_environment(name, where) if kind == "env" else self._from_file(name, where)
        )

    def secret_text(self, name: str, secret: re.Pattern[str]) -> str | None:
        """Text that may hold a secret: given like one, or as text with ``${VAR}`` in its place.

        Args:
            name: of the key.
            secret: finds a secret that stands in the text itself.
        """
        value = self._values.get(name)
        if not isinstance(value, str):
            reference = self.secret(name)
            return reference.reveal() if reference else None
        if secret.search(value):
            self.known.add(name)
            self._refuse_inline_secret(name)
            return None
        return self.text(name) or None

    def is_table(self, name: str) -> bool:
        """Whether a value is a table with keys, and names no secret as :meth:`secret` takes it."""
        value = self._values.get(name)
        return isinstance(value, dict) and bool(value) and not set(value) & {"env", "file"}

    def flat(self) -> dict[str, str]:
        """Every value as text under its dotted key; for settings that are passed on."""
        flat: dict[str, str] = {}
        for name, value in self._values.items():
            self.known.add(name)
            self._flatten(name, value, flat)
        return flat

    def unknown(self) -> tuple[str, ...]:
        """Keys that are there but that no accessor asked for."""
        return tuple(name for name in self._values if name not in self.known)

    def label(self, name: str) -> str:
        """The dotted name of a key of this table."""
        return ".".join((*self.path, name))

    def _scalar(self, name: str, default: Scalar, kind: type[Scalar]) -> Scalar:
        self.known.add(name)
        if name not in self._values:
            return default
        value = self._cast(name, self._values[name], kind)
        return default if value is None else value

    def _list(self, name: str, kind: type[Scalar]) -> tuple[Scalar, ...]:
        self.known.add(name)
        value = self._values.get(name, [])
        if not isinstance(value, list):
            message = f"{self.label(name)} must be a list of {_PLURALS[kind]}, not {value!r}"
            self.report(name, message, self._list_remedy(name, value, kind))
            return ()
        cast = [self._cast(name, item, kind) for item in value]
        return tuple(item for item in cast if item is not None)

    def _list_remedy(self, name: str, value: object, kind: type) -> str:
        """Returns how a value that stands alone is written as a list."""
        if type(value) is not kind:
            return ""
        item = f'"{value}"' if kind is str else value
        return f"write {name} = [{item}]"

    def _cast(self, name: str, value: object, kind: type[Scalar]) -> Scalar | None:
        if isinstance(value, str):
            resolved = self._resolve(name, value)
            if resolved is None or kind is str:
                return resolved
            if resolved != value:  # a number can only come from a placeholder as text
                value = _number(resolved, kind)
        # People write `5` for `5.0`, which TOML distinguishes. `isinstance` would take true for 1.
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            self.report(name, f"{self.label(name)} must be {_WORDS[kind]}, not {value!r}")
            return None
        return value

    def _resolve(self, name: str, text: str) -> str | None:
        missing = [
            match["name"]
            for match in _PLACEHOLDER.finditer(text)
            if match["default"] is None and match["name"] not in self._document.environ
        ]
        for variable in missing:
            self._report_unset(name, variable)
        return None if missing else _PLACEHOLDER.sub(self._substitute, text)

    def _substitute(self, match: re.Match[str]) -> str:
        value = self._document.environ.get(match["name"])
        if match["default"] is None:
            return value or ""
        return value or match["default"]  # like the shell's :- an empty value takes the default

    def _refuse_inline_secret(self, name: str) -> None:
        self.report(
            name,
            f"{self.label(name)} is a secret and can't stand in this file",
            f'write {name} = {{ env = "{name.upper()}" }} or {{ file = "path" }}',
        )

    def _from_environment(self, name: str, variable: str) -> Secret | None:
        value = self._document.environ.get(variable)
        if not value:
            self._report_unset(name, variable)
            return None
        return Secret(value)

    def _report_unset(self, name: str, variable: str) -> None:
        message = f"environment variable {variable} is not set"
        remedy = f"set it: export {variable}=..."
        self._document.report_absent((*self.path, name), message, remedy)

    def _from_file(self, name: str, where: str) -> Secret | None:
        file = self._document.file.parent / where
        try:
            # Editors and `kubectl` end files with a line break, which no password has.
            value = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            message = f"secret file {where} can't be read: {error}"
            self._document.report_absent((*self.path, name), message)
            return None
        if not value:
            self.report(name, f"secret file {where} is empty")
            return None
        return Secret(value)

    def _flatten(self, name: str, value: object, flat: dict[str, str]) -> None:
        if isinstance(value, dict):
            for inner, member in value.items():
                self._flatten(f"{name}.{inner}", member, flat)
        elif isinstance(value, bool):
            # Before numbers, as bool is an int; librdkafka and Spark write it in lower case.
            flat[name] = str(value).lower()
        elif isinstance(value, int | float):
            flat[name] = str(value)
        elif isinstance(value, str):
            flat[name] = self._resolve(name, value) or ""
        else:
            self.report(name, f"{self.label(name)} must be text, a number, true or false")


def key_lines(text: str) -> dict[str, int]:
    """Line (from 1) of each table header and key, by dotted name; the first one wins."""
    lines: dict[str, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _parts(header["path"])
            lines.setdefault(".".join(table), number)
        elif key := _KEY.match(line):
            lines.setdefault(".".join((*table, *_parts(key["path"]))), number)
    return lines


def _parts(path: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PART.findall(path))


def _syntax_line(message: str, text: str) -> int:
    match = _SYNTAX_LINE.search(message)
    return int(match[1]) if match else max(1, len(text.splitlines()))


def _number(text: str, kind: type) -> object:
    try:
        # Text that is no such value is returned as it is: the caller reports it by its type.
        return {"true": True, "false": False}.get(text, text) if kind is bool else kind(text)
    except ValueError:
        return text
