"""Rewrites files of a batch, without the rows that must not be committed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.model import CONFLICTING_KEY
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.api import RejectedValues
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile
from headrace.sinks.lake.files.encoding import ParquetEncoding
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import with_partition_values
from headrace.sinks.lake.unique.row_keys import KeyRule, RowKeys, keys_text
from headrace.sinks.lake.unique.verdicts import Verdict, Verdicts
from headrace.sinks.lake.upkeep.merging import conformed, event_times_of
from headrace.sinks.row_json import row_json

_AT_ONCE = 8  # files in memory


@dataclass(frozen=True)
class JudgedFile:
    """A file, the keys of its rows, and what becomes of them."""

    file: WrittenFile
    keys: RowKeys
    verdicts: Verdicts

    @property
    def is_clean(self) -> bool:
        """Whether all its rows are kept."""
        return not self.verdicts.any()


@dataclass(frozen=True)
class Divided:
    """Rows that are kept, and those that are not.

    Attributes:
        file: with the rows that are kept; None: there are none.
        duplicates: rows that are dropped; None: the file is as it was.
        conflicts: rows that become dead letters.
    """

    file: WrittenFile | None
    duplicates: pa.Table | None = None
    conflicts: Sequence[RejectedValues] = ()


class Rewriter:
    """Divides the files of a batch."""

    def __init__(self, spec: WriteSpec, rule: KeyRule) -> None:
        self._spec = spec
        self._rule = rule
        self._folder = TableFolder(spec.root, spec.storage_options)

    def divide(self, files: Sequence[JudgedFile]) -> list[Divided]:
        """Returns the files, those with other rows rewritten; the old ones are deleted."""
        dirty = [judged for judged in files if not judged.is_clean]
        sample = max(dirty, key=lambda judged: judged.file.rows).file
        rows, codec = self._folder.read(sample.path), self._spec.layout.compression
        encoding = ParquetEncoding(rows, codec, self._rule.event_time)
        written: list[str] = []

        def divide(judged: JudgedFile) -> Divided:
            divided = self._divided(judged, encoding)
            written.extend([divided.file.path] if divided.file is not None else ())
            return divided

        # Threads also for local files: no task of the batch runs any more, and Parquet is read and
        # written outside of Python.
        with (
            cleaning_up_after_failure(lambda: self._folder.delete(written)),
            ThreadPoolExecutor(_AT_ONCE) as pool,
        ):
            divided = list(pool.map(divide, dirty))
        self._folder.delete(judged.file.path for judged in dirty)
        return [Divided(judged.file) for judged in files if judged.is_clean] + divided

    def _divided(self, judged: JudgedFile, encoding: ParquetEncoding) -> Divided:
        file, verdicts = judged.file, judged.verdicts
        rows = self._folder.read(file.path)
        keep = verdicts == Verdict.KEEP
        kept = None
        if keep.any():
            keys = judged.keys[keep]
            kept = self._rewritten(file, rows.filter(pa.array(keep)), keys, encoding)
        others = with_partition_values(rows.filter(pa.array(~keep)), file.partition_values)
        others = conformed(others, self._spec.schema)
        is_duplicate = verdicts[~keep] == Verdict.DUPLICATE
        conflicts = []
        for index in np.flatnonzero(~is_duplicate).tolist():
            row = others.slice(index, 1)
            detail = f"a row with {self._rule.shown_key(row)} is there, with other values"
            conflicts.append(RejectedValues(row_json(row), CONFLICTING_KEY, detail))
        return Divided(kept, others.filter(pa.array(is_duplicate)), conflicts)

    def _rewritten(
        self, file: WrittenFile, rows: pa.Table, keys: RowKeys, encoding: ParquetEncoding
    ) -> WrittenFile:
        event_time = self._rule.event_time
        path = self._folder.new_path(file.partition, task_of(file), self._spec.layout.compression)
        size, footer = self._folder.write(path, [rows], encoding)
        times = event_times_of(rows[event_time])
        return replace(
            file,
            path=path,
            size=size,
            rows=rows.num_rows,
            stats=self._spec.files.stats(footer, {event_time: times}, rows),
            min_event_time_us=times.lowest_us,
            max_event_time_us=times.highest_us,
            keys=keys_text(keys),
        )


def task_of(file: WrittenFile) -> str:
    """Returns the id of the task that wrote a file: ids sort as the tasks have read."""
    return file.path.rpartition("/")[2].split("-")[1]
