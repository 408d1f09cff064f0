"""Finds the modules of a project, which a Spark job ships, since executors do not have them."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_OURS = "headrace"


def own_modules(root: Path, modules: Iterable[ModuleType]) -> list[ModuleType]:
    """Returns the modules whose file is below ``root`` and that are not installed packages.

    Often the environment with its packages is a folder of the project.
    """
    installed = _installed(root)
    return [module for module in modules if _is_own(module, root, installed)]


def _is_own(module: ModuleType, root: Path, installed: frozenset[Path]) -> bool:
    # Built-in modules and namespace packages have no file; some have None.
    file = Path(getattr(module, "__file__", None) or "/")
    if module.__name__.partition(".")[0] == _OURS or not file.is_relative_to(root):
        return False
    if _PACKAGES & set(file.relative_to(root).parts):
        return False
    return installed.isdisjoint(file.parents)


def _installed(root: Path) -> frozenset[Path]:
    """Returns the folders of the environment; its prefix only if that is below ``root``."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
    libraries = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return frozenset(
        {prefix for prefix in prefixes if root in prefix.parents}
        | {library for library in libraries if library != root}
    )
