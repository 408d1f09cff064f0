"""The names that users import, with their signatures."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest
from tests.golden.files import golden

_MODULES = (
    "headrace",
    "headrace.errors",
    "headrace.sinks.api",
    "headrace.testing",
    "headrace.workers",
)
_ADDRESS = re.compile(r"<(?:function|class|object)? ?[^<>]* at 0x[0-9a-f]+>")
_PLACE = re.compile(r"\b(?:headrace|datetime|collections|pathlib|typing)\.(?:\w+\.)*")


@pytest.mark.parametrize("name", _MODULES)
def test_public_names_and_their_signatures(name: str) -> None:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None) or _own_names(module)
    lines = [line for member in sorted(public) for line in _described(module, member)]
    golden(f"names/{name}.txt", "\n".join(lines))


def _own_names(module: object) -> list[str]:
    """Public names that a module without ``__all__`` defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _described(module: object, name: str) -> Iterator[str]:
    value = getattr(module, name)
    if isinstance(value, type):
        yield from _of_class(name, value)
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name} = {_plain(repr(value))}"


def _of_class(name: str, kind: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    yield f"class {name}({bases})"
    if issubclass(kind, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in kind)
    elif issubclass(kind, BaseException) or not inspect.isabstract(kind):
        yield f"    __init__{_signature(kind)}"
    # As the API reference does: what the class has a docstring for, and not what it inherits.
    for attribute, value in sorted(vars(kind).items()):
        if not attribute.startswith("_") and getattr(value, "__doc__", None):
            yield from _of_attribute(attribute, value)


def _of_attribute(name: str, value: object) -> Iterator[str]:
    match value:
        case property():
            yield f"    {name}: {_plain(str(inspect.signature(value.fget).return_annotation))}"
        case classmethod() | staticmethod():
            yield f"    {type(value).__name__} {name}{_signature(value.__func__)}"
        case _ if inspect.isfunction(value):
            is_async = "async " if inspect.iscoroutinefunction(value) else ""
            yield f"    {is_async}{name}{_signature(value)}"


def _signature(value: object) -> str:
    try:
        signature = inspect.signature(value)
    except ValueError:  # of a class that is written in C
        return "(...)"
    public = [p for p in signature.parameters.values() if not p.name.startswith("_")]
    return _plain(str(signature.replace(parameters=public)))


def _plain(text: str) -> str:
    """Returns text without addresses and without the modules that names come from."""
    return _PLACE.sub("", _ADDRESS.sub("...", text))
