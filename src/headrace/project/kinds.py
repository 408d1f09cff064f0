"""The kinds of declarations, imported from the folders that own them."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from headrace.model.declared import DeclaredValue
from headrace.project.kind import Kind
from headrace.settings.kinds import FOLDERS


@functools.cache
def kinds() -> tuple[Kind[Any], ...]:
    """Returns all kinds, in the order in which they are checked and shown."""
    modules = (importlib.import_module(f"headrace.{folder}.kind") for folder in FOLDERS.values())
    return tuple(module.KIND for module in modules)


def kinds_below(folder: str) -> list[str]:
    """Returns the folders of kinds below another, such as ``mirror`` below ``links``."""
    paths = FOLDERS.values()
    return [path.rpartition(".")[2] for path in paths if path.startswith(f"{folder}.")]


def kind_of(value: DeclaredValue) -> Kind[Any]:
    """Returns the kind of a declared value."""
    return next(kind for kind in kinds() if isinstance(value, kind.type))
