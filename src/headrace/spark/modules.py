"""A project's modules where Spark's tasks run: by their path on this machine, elsewhere sent.

Tasks import them, as the driver does. Pickled by value they would need no file there, but a class
whose annotations are texts, as ``from __future__ import annotations`` makes them, could not be read
then: it looks for their names in its module.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from headrace.spark.session import is_on_this_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARCHIVE = "headrace-project-modules.zip"


def path_of_modules(master: str, root: Path) -> dict[str, str]:
    """Returns the setting by which tasks on this machine import a project's modules.

    Whatever folder the command is started in. An executor elsewhere keeps its own path.
    """
    return {"spark.executorEnv.PYTHONPATH": str(root)} if is_on_this_machine(master) else {}


@contextmanager
def sent_modules(
    session: SparkSession, master: str, modules: Mapping[str, ModuleType]
) -> Iterator[None]:
    """Sends a project's modules to machines of a cluster, which fetch them within the context.

    To be entered before a function or a data source is handed to Spark, which notes then what its
    tasks need.

    Args:
        session: of the driver.
        master: Spark's; if it is on this machine, nothing is sent.
        modules: of the project, by name.
    """
    if is_on_this_machine(master) or not modules:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        archive = Path(folder) / _ARCHIVE
        write_archive(archive, modules)
        session.sparkContext.addPyFile(str(archive))
        yield


def write_archive(archive: Path, modules: Mapping[str, ModuleType]) -> None:
    """Writes the sources of modules where ``import`` finds them by name.

    Not written: what has no source, such as extension modules, which must be installed.
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
        folders: set[str] = set()
        for name, module in modules.items():
            source = Path(module.__file__ or "")
            if source.suffix != ".py":
                continue
            parts = name.split(".")
            if source.name == "__init__.py":
                parts.append("__init__")
            content.write(source, "/".join(parts) + ".py")
            folders |= {"/".join(parts[:length]) + "/" for length in range(1, len(parts))}
        for folder in sorted(folders):  # by these, packages without an `__init__` are found
            content.writestr(folder, b"")
