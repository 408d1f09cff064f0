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


def kind_of(value: DeclaredValue) -> Kind[Any]:
    """Returns the kind of a declared value."""
    return next(kind for kind in kinds() if isinstance(value, kind.type))
