"""Values made from the declaration of their class: texts are the names of their fields."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

_PLAIN: dict[object, Any] = {
    bool: lambda _: True,
    int: len,
    float: lambda name: len(name) + 0.5,
    str: str,
    bytes: str.encode,
    object: str,
    Any: str,
    Path: Path,
    datetime: lambda _: datetime(2026, 11, 30, 9, 30, tzinfo=UTC),
    timedelta: lambda _: timedelta(seconds=1.5),
    Fraction: lambda _: Fraction(1, 2),
}


def samples_of_result(function: Any) -> list[object]:
    """Returns a value of each type that a function returns, by its annotation."""
    result = eval(function.__annotations__["return"], _names_in(function.__module__))
    kinds = typing.get_args(result) if isinstance(result, types.UnionType) else (result,)
    return [sample_of(kind, "result") for kind in kinds if kind is not None]


def sample_of(kind: Any, name: str) -> Any:
    """Returns a value of a type; ``None`` only where nothing else is allowed.

    Args:
        kind: the type.
        name: of the field.
    """
    if kind in _PLAIN:
        return _PLAIN[kind](name)
    if origin := typing.get_origin(kind):
        return _generic(origin, typing.get_args(kind), name)
    if issubclass(kind, enum.Enum):
        return next(iter(kind))
    hints = _hints_of(kind)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    elif issubclass(kind, msgspec.Struct):
        names = list(kind.__struct_fields__)
    else:
        names = list(kind._fields)
    return kind(**{name: sample_of(hints[name], name) for name in names})


def _generic(origin: Any, arguments: tuple[Any, ...], name: str) -> Any:
    if origin is typing.Annotated:
        return sample_of(arguments[0], name)
    if origin in (typing.Union, types.UnionType):
        return sample_of(next(kind for kind in arguments if kind is not types.NoneType), name)
    if origin is typing.Literal:
        return arguments[0]
    if issubclass(origin, Mapping):
        return {sample_of(arguments[0], name): sample_of(arguments[1], name)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(sample_of(kind, name) for kind in arguments)
    assert issubclass(origin, Collection), f"{name} is a {origin}"
    return (sample_of(arguments[0], name),)


def _hints_of(kind: type) -> dict[str, Any]:
    """The types of a class's fields, by the names of the modules that declare them."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = _names_in(base.__module__) if "__annotations__" in vars(base) else {}
        for field, text in inspect.get_annotations(base).items():
            if "ClassVar" not in str(text):
                hints[field] = eval(text, names) if isinstance(text, str) else text
    return hints


def _names_in(module: str) -> dict[str, Any]:
    """The names of a module, with those that it imports for its annotations alone."""
    loaded = sys.modules[module]
    names = dict(vars(loaded))
    for node in ast.parse(inspect.getsource(loaded)).body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module, "exec"), names)
    return names
