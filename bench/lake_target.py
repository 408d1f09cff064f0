"""Tables of a lake, in the folder of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlparse

from bench import headrace_writer
from bench.cluster import WORK, Broker
from bench.peers import kafka_connect
from bench.sink_targets import Target
from bench.writer import event_ids
from headrace.runtime.java.installation import Java


class LakeTarget(Target):
    """Tables of Iceberg and Delta; each system makes its own."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The library's that writes Iceberg's metadata for headrace."""
        return {"pyiceberg": version("pyiceberg")}

    def create(self, name: str) -> None:
        """There is nothing to make."""

    def event_ids(self, name: str) -> tuple[int, int]:
        """Reads the files of the table's newest snapshot."""
        return event_ids(files_of(WORK / name))

    def remove(self, name: str) -> None:
        """The folder of the run is removed with all that is in it."""


def files_of(out: Path) -> list[Path]:
    """The data files of the table in the folder of a run."""
    if (out / kafka_connect.FILES).exists():
        return kafka_connect.table_files(out)
    if (out / headrace_writer.TABLE / "_delta_log").exists():
        return headrace_writer.table_files(out)
    return iceberg_files(out)


def iceberg_files(out: Path) -> list[Path]:
    """Those of headrace's Iceberg table, by its catalog in the lake."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("headrace", uri=f"sqlite:///{out / '_iceberg/catalog.db'}")
    table = catalog.load_table(("default", headrace_writer.TABLE))
    paths = [task.file.file_path for task in table.scan().plan_files()]
    catalog.close()
    return [Path(urlparse(path).path) for path in paths]


@contextmanager
def opened_lake(_: Broker, __: Java) -> Iterator[LakeTarget]:
    """Needs no server."""
    yield LakeTarget()
