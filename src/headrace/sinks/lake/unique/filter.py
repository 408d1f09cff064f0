"""Takes duplicates out of a batch on the driver, just before its commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import SinkError
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.api import CommitRejection
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile
from headrace.sinks.lake.unique.known_rows import KnownRows
from headrace.sinks.lake.unique.rewriting import JudgedFile, Rewriter, task_of
from headrace.sinks.lake.unique.row_keys import (
    ROW_KEY,
    KeyRule,
    RowKeys,
    keys_of_text,
)
from headrace.sinks.lake.unique.verdicts import Verdict, judge

# They are held as JSON: a column that differs in each duplicate must not fill the memory.
MAX_CONFLICTS = 100_000
# A live pipeline uses two horizons of slices, one before its rows and one after them.
_KEPT_SLICES = 64
_HOURS_SHOWN = 3
_PLACE_BITS = 32
_HOUR_US = 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Dropped:
    """What was taken out of the batch whose files are ``left``."""

    left: frozenset[str] = frozenset()
    duplicates: int = 0
    conflicts: int = 0
    hours: Counter[int] = field(default_factory=Counter)

    def and_(self, left: frozenset[str], duplicates: pa.Table, conflicts: int, by: str) -> _Dropped:
        """Returns what is dropped when rows of ``left`` are dropped, too."""
        hours = self.hours + Counter(_hours(duplicates[by]).tolist())
        return _Dropped(
            left, self.duplicates + duplicates.num_rows, self.conflicts + conflicts, hours
        )


class TableKeys(Protocol):
    """Reads the keys of rows that a table of one format has already.

    Both methods, and what they return, raise SinkError or OSError if the table can't be read.
    """

    def added(self, after: int, version: int) -> Iterator[RowKeys] | None:
        """Returns the keys of rows that came after one version, up to another one.

        None: what came is not known any more, or rows were removed.
        """

    def in_slices(self, slices: Collection[int]) -> Iterator[RowKeys]:
        """Returns the keys of the rows of these slices, as of the newest version; of others, too.

        ``slices`` are one at least.
        """


class UniqueFilter:
    """What the driver knows of the rows of a table that is unique. Used on one thread."""

    def __init__(self, spec: WriteSpec, rule: KeyRule, keys: TableKeys) -> None:
        self._spec = spec
        self._rule = rule
        self._rewriter = Rewriter(spec, rule)
        self._table_keys = keys
        self._known = KnownRows()
        self._version = -1
        # Files whose rows were compared with this version: none of them is a duplicate.
        self._checked: frozenset[str] = frozenset()
        self._dropped = _Dropped()
        self._hours: Counter[int] = Counter()

    def check(self, files: Sequence[WrittenFile], version: int) -> CommitRejection | None:
        """Compares the rows of a batch with a version of the table, and with each other.

        Returns:
            None if none is a duplicate: they may be committed after that version. Otherwise the
            duplicates, and pieces without them; files that had some are deleted.

        Raises:
            SinkError: if the table can't be read, or more than :data:`MAX_CONFLICTS` rows conflict.
            OSError: if a file can't be read or written.
        """
        self._follow(version)
        paths = _paths(files)
        if paths == self._checked:
            return None
        if not paths <= self._dropped.left:
            self._dropped = _Dropped()
        judged = self._judged(sorted(files, key=task_of))
        if not all(file.is_clean for file in judged):
            return self._without_duplicates(judged)
        self._checked = paths
        return None

    def committed(self, files: Sequence[WrittenFile]) -> Mapping[str, int]:
        """Notes that files that were checked are in the next version; returns its figures."""
        self._version += 1
        keys = _joined([keys_of_text(file.keys) for file in files])
        self._known.add(keys)
        dropped, self._dropped = self._dropped, _Dropped()
        hours = self._hours + dropped.hours
        # Another one, as a status may be made at this moment.
        self._hours = Counter({hour: hours[hour] for hour in sorted(hours)[-_HOURS_SHOWN:]})
        return {
            "lake_duplicate_rows": dropped.duplicates,
            "lake_conflicting_rows": dropped.conflicts,
            "lake_unchecked_rows": int((keys["key"] == 0).sum()),
        }

    def figures(self) -> Mapping[str, str]:
        """Returns how many duplicates were dropped of each of the newest hours of event time."""
        hours = sorted(self._hours.items())
        texts = [f"{_EPOCH + timedelta(hours=hour):%Y-%m-%dT%H} {count}" for hour, count in hours]
        return {"lake_duplicates_by_hour": ", ".join(texts)}

    def _follow(self, version: int) -> None:
        """Takes in what others have committed since the version that it knows."""
        if self._known.slices and version != self._version:
            added = self._table_keys.added(self._version, version)
            if added is None:
                self._known.forget()
                self._checked = frozenset()
            for keys in added or ():
                self._known.add(keys)
                self._checked = frozenset()
        self._version = version

    def _judged(self, files: Sequence[WrittenFile]) -> list[JudgedFile]:
        of_files = [keys_of_text(file.keys) for file in files]
        keys = _joined(of_files)
        names = [task_of(file) for file in files]
        places = {name: place for place, name in enumerate(sorted(set(names)))}
        tasks = np.repeat(
            np.array([places[name] for name in names], np.int64), [len(k) for k in of_files]
        )
        # Files of a task are by partition, and its rows are in several of them.
        ranks = (tasks << _PLACE_BITS) + keys["place"]
        self._read_slices(keys)
        verdicts = judge(keys, ranks, self._known, self._rule.max_distance)
        parts = np.split(verdicts, np.cumsum([len(k) for k in of_files])[:-1]) if files else []
        return [
            JudgedFile(*parts_of_file) for parts_of_file in zip(files, of_files, parts, strict=True)
        ]

    def _read_slices(self, keys: RowKeys) -> None:
        """Reads rows of the table that can be near to those of ``keys``, where it has not yet."""
        distance, slices = self._rule.max_distance, np.unique(keys["slice"][keys["key"] != 0])
        needed = {
            near
            for slice_ in slices.tolist()
            for near in range(slice_ - distance, slice_ + distance + 1)
        }
        missing = needed - self._known.slices
        self._known.begin(needed)
        self._known.keep_last(max(_KEPT_SLICES, len(needed)))
        with cleaning_up_after_failure(self._known.forget):
            for rows in self._table_keys.in_slices(missing) if missing else ():
                self._known.add(rows[np.isin(rows["slice"], list(missing))])

    def _without_duplicates(self, judged: Sequence[JudgedFile]) -> CommitRejection:
        conflicts = sum(int((file.verdicts == Verdict.CONFLICT).sum()) for file in judged)
        if conflicts > MAX_CONFLICTS:
            by = ", ".join(self._rule.by)
            reason = (
                f"{conflicts} rows of a batch have a key ({by}) that is there with other values"
            )
            remedy = "name columns that differ in each duplicate in Unique.ignore"
            raise SinkError(self._spec.root, f"{reason}; {remedy}")
        parts = self._rewriter.divide(judged)
        left = [part.file for part in parts if part.file is not None]
        rejected = [values for part in parts for values in part.conflicts]
        duplicates = pa.concat_tables(
            [part.duplicates for part in parts if part.duplicates is not None]
        )
        self._checked = _paths(left)
        self._dropped = self._dropped.and_(
            self._checked, duplicates, len(rejected), self._rule.event_time
        )
        return CommitRejection(rejected, [file.to_json() for file in left], duplicates)


def _joined(keys: Sequence[RowKeys]) -> RowKeys:
    return np.concatenate(keys) if keys else np.empty(0, ROW_KEY)


def _paths(files: Sequence[WrittenFile]) -> frozenset[str]:
    return frozenset(file.path for file in files)


def _hours(times: pa.ChunkedArray) -> NDArray[np.int64]:
    micros = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
    hours: NDArray[np.int64] = micros.to_numpy() // _HOUR_US
    return hours
