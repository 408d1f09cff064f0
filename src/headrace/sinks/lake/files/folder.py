"""The folder of a table: its Parquet files, one whole file at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.lake.files.encoding import ParquetEncoding
from headrace.sinks.lake.files.partitions import Partition
from headrace.storage import files as storage
from headrace.storage.files import NO_OPTIONS, Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class TableFolder:
    """Reads, writes and deletes data files below ``root``; paths are relative to it."""

    def __init__(self, root: str, options: Options = NO_OPTIONS) -> None:
        self.root = root
        self._options = options
        self._is_local = storage.is_local(root)
        self._known_folders: set[str] = set()

    def for_each(
        self, do: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int
    ) -> list[_Result]:
        """``do`` for each of ``items``, in their order.

        Remote files are written ``at_once``, as closing one on HDFS is half a second of waiting.
        """
        if self._is_local:
            return [do(item) for item in items]
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(do, items))

    def new_path(self, partition: Partition, task_id: str, codec: str) -> str:
        """Path of a file that does not exist yet; only local folders have to be made."""
        folder = partition.folder
        if self._is_local and folder not in self._known_folders:
            storage.ensure_folder(self.root, folder)
            self._known_folders.add(folder)
        name = f"part-{task_id}-{uuid4()}.{codec}.parquet"
        return f"{folder}/{name}" if folder else name

    def write(
        self, path: str, rows: Iterable[pa.Table], encoding: ParquetEncoding
    ) -> tuple[int, parquet.FileMetaData]:
        """Write each of ``rows`` as a row group of a new file; its size in bytes and its footer.

        A file that could not be finished is removed.
        """
        with (
            cleaning_up_after_failure(lambda: self.delete([path])),
            storage.open_output(self.root, path, self._options) as stream,
        ):
            footer = encoding.write(rows, stream)
            return int(stream.tell()), footer

    def read(self, path: str, columns: Collection[str] | None = None) -> pa.Table:
        """The columns that are in the file, or those of ``columns`` that are: no partition columns.

        Columns inside of structs are read with their struct.
        """
        from pyarrow import parquet

        with storage.open_input(self.root, path, self._options) as stream:
            # Spark writes times as INT96; in nanoseconds they would not reach beyond 2262.
            file = parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            names = (
                None if columns is None else [n for n in file.schema_arrow.names if n in columns]
            )
            return file.read(columns=names, use_threads=False)

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files; missing ones are no error."""
        storage.delete_files(self.root, paths, self._options)
