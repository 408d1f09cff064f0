"""Finds the modules of a project: declarations are looked for in them, and a Spark job ships them.

Executors do not have them.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_OURS = "headrace"


def own_modules(root: Path, modules: Mapping[str, ModuleType]) -> dict[str, ModuleType]:
    """Returns the modules whose file is below ``root`` and that are not installed packages.

    Often the environment with its packages is a folder of the project.

    Args:
        root: the project's folder, as an absolute path without symbolic links.
        modules: modules by name, such as ``sys.modules``.
    """
    own = _below(str(root))
    # An environment may be below the project's folder: its modules are not the project's.
    folders = (sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(os.__file__).parent))
    paths = {_below(path) for folder in folders for path in (folder, _real_path(folder))}
    installed = tuple(path for path in paths if path.startswith(own) and path != own)
    return {
        name: module
        for name, module in modules.items()
        if name.partition(".")[0] != _OURS and _is_own(module, own, installed)
    }


def _is_own(module: ModuleType, own: str, installed: tuple[str, ...]) -> bool:
    file = getattr(module, "__file__", None)
    # Built-in modules and namespace packages have none; some have None, or a name without a folder.
    if not isinstance(file, str) or not file.startswith(os.sep):
        return False
    # A link in the folder is the project's; so is a file that was imported by a link to the folder.
    path = os.path.normpath(file) if file.startswith(own) else _real_path(file)
    if not path.startswith(own) or path.startswith(installed):
        return False
    return _PACKAGES.isdisjoint(Path(path.removeprefix(own)).parts)


def _below(folder: str) -> str:
    """Returns the prefix of the path of every file below a folder."""
    return folder.rstrip(os.sep) + os.sep


# A process has thousands of modules, and some projects are loaded again for each request.
@functools.cache
def _real_path(file: str) -> str:
    return os.path.realpath(file)
