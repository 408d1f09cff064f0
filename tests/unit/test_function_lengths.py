"""A function is no longer than a screen: 50 lines, with its docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace

MAX_LINES = 50
SOURCES = Path(headrace.__file__).parent
LONGER = {
    # Its signature and the docstring that is its reference page are longer by themselves.
    "worker",
}


def long_functions() -> Iterator[str]:
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_LINES:
                    yield node.name


def test_no_function_is_longer_than_a_screen() -> None:
    assert set(long_functions()) == LONGER
