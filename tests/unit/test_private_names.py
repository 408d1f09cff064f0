"""Tests replace no private name: a rename would break them, and they would prove nothing of it.

A time, a size or a collaborator that a test needs otherwise is a parameter, a field of the engine's
frozen timing value, or a public attribute of the object.
"""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def replaced_name(call):
    """Returns the name that a call of ``setattr`` replaces, as far as it is written there."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    texts = [
        node.value
        for argument in call.args[:2]
        for node in getattr(argument, "values", [argument])[-1:]  # the end of an f-string
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return texts[0].rpartition(".")[2] if name == "setattr" and texts else ""


def test_no_test_replaces_a_private_name():
    replaced = [
        f"{path.relative_to(TESTS)}:{call.lineno}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if "setattr(" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and (name := replaced_name(call)).startswith("_")
        and not name.startswith("__")
    ]
    assert replaced == []
