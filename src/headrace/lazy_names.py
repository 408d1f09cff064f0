"""Public names of packages, which are imported when they are used.

``__init__.pyi`` of such a package says to this module, and to type checkers, where each name is.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Returns ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: its ``__name__``.
        file: its ``__file__``, which has the stub beside it. What the stub imports ``from``
            modules, of the package or others, are its names.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8"))
    modules = {
        name.name: f"{'.' * node.level}{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    def import_name(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)  # Python asks this function once for a name
        return value

    return import_name, lambda: sorted(modules), sorted(modules)
