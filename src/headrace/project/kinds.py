"""The kinds of declarations, by the folders that own them: a new one is a line here."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from headrace.model.declared import DeclaredValue
from headrace.project.kind import Kind

_FOLDERS = (
    "topics",
    "pipelines",
    "workers",
    "links.mirror",
    "links.merger",
    "links.dispatcher",
    "queries",
)


@functools.cache
def kinds() -> tuple[Kind[Any], ...]:
    """Returns all kinds, in the order in which they are checked and shown."""
    modules = (importlib.import_module(f"headrace.{folder}.kind") for folder in _FOLDERS)
    return tuple(module.KIND for module in modules)


def kinds_below(folder: str) -> list[str]:
    """Returns the folders of kinds below another, such as ``mirror`` below ``links``."""
    return [path.rpartition(".")[2] for path in _FOLDERS if path.startswith(f"{folder}.")]


def kind_of(value: DeclaredValue) -> Kind[Any]:
    """Returns the kind of a declared value."""
    return next(kind for kind in kinds() if isinstance(value, kind.type))
