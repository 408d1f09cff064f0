"""The entries of one range of an index: a RocksDB of its own, open only while it is used.

A RocksDB must be opened with all of its column families, and writes and parses the options of each.
Ranges that are column families of one RocksDB would cost each batch a millisecond of CPU each. To
open a RocksDB with one family costs three milliseconds to write, and half of one to read; a batch
writes to one range or two.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from headrace.runtime.files.durable_files import sync_folder

if TYPE_CHECKING:
    from rocksdict import AccessType, CompactOptions, Options, Rdict

_CURRENT = "CURRENT"
_DEFAULT = "default"


class OtherFilesError(Exception):
    """A range has other files than those that it is known to have."""


class RangeEntries:
    """The entries of one range.

    Nothing is written to them but whole files, so RocksDB needs no write-ahead log, and a crash
    leaves them with a file or without it.

    Args:
        folder: where they are; it is made with the first file.
        options: options of RocksDB.

    Attributes:
        file_count: the number of files that must be there. With fewer, some were lost; with more,
            a crash came between a file and the mark that names it.

    Raises:
        OtherFilesError: if another number of files is there when it is opened.
        Exception: as RocksDB words it: the disk fails, or what is read is damaged.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        self._folder, self._options = folder, options
        self.file_count = 0

    @staticmethod
    def are_in(folder: Path) -> bool:
        """Returns whether a folder holds entries, and not what a crash left of them."""
        return (folder / _CURRENT).exists()

    def count_files(self) -> int:
        """Returns the number of files on the disk, of which RocksDB may have lost some."""
        return sum(file.suffix == ".sst" for file in self._folder.iterdir())

    @contextmanager
    def reading(self) -> Iterator[Rdict]:
        """Opens them to be read."""
        from rocksdict import AccessType

        with self._opened(AccessType.read_only()) as entries:
            yield entries

    def ingest(self, files: Sequence[bytes]) -> None:
        """Takes sorted files; they are on the disk then."""
        with self._writing() as entries, TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.sst" for number in range(len(files))]
            for path, content in zip(paths, files, strict=True):
                path.write_bytes(content)
            entries.ingest_external_file([str(path) for path in paths])

    def merge_files(self) -> None:
        """Merges the files into one or few."""
        with self._writing() as entries:
            entries.compact_range(None, None, _compaction())

    def delete(self) -> None:
        """Deletes all of them. A crash leaves all, or what is not taken for entries."""
        with suppress(FileNotFoundError):  # a cleaner of temporary files may have deleted it
            (self._folder / _CURRENT).unlink()
            sync_folder(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[Rdict]:
        from rocksdict import AccessType

        with self._opened(AccessType.read_write()) as entries:
            yield entries
            self.file_count = _file_count(entries)
        # rocksdict would parse them at each opening, and has those that are given here.
        for options in self._folder.glob("OPTIONS-*"):
            options.unlink()

    @contextmanager
    def _opened(self, access: AccessType) -> Iterator[Rdict]:
        from rocksdict import Rdict

        families = {_DEFAULT: self._options}  # by default, a family has a cache of its own
        with closing(Rdict(str(self._folder), self._options, families, access)) as entries:
            if (count := _file_count(entries)) != self.file_count:
                raise OtherFilesError(f"{self._folder} has {count} files, not {self.file_count}")
            yield entries


def _file_count(entries: Rdict) -> int:
    return len(entries.live_files())


def _compaction() -> CompactOptions:
    """Returns how the files become few: those whose keys do not overlap, too."""
    from rocksdict import BottommostLevelCompaction, CompactOptions

    options = CompactOptions()
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
    return options
