"""The end of a Delta log: what a writer that only adds files must know, and its commits.

delta-rs reads all live files of a table before each commit, and again after it: half a second at
200,000 files. Adding files needs the number of the last version, the columns, and what the
application committed last; the time that takes does not depend on the table's size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import count
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from headrace.errors import SinkError
from headrace.runtime.clock import now_in_ms
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.table_features import unfulfilled
from headrace.sinks.lake.files.data_file import FileSwap, StoredFile, WrittenFile
from headrace.storage import files as storage
from headrace.storage.files import Options

# Actions of commits that do more than add files.
_MORE = frozenset({"remove", "metaData", "protocol"})
# Operations that remove rows and leave the positions that are recorded beside them.
_REPLACEMENTS = frozenset({"RESTORE", "CLONE"})
# Characters that delta-rs leaves as they are in a path, besides letters and digits. What removes
# a file must write its path as what added it did.
_PATH_CHARACTERS = "/!$&'()+,-.:;=@_~"


class _LastCheckpoint(msgspec.Struct):
    version: int


# Made at import: msgspec crashes where several threads are the first to decode a class.
_LAST_CHECKPOINT = msgspec.json.Decoder(_LastCheckpoint)


class LogTail:
    """The last version of one table's log, kept up to date by reading newer versions.

    Args:
        table: as delta-rs has just read it.
        app_ids: the applications whose transactions are followed.
        uri: of the table.
        options: of its storage.

    Attributes:
        version: the last one.
        schema: columns of the table.
        partition_columns: their names.
        properties: of the table.
        unfulfilled: what the table asks of a writer that headrace does not do; None: nothing.
        max_behind: versions that are read one by one, rather than all files.
        widened: Delta's types of columns stay as they are.
    """

    # Each version is a request: beyond so many, delta-rs reads a checkpoint faster.
    max_behind = 100
    widened: Collection[tuple[str, str]] = ()

    def __init__(
        self, table: DeltaTable, app_ids: Collection[str], uri: str, options: Options
    ) -> None:
        self.version = table.version()
        self._transactions: dict[str, int | None] = {
            app_id: table.transaction_version(app_id) for app_id in app_ids
        }
        self.schema = table.schema()
        self.partition_columns = tuple(table.metadata().partition_columns)
        self.properties = dict(table.metadata().configuration)
        self.unfulfilled = unfulfilled(table)
        self._log = storage.join(uri, "_delta_log")
        self._options = options
        # By content, since a number says nothing: after a restore another commit may have it.
        self._digest = self._digest_of(self.version)

    @property
    def app_ids(self) -> frozenset[str]:
        """The applications whose transactions are followed."""
        return frozenset(self._transactions)

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application has committed; None when there is none.

        Raises:
            KeyError: if the application is not followed.
        """
        return self._transactions[app_id]

    def read_on(self) -> bool:
        """Takes in what was committed since; False when the table has to be read again.

        That is so when its columns or protocol have changed, it was recreated, or versions that
        were not read are deleted or very many: the log has a newer checkpoint then.

        Raises:
            SinkError: if a RESTORE or another replacement has removed rows, of which applications
                know nothing.
        """
        checkpoint = last_checkpoint(self._log, self._options)
        far_behind = checkpoint is not None and checkpoint > self.version + self.max_behind
        if far_behind or self._digest is None:
            return False
        # A table restored from a backup, or recreated, has another commit of this number or none.
        if self._digest_of(self.version) != self._digest:
            return False
        for version in count(self.version + 1):
            try:
                content = storage.read_bytes(self._path(version), self._options)
            except FileNotFoundError:
                # The end of the log, unless a version before the checkpoint was deleted.
                return checkpoint is None or checkpoint <= self.version
            if not self._take_in(content):
                return False
            self.version, self._digest = version, sha256(content).digest()
        raise AssertionError

    def append(self, files: Iterable[WrittenFile], transaction: Transaction) -> None:
        """Adds ``files`` as the next version, which records ``transaction``.

        Raises:
            CommitFailedError: if another writer was faster.
        """
        content = self._content(files, transaction)
        path = self._path(self.version + 1)
        try:
            # Creating this name is the commit: of several writers, storage allows it to one.
            storage.write_bytes_new(path, content, self._options)
        except FileExistsError as error:
            # A commit whose answer was lost on the way is still this one's.
            if storage.read_bytes(path, self._options) != content:
                raise CommitFailedError(f"{path} is another writer's") from error
        # Only now: after a failure the next call reads the version that others have written.
        self.version, self._digest = self.version + 1, sha256(content).digest()
        self._transactions |= transaction.versions

    def _content(self, files: Iterable[WrittenFile], transaction: Transaction) -> bytes:
        now_ms, metadata = now_in_ms(), transaction.metadata
        partition_by = json.dumps(self.partition_columns)
        info = {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": partition_by},
            "isBlindAppend": True,
            "engineInfo": "headrace",
        }
        actions: list[dict[str, object]] = [
            {"commitInfo": info | ({"headrace": dict(metadata)} if metadata else {})}
        ]
        # Without a time of update a transaction does not expire, see
        # delta.setTransactionRetentionDuration: a quiet partition keeps its position.
        actions += [
            {"txn": {"appId": app_id, "version": version}}
            for app_id, version in transaction.versions.items()
        ]
        actions += [{"add": _add(file, now_ms)} for file in files]
        return b"\n".join(map(msgspec.json.encode, actions)) + b"\n"

    def _take_in(self, content: bytes) -> bool:
        """False when a commit changes more than files."""
        only_files = True
        for action in _actions(content, but=(b'{"add"', b'{"remove"')):
            if (operation := replacement(action.get("commitInfo", {}))) is not None:
                raise SinkError(self._log, replaced_by(operation))
            only_files = only_files and _MORE.isdisjoint(action)
            if (txn := action.get("txn")) and txn["appId"] in self._transactions:
                self._transactions[txn["appId"]] = txn["version"]
        return only_files

    def _digest_of(self, version: int) -> bytes | None:
        """Returns a hash of the commit of ``version``; None when it was deleted from the log."""
        try:
            return sha256(storage.read_bytes(self._path(version), self._options)).digest()
        except FileNotFoundError:
            return None

    def _path(self, version: int) -> str:
        return storage.join(self._log, f"{version:020}.json")


