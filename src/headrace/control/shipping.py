"""Which modules are a project's own: they travel with a Spark job, since they are nowhere else."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_OURS = "headrace"


def own_modules(root: Path, modules: Iterable[ModuleType]) -> list[ModuleType]:
    """Returns those of ``modules`` whose file is below ``root`` and that nobody installed.

    The environment is in the project's folder, more often than not.
    """
    installed = _installed(root)
    return [module for module in modules if _is_own(module, root, installed)]


def _is_own(module: ModuleType, root: Path, installed: frozenset[Path]) -> bool:
    file = Path(getattr(module, "__file__", None) or "/")
    if module.__name__.partition(".")[0] == _OURS or not file.is_relative_to(root):
        return False
    if _PACKAGES & set(file.relative_to(root).parts):
        return False
    return installed.isdisjoint(file.parents)


def _installed(root: Path) -> frozenset[Path]:
    """Folders of the environment; of its prefix only if that is below ``root``, and not around."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
    libraries = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return frozenset(
        {prefix for prefix in prefixes if root in prefix.parents}
        | {library for library in libraries if library != root}
    )
