"""Tests replace no private name: a rename would break them, and they would prove nothing of it.

A time, a size or a collaborator that a test needs otherwise is a parameter, a field of the engine's
frozen timing value, or a public attribute of the object.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
WORDS = re.compile(r"\b(setattr|delattr|patch|patch\.object)\(")


def last_name(node):
    """Returns the last part of a dotted name; empty: the expression is none."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def replaces(function):
    """Returns whether a function is a ``setattr`` or ``delattr``, or mock's ``patch``."""
    name = last_name(function)
    if name == "object":
        return last_name(getattr(function, "value", None)) == "patch"
    return name in {"setattr", "delattr", "patch"}


def replaced_name(call):
    """Returns the name that a call replaces or deletes, as far as it is written there."""
    texts = [
        node.value
        for argument in call.args[:2]
        for node in getattr(argument, "values", [argument])[-1:]  # the end of an f-string
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return texts[0].rpartition(".")[2] if texts and replaces(call.func) else ""


@pytest.mark.parametrize(
    "call",
    [
        'setattr(module, "_name", None)',
        'monkeypatch.setattr(module, "_name", None)',
        'monkeypatch.setattr("package.module._name", None)',
        'monkeypatch.setattr(f"{module}._name", None)',
        'monkeypatch.delattr(module, "_name")',
        'monkeypatch.delattr("package.module._name")',
        'patch("package.module._name")',
        'mock.patch("package.module._name", None)',
        'mock.patch.object(module, "_name")',
    ],
)
def test_a_call_that_replaces_a_name_is_seen(call):
    assert replaced_name(ast.parse(call, mode="eval").body) == "_name"


def test_no_test_replaces_a_private_name():
    replaced = [
        f"{path.relative_to(TESTS)}:{call.lineno}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if WORDS.search(text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and (name := replaced_name(call)).startswith("_")
        and not name.startswith("__")
    ]
    assert replaced == []