def added_files(uri: str, versions: Iterable[int], options: Options) -> list[Any] | None:
    """Returns the files that commits of a table brought rows with, as their log has them.

    Returns:
        None if the log does not have all of these versions any more, or one removed rows.
    """
    added = []
    for version in versions:
        try:
            path = storage.join(uri, "_delta_log", f"{version:020}.json")
            actions = list(_actions(storage.read_bytes(path, options), but=()))
        except FileNotFoundError:
            return None
        if any(
            action["remove"].get("dataChange", True) for action in actions if "remove" in action
        ):
            return None
        added += [action["add"] for action in actions if "add" in action]
    return [file for file in added if file.get("dataChange", True)]


def replacement(commit: Mapping[str, Any]) -> str | None:
    """The operation of a commit that replaced all rows of its table; None for any other.

    What the table records of applications outlives it. Engines write parameters as text.

    Args:
        commit: its entry in the table's history.
    """
    operation = str(commit.get("operation", ""))
    if operation in _REPLACEMENTS or "REPLACE TABLE" in operation:
        return operation
    parameters = commit.get("operationParameters") or {}
    whole = parameters.get("mode") == "Overwrite" and not parameters.get("predicate")
    return "overwrite" if whole and operation == "WRITE" else None


def replaced_by(operation: str) -> str:
    """Says that ``operation``, a result of :func:`replacement`, was done to a table."""
    return f"another writer has replaced rows of the table ({operation})"


def last_checkpoint(log: str, options: Options) -> int | None:
    """The version that the newest checkpoint of the log in folder ``log`` holds, if it has one.

    The file is a hint: one that is damaged counts as none.
    """
    try:
        content = storage.read_bytes(storage.join(log, "_last_checkpoint"), options)
        return _LAST_CHECKPOINT.decode(content).version
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def replace_files(
    table: DeltaTable,
    uri: str,
    options: Options,
    swap: FileSwap[StoredFile],
) -> None:
    """Commits files that hold the rows of removed ones, after whatever others have added.

    Raises:
        CommitFailedError: if another writer has removed files or changed the table meanwhile.
    """
    now_ms = now_in_ms()
    actions: list[dict[str, object]] = [
        {"commitInfo": {"timestamp": now_ms, "operation": "OPTIMIZE", "engineInfo": "headrace"}}
    ]
    actions += [{"remove": _remove(file, now_ms, data_change=False)} for file in swap.removed]
    actions += [{"add": _add(file, now_ms, data_change=False)} for file in swap.added]
    # As long as the commits in between only add files, the removed ones are still in the table.
    _commit_after(table, uri, options, actions, lambda present: not _only_adds(present))


