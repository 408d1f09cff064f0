"""The Delta log of one table: what is in it, and commits that other writers can't break."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema
from deltalake import Transaction as AppTransaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow import compute

from headrace.errors import SinkError
from headrace.runtime.clock import now_in_ms
from headrace.runtime.retrying import retry
from headrace.sinks.api import PositionStore, RestoredTarget, Transaction
from headrace.sinks.lake.conflicts import CONFLICT_DELAYS, collided
from headrace.sinks.lake.delta.log_tail import LogTail, replaced_by, replacement
from headrace.sinks.lake.files.data_file import StoredFile, WrittenFile
from headrace.sinks.lake.files.partitions import Partition, partition_text
from headrace.storage import files as storage
from headrace.storage.files import NO_OPTIONS, Options

TABLE_PROPERTIES = {
    # Of other writers. headrace's own commits leave checkpoints to maintenance, beside the batch.
    "delta.checkpointInterval": "50",
    # Delta's default is 30 days: with a batch every 10 s, a listing of 260,000 names.
    "delta.logRetentionDuration": "interval 1 days",
}
HISTORY_KEY = "headrace"
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class NothingRecorded:
    """A table at ``uri`` that records nothing of any application."""

    uri: str

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:  # noqa: ARG002
        """Returns nothing."""
        return {}

    def restored(self, writer: Mapping[str, object]) -> None:
        """Returns None: nothing was restored to it."""


class DeltaLog:
    """One table: its end for writers that add files, and snapshots for who needs all files."""

    def __init__(
        self, uri: str, options: Options = NO_OPTIONS, *, as_of: int | str | None = None
    ) -> None:
        self.uri = uri
        self._options = dict(options)
        self._as_of = as_of
        self._table: DeltaTable | None = None
        self._tail: LogTail | None = None

    def tail(self, app_ids: Collection[str] = ()) -> LogTail | None:
        """The end of the log as it is now; None when the table does not exist.

        All files of the table are read at the first call, and again only for applications that
        were not asked for before, or after its columns or protocol have changed.

        Raises:
            SinkError: if the log can't be read.
        """
        try:
            known = self._tail.app_ids if self._tail is not None else frozenset()
            if self._tail is None or not known.issuperset(app_ids) or not self._tail.read_on():
                self._tail = self._read_tail(known.union(app_ids))
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return self._tail

    def _read_tail(self, app_ids: Collection[str]) -> LogTail | None:
        self._table = None  # delta-rs would update a recreated one from its old version
        table = self.snapshot()
        self._table = None  # all its files take memory
        if table is not None and self._tail is not None:
            unread = table.version() - self._tail.version
            for entry in table.history(unread) if unread > 0 else ():
                if (operation := replacement(entry)) is not None:
                    raise SinkError(self.uri, replaced_by(operation))
        return LogTail(table, app_ids, self.uri, self._options) if table else None

    def snapshot(self) -> DeltaTable | None:
        """The table as it is now; None when it does not exist.

        Raises:
            SinkError: if the log can't be read.
        """
        try:
            if self._table is None:
                table = DeltaTable(self.uri, storage_options=self._options)
                if self._as_of is not None:
                    table.load_as_version(self._as_of)
                self._table = table
            elif self._as_of is None:
                self._table.update_incremental()
        except TableNotFoundError:
            self._table = None
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from error
        return self._table

    def _unreadable(self, error: Exception) -> SinkError:
        # delta-rs says in words alone what S3 refuses; the same request of ours has a typed error.
        storage.require_reachable(self.uri, self._options)
        return SinkError(self.uri, f"its Delta log can't be read: {error}")

    def existing(self) -> DeltaTable:
        """The table as it is now; SinkError when it does not exist."""
        table = self.snapshot()
        if table is None:
            reason = "there is no Delta table; `headrace run` makes it with the first batch"
            raise SinkError(self.uri, reason)
        return table

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """What the table records of applications; those it does not know are left out."""
        names = list(app_ids)
        table = self.tail(names) if self._as_of is None else self.snapshot()
        if table is None:
            return {}
        recorded = {name: table.transaction_version(name) for name in names}
        return {name: at for name, at in recorded.items() if at is not None}

    def restored(self, writer: Mapping[str, object]) -> RestoredTarget | None:
        """What a replacement of the table's rows brought back after ``writer`` wrote last.

        RESTORE, an overwrite, CREATE OR REPLACE TABLE and CLONE remove rows and leave what the
        table records of applications.

        Args:
            writer: values in the metadata of its commits.

        Returns:
            What it records as of the version that a RESTORE went back to; after another replacement
            nothing; None when there was neither since.
        """
        table = self.snapshot()
        return None if table is None else self._restored(table, table.version(), writer)

    def _restored(
        self, table: DeltaTable, version: int, writer: Mapping[str, object]
    ) -> RestoredTarget | None:
        """Returns what was brought back up to a version, as :meth:`restored` of that version."""
        for entry in _history(table):
            if entry["version"] > version:
                continue
            if writer.items() <= dict(entry.get(HISTORY_KEY, {})).items():
                return None
            operation = replacement(entry)
            if operation is not None:
                at = DeltaLog(self.uri, self._options, as_of=int(entry["version"]))
                return RestoredTarget(self._brought_back(table, entry, operation, writer), at)
        return None

    def _brought_back(
        self,
        table: DeltaTable,
        entry: Mapping[str, Any],
        operation: str,
        writer: Mapping[str, object],
    ) -> PositionStore:
        if operation != "RESTORE":
            return NothingRecorded(self.uri)
        before = DeltaLog(self.uri, self._options, as_of=_restored_to(entry))
        # That version can have been brought back itself, and records what was there before.
        earlier = self._restored(table, before.existing().version(), writer)
        return before if earlier is None else earlier.to

    def retrying(self, attempt: Callable[[], _Result]) -> _Result:
        """The result of ``attempt``, which is repeated while other writers come in between.

        Raises:
            SinkError: if they came in between too often, or the commit failed for another reason.
        """
        try:
            return retry(attempt, CommitFailedError, CONFLICT_DELAYS)
        except CommitFailedError as error:
            raise collided(self.uri, error) from error
        except (DeltaError, OSError) as error:
            storage.require_reachable(self.uri, self._options)
            raise SinkError(self.uri, f"the commit failed: {error}") from error

    def create(
        self,
        schema: pa.Schema,
        partition_by: Sequence[str],
        files: Sequence[WrittenFile],
        transaction: Transaction,
    ) -> None:
        """Creates the table with ``files``, in one transaction."""
        metadata = transaction.metadata
        try:
            create_table_with_add_actions(
                self.uri,
                Schema.from_arrow(schema),
                [
                    AddAction(
                        path=file.path,
                        size=file.size,
                        partition_values=file.partition_values,
                        modification_time=now_in_ms(),
                        data_change=True,
                        stats=file.stats,
                    )
                    for file in files
                ],
                mode="error",
                partition_by=list(partition_by),
                configuration=TABLE_PROPERTIES,
                storage_options=self._options,
                commit_properties=CommitProperties(
                    app_transactions=[
                        AppTransaction(name, at) for name, at in transaction.versions.items()
                    ],
                    custom_metadata={HISTORY_KEY: dict(metadata)} if metadata else None,
                ),
            )
        except DeltaError as error:
            raise self._lost_race(error) from error

    def _lost_race(self, error: DeltaError) -> DeltaError:
        # delta-rs raises one error for an existing table and for storage that fails.
        exists = DeltaTable.is_deltatable(self.uri, self._options)
        return CommitFailedError("another writer created the table") if exists else error

    def add_columns(self, columns: Sequence[Field]) -> None:
        """Adds nullable columns, or fields of structs, in a transaction of their own."""
        self.existing().alter.add_columns(list(columns))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sets properties of the table, in a transaction of their own."""
        if properties:
            alter = self.existing().alter
            alter.set_table_properties(dict(properties), raise_if_not_exists=False)


