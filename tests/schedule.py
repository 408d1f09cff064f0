"""In which order the files of tests run, and in which process of ``pytest -n``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_FILES_WITH_SPARK = "files-with-spark"


def mix(items: list[pytest.Item]) -> None:
    """Spreads the files of units, which compute, over the others, which wait for servers.

    Beside a large file there are more units. Large files begin first, and units are behind the last
    of the others: a run that ends with small files ends for all processes at once.
    """
    size = {item.path: item.path.stat().st_size for item in items}
    units = [path for path in size if "unit" in path.parts]
    others = sorted(size.keys() - units, key=lambda path: (-size[path], path))
    place = _places(units, size) | {path: 0.9 * at for path, at in _places(others, size).items()}
    items.sort(key=lambda item: place[item.path])


def _places(paths: list[Path], size: Mapping[Path, int]) -> dict[Path, float]:
    """Returns which part of all their bytes comes before each file."""
    ends = itertools.accumulate(size[path] for path in paths)
    whole = sum(size[path] for path in paths)
    return {path: (end - size[path]) / whole for path, end in zip(paths, ends, strict=True)}


def tell_files_with_spark(items: list[pytest.Item], folder: Path) -> None:
    """Writes which files of tests take the fixture ``spark``: the scheduler sees names alone."""
    files = {item.nodeid.partition("::")[0] for item in items if "spark" in item.fixturenames}
    whole = folder / f"{_FILES_WITH_SPARK}-{os.getpid()}"
    whole.write_text("\n".join(files))
    whole.rename(folder / _FILES_WITH_SPARK)  # each process writes the same


class SparkApart(LoadFileScheduling):
    """Half of the processes run the files with Spark, and the others what is without.

    Each process that starts a Spark compiles its code anew, which takes minutes of CPU time in all
    of them. Whoever has none of its own files left takes those of the others.
    """

    def __init__(self, config: pytest.Config, log: Any, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._with_spark: set[str] | None = None

    def _assign_work_unit(self, node: Any) -> None:
        if self._with_spark is None:
            self._with_spark = set((self._folder / _FILES_WITH_SPARK).read_text().split("\n"))
        has_spark = 2 * self.nodes.index(node) < len(self.nodes)
        own = (file for file in self.workqueue if (file in self._with_spark) is has_spark)
        self.workqueue.move_to_end(next(own, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)
