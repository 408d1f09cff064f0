"""Encodes the values that commands return as JSON."""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Protocol, TextIO, runtime_checkable

import click
import msgspec

from headrace.cli.closed_pipe import end_output


def rfc3339(time: datetime) -> str:
    """Returns a time with a zone in the format of RFC 3339, in UTC and to the second."""
    # Not strftime(): its years before 1000 have fewer than four digits.
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_FORMS: dict[type, Callable[[Any], object]] = {
    enum.Enum: lambda member: encoded(member.value),
    Fraction: lambda ratio: ratio.numerator if ratio.denominator == 1 else float(ratio),
    datetime: rfc3339,
    timedelta: timedelta.total_seconds,
    bytes: lambda content: content.decode(errors="backslashreplace"),
    PurePath: str,
    msgspec.Struct: lambda struct: encoded(msgspec.structs.asdict(struct)),
}


@runtime_checkable
class Encoded(Protocol):
    """A value whose JSON differs from its fields."""

    def to_json(self) -> object:
        """Returns the value to encode instead."""


def print_json(value: object, file: TextIO) -> None:
    """Prints a value as a line of JSON.

    Raises:
        ReaderGoneError: if nothing reads the file any more.
    """
    try:
        click.echo(json.dumps(encoded(value), ensure_ascii=False), file=file)
    except BrokenPipeError:
        end_output(file.fileno())


def encoded(value: object) -> Any:
    """Returns a value in JSON's own types.

    =================== ========================================================================
    value               in JSON
    =================== ========================================================================
    dataclass, mapping, an object
    msgspec.Struct
    list, tuple, set    an array
    enum                its value
    datetime            RFC 3339 text in UTC, to the second
    timedelta           seconds; a member ``lag`` is called ``lag_seconds``
    Fraction            an integer where it is one, else a number
    bytes               text where they are UTF-8; else a member ``key`` is called
                        ``key_base64``
    Path                its text
    =================== ========================================================================

    Raises:
        TypeError: if it is none of them; a value with ``to_json`` is what that returns.
    """
    # First: a dataclass may have its own form, too.
    if isinstance(value, Encoded):
        return encoded(value.to_json())
    # Field by field: `dataclasses.asdict` would copy deep, and lose the forms of nested values.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return dict(_members({field.name: getattr(value, field.name) for field in fields}))
    if isinstance(value, Mapping):
        return dict(_members(value))
    if isinstance(value, list | tuple | set | frozenset):
        return [encoded(element) for element in value]
    if value is None or isinstance(value, str | int | float):
        return value
    for kind, form in _FORMS.items():
        if isinstance(value, kind):
            return form(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def merged(*values: object) -> dict[str, Any]:
    """Returns the members of several values, each an object in JSON, as one object."""
    document: dict[str, Any] = {}
    for value in values:
        document |= encoded(value)
    return document


def _members(members: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in members.items():
        name = str(key)
        match value:
            case timedelta():
                yield f"{name}_seconds", value.total_seconds()
            case bytes():
                yield _bytes(name, value)
            case _:
                yield name, encoded(value)


def _bytes(name: str, content: bytes) -> tuple[str, str]:
    try:
        return name, content.decode()
    except UnicodeDecodeError:
        return f"{name}_base64", base64.b64encode(content).decode()