def _history(table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """What was done to the table, newest first; a few entries are read before many."""
    seen = 0
    # delta-rs reads as many commits as are asked for; mostly one of the last is looked for.
    for limit in (20, 1_000, 100_000):
        entries = list(table.history(limit))
        yield from entries[seen:]
        seen = len(entries)
        if seen < limit:
            return


def _restored_to(entry: Mapping[str, Any]) -> int | str:
    """The version, or the time, of a RESTORE's entry; engines write its numbers as text."""
    parameters = entry["operationParameters"]
    version = str(parameters.get("version") or "")
    if version.isdigit():
        return int(version)
    return str(parameters.get("datetime") or parameters["timestamp"])


def live_files(table: DeltaTable, max_bytes: int = 2**63 - 1) -> Iterator[StoredFile]:
    """Yields the files of at most ``max_bytes`` that hold the table's rows, oldest first.

    Of a large table most files are large, and never become Python's.
    """
    adds = pa.table(table.get_add_actions())
    names = table.metadata().partition_columns
    adds = adds.filter(compute.less_equal(adds["size_bytes"], max_bytes))
    columns = ["path", "size_bytes", *(["partition"] if names else [])]
    for add in adds.sort_by("modification_time").select(columns).to_pylist():
        values = add.get("partition", {})
        partition = Partition(tuple((name, partition_text(values[name])) for name in names))
        yield StoredFile(unquote(add["path"]), add["size_bytes"], partition)


def live_paths(table: DeltaTable) -> set[str]:
    """Paths of the files that hold the table's rows."""
    return {unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}