def replace_rows(
    table: DeltaTable,
    uri: str,
    options: Options,
    swap: FileSwap[StoredFile],
    records: Transaction,
) -> None:
    """Commits other rows in place of some, after what others have committed beside them.

    Raises:
        CommitFailedError: if another writer has removed one of the files, changed the table or
            recorded something else than what is expected meanwhile.
    """
    now_ms = now_in_ms()
    # With a predicate it is no replacement of all rows, for pipelines that read it.
    parameters = {"mode": "Overwrite", "predicate": "rows of records that were read once more"}
    info = {
        "timestamp": now_ms,
        "operation": "WRITE",
        "operationParameters": parameters if swap.removed else {"mode": "Append"},
        "isBlindAppend": False,
        "engineInfo": "headrace",
        "headrace": dict(records.metadata),
    }
    actions: list[dict[str, object]] = [{"commitInfo": info}]
    actions += [
        {"txn": {"appId": app_id, "version": version}}
        for app_id, version in records.versions.items()
    ]
    actions += [{"remove": _remove(file, now_ms)} for file in swap.removed]
    actions += [{"add": _add(file, now_ms)} for file in swap.added]
    removed = {file.path for file in swap.removed}
    _commit_after(table, uri, options, actions, lambda present: _hinders(present, removed, records))


def _commit_after(
    table: DeltaTable,
    uri: str,
    options: Options,
    actions: Iterable[Mapping[str, object]],
    hinders: Callable[[bytes], bool],
) -> None:
    content = b"\n".join(map(msgspec.json.encode, actions)) + b"\n"
    for version in count(table.version() + 1):
        path = storage.join(uri, "_delta_log", f"{version:020}.json")
        try:
            storage.write_bytes_new(path, content, options)
        except FileExistsError:
            present = storage.read_bytes(path, options)
            if present == content:
                return  # the answer was lost on the way
            if hinders(present):
                raise CommitFailedError(f"{path} changes what this commit rests on") from None
        else:
            return


def _hinders(content: bytes, removed: Collection[str], records: Transaction) -> bool:
    for action in _actions(content, but=(b'{"add"',)):
        # Other columns or properties can make the files of this commit unreadable.
        if "metaData" in action or "protocol" in action:
            return True
        if replacement(action.get("commitInfo", {})) is not None:
            return True
        if (remove := action.get("remove")) and unquote(remove["path"]) in removed:
            return True
        # Another driver of the pipeline has committed: what was compared is not the newest state.
        txn = action.get("txn", {})
        app_id = txn.get("appId")
        if app_id in records.expected and txn["version"] != records.expected[app_id]:
            return True
    return False


def _only_adds(content: bytes) -> bool:
    return all(_MORE.isdisjoint(action) for action in _actions(content, but=(b'{"add"',)))


def _actions(content: bytes, but: tuple[bytes, ...]) -> Iterator[dict[str, Any]]:
    """Yields the actions of a commit, except those that start with one of ``but``."""
    for line in content.splitlines():
        if line.strip() and not line.startswith(but):
            yield msgspec.json.decode(line)


def _remove(file: StoredFile, now_ms: int, *, data_change: bool = True) -> dict[str, object]:
    return {
        "path": quote(file.path, safe=_PATH_CHARACTERS),
        "deletionTimestamp": now_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition.values),
        "size": file.size,
    }


def _add(file: WrittenFile, now_ms: int, *, data_change: bool = True) -> dict[str, object]:
    return {
        "path": quote(file.path, safe=_PATH_CHARACTERS),
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": now_ms,
        "dataChange": data_change,
        "stats": file.stats,
    }
