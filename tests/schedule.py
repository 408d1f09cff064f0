"""In which order the files of tests run, and in which process of ``pytest -n``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_FILES_WITH_SPARK = "files-with-spark"


def large_files_first(items: list[pytest.Item]) -> None:
    """Orders tests by the size of their file: a run that ends with small ones ends for all."""
    size = {item.path: item.path.stat().st_size for item in items}
    items.sort(key=lambda item: (-size[item.path], item.path))


def tell_files_with_spark(items: list[pytest.Item], folder: Path) -> None:
    """Writes which files of tests take the fixture ``spark``: the scheduler sees names alone."""
    files = {item.nodeid.partition("::")[0] for item in items if "spark" in item.fixturenames}
    whole = folder / f"{_FILES_WITH_SPARK}-{os.getpid()}"
    whole.write_text("\n".join(files))
    whole.rename(folder / _FILES_WITH_SPARK)  # each process writes the same


class SchedulingByKind(LoadFileScheduling):
    """Half of the processes run files with Spark, one runs units, the others what is left.

    Each process that starts a Spark compiles its code again, which takes minutes of CPU time in all
    of them. Units compute while other tests wait for servers. Whoever has no files of its kind left
    takes those of others.
    """

    def __init__(self, config: pytest.Config, log: Any, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._with_spark: frozenset[str] | None = None

    def _assign_work_unit(self, node: Any) -> None:
        number, processes = self.nodes.index(node), len(self.nodes)
        kind = "unit" if number == processes - 1 else "servers"
        kind = "spark" if number < processes // 2 else kind
        for file in self.workqueue:
            if self._kind(file) == kind:
                self.workqueue.move_to_end(file, last=False)
                break
        super()._assign_work_unit(node)

    def _kind(self, file: str) -> str:
        if self._with_spark is None:
            names = (self._folder / _FILES_WITH_SPARK).read_text()
            self._with_spark = frozenset(names.split("\n"))
        if file in self._with_spark:
            return "spark"
        return "unit" if "unit" in file.split("/") else "servers"
