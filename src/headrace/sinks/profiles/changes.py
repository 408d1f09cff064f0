"""Rows as changes of profiles: those of one user are merged before anything is sent."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import TableMismatchError
from headrace.model import FieldType
from headrace.model.source import RECORD_COLUMNS
from headrace.sinks.api import DELETED, RejectedRow
from headrace.sinks.arrow_types import is_text
from headrace.sinks.map_values import Convert, map_converter
from headrace.sinks.profiles.latest import Latest, Where
from headrace.sinks.profiles.rules import DeclaredProfiles, ProfileRules
from headrace.sinks.profiles.store import (
    MAX_KEY_BYTES,
    ListChange,
    ProfileChange,
    Version,
    is_key,
)

if TYPE_CHECKING:
    import pyarrow as pa

# A read of a profile returns all of its values at once.
MAX_VALUE_BYTES = 64 * 1_024
# Later times, with the longest ttl, are no exact scores of Redis any more.
MAX_TIME_US = 2**52
# 128 bits: entries of a user do not collide by chance.
_ID_BYTES = 16
_UNREADABLE = object()
"""Represents a value that Python can't hold, such as a text that is not UTF-8."""


@dataclass(frozen=True)
class RowsSpec:
    """How rows are read: the declaration, with the columns that the rows have.

    Attributes:
        key: column of the user.
        event_time: column of the event time.
        event_id: column of the event id; None: there is none.
        fields: columns that are fields.
        lists: by name, with the columns of an entry.
        forget: which rows forget their user.
        ttl_us: how long a row lives, in microseconds.
    """

    key: str
    event_time: str
    event_id: str | None
    fields: tuple[str, ...]
    lists: Mapping[str, Latest]
    forget: Where | bool
    ttl_us: int

    @classmethod
    def of(cls, sink: DeclaredProfiles, event_time: str | None, schema: pa.Schema) -> RowsSpec:
        """Returns what reads rows of ``schema``.

        Raises:
            TableMismatchError: if the rows lack a column, or one has a type that the sink can't
                take.
        """
        columns = {column.name: _type_of(column.type) for column in schema}
        for fault in ProfileRules(sink, columns, event_time, {}).faults():
            raise TableMismatchError(sink.label, f"{fault.message} ({fault.remedy})")
        at = sink.event_time or event_time or ""
        own = {sink.key, at, sink.event_id}
        rest = tuple(name for name in columns if name not in {*own, *RECORD_COLUMNS, DELETED})
        lists = {
            name: Latest(latest.max_entries, tuple(latest.columns) or rest, latest.where)
            for name, latest in sink.lists.items()
        }
        ttl_us = sink.ttl // timedelta(microseconds=1)
        return cls(sink.key, at, sink.event_id, tuple(sink.fields), lists, sink.forget, ttl_us)

    @property
    def values(self) -> Iterator[str]:
        """Yields the columns whose values are stored or compared."""
        yield from self.fields
        for latest in self.lists.values():
            yield from (*latest.columns, *latest.where)
        if isinstance(self.forget, Mapping):
            yield from self.forget


@dataclass
class MergedRows:
    """What rows come to.

    Attributes:
        changes: a change for each user, in the order of their first rows.
        rejected: rows that can't be taken.
        expired: how many rows are dropped, since they are not live any more.
        forget: how many rows forget their user.
    """

    changes: Sequence[ProfileChange] = ()
    rejected: list[RejectedRow] = field(default_factory=list)
    expired: int = 0
    forget: int = 0


class _RejectedError(Exception):
    """A row can't be taken: a reason and a sentence."""


class _Row(msgspec.Struct, frozen=True):
    """A row that can be taken."""

    user: str
    at_us: int
    event_id: str
    index: int


class RowMerger:
    """Merges the rows of one table.

    Args:
        spec: how they are read.
        rows: with the columns of the spec.
        now_us: the time of the store: older rows than its ``ttl`` are dropped.
    """

    def __init__(self, spec: RowsSpec, rows: pa.Table, now_us: int) -> None:
        self._spec = spec
        self._expired_us = now_us - spec.ttl_us
        self._count = rows.num_rows
        self._columns = {name: _values(rows[name]) for name in dict.fromkeys(spec.values)}
        self._users = _values(rows[spec.key])
        self._times = _times_us(rows[spec.event_time])
        self._ids = None if spec.event_id is None else _values(rows[spec.event_id])
        has_deletions = DELETED in rows.column_names
        self._deleted = _values(rows[DELETED]) if has_deletions else [False] * self._count
        self._encoder = msgspec.json.Encoder(enc_hook=_json_value)
        self._changes: dict[str, ProfileChange] = {}

    def merged(self) -> MergedRows:
        """Returns the changes of all users, and the rows that are in none."""
        result = MergedRows()
        for index in range(self._count):
            try:
                row = self._row(index)
                if row.at_us <= self._expired_us:
                    result.expired += 1
                elif self._forgets(index):
                    result.forget += 1
                    change = self._change(row.user)
                    if change.forgotten_us is None or change.forgotten_us < row.at_us:
                        change.forgotten_us = row.at_us
                else:
                    self._add(row)
            except _RejectedError as error:
                result.rejected.append(RejectedRow(index, *error.args))
        result.changes = [change for change in self._changes.values() if _finish(change)]
        return result

    def _row(self, index: int) -> _Row:
        key, at, spec = self._users[index], self._times[index], self._spec
        user = "" if key is None or key is _UNREADABLE else str(key)
        if not is_key(user):
            sentence = f"column {spec.key!r} is the key, and is null, empty, too long or not UTF-8"
            raise _RejectedError("bad-key", sentence)
        if at is None:
            sentence = f"column {spec.event_time!r} is the event time, and is null"
            raise _RejectedError("missing-value", sentence)
        if abs(at) > MAX_TIME_US:
            sentence = f"column {spec.event_time!r} holds a time before 1827 or after 2112"
            raise _RejectedError("wrong-value", sentence)
        return _Row(user, at, self._event_id(index), index)

    def _event_id(self, index: int) -> str:
        if self._ids is None or self._deleted[index]:
            return ""
        event_id = self._ids[index]
        if event_id is None or event_id == "":
            sentence = f"column {self._spec.event_id!r} is the event id, and is null or empty"
            raise _RejectedError("missing-value", sentence)
        if event_id is _UNREADABLE:
            sentence = f"column {self._spec.event_id!r} is the event id, and is not UTF-8"
            raise _RejectedError("wrong-value", sentence)
        text = str(event_id)
        if (size := len(text.encode())) > MAX_KEY_BYTES:
            name = self._spec.event_id
            sentence = f"column {name!r} is the event id, and has {size:,} bytes"
            raise _RejectedError("row-too-large", f"{sentence}, of {MAX_KEY_BYTES:,}")
        return text

    def _forgets(self, index: int) -> bool:
        forget = self._spec.forget
        if self._deleted[index] or isinstance(forget, bool):
            return bool(self._deleted[index] or forget)
        return bool(forget) and self._meets(forget, index)

    def _meets(self, where: Where, index: int) -> bool:
        return all(self._columns[name][index] == value for name, value in where.items())

    def _change(self, user: str) -> ProfileChange:
        if (change := self._changes.get(user)) is None:
            change = self._changes[user] = ProfileChange(user)
        return change

    def _add(self, row: _Row) -> None:
        # First all values: a row that is rejected leaves nothing.
        fields = list(self._fields(row))
        entries = list(self._entries(row))
        change = self._change(row.user)
        for name, version in fields:
            _keep_greater(change.fields, name, version)
        for name, event_id, version in entries:
            max_entries = self._spec.lists[name].max_entries
            kept = change.lists.setdefault(name, ListChange(max_entries))
            _keep_greater(kept.entries, event_id, version)
            if len(kept.entries) > 2 * max_entries:
                _trim(kept)

    def _fields(self, row: _Row) -> Iterator[tuple[str, Version]]:
        for name in self._spec.fields:
            value = self._columns[name][row.index]
            # JSON has null for NaN and infinity, which are no values here either.
            if value is not None and not (isinstance(value, float) and not math.isfinite(value)):
                yield name, Version(row.at_us, self._json([row.event_id, value], name))

    def _entries(self, row: _Row) -> Iterator[tuple[str, str, Version]]:
        for name, latest in self._spec.lists.items():
            if self._meets(latest.where, row.index):
                values = {column: self._columns[column][row.index] for column in latest.columns}
                text = self._json(values, name)
                event_id = row.event_id
                if not event_id:
                    named = f"{row.at_us} {text}".encode()
                    event_id = hashlib.blake2b(named, digest_size=_ID_BYTES).hexdigest()
                yield name, event_id, Version(row.at_us, text)

    def _json(self, value: object, name: str) -> str:
        try:
            encoded = self._encoder.encode(value)
        except _UnreadableError:
            sentence = (
                f"{name!r} holds a time outside the years 1 to 9999, or a text that is not UTF-8"
            )
            raise _RejectedError("wrong-value", sentence) from None
        if len(encoded) > MAX_VALUE_BYTES:
            sentence = f"{name!r} has {len(encoded):,} bytes as JSON, of {MAX_VALUE_BYTES:,}"
            raise _RejectedError("row-too-large", sentence)
        return encoded.decode()


class _UnreadableError(Exception):
    """A value represents one that Python can't hold."""


def _json_value(value: object) -> str:
    if value is _UNREADABLE:
        raise _UnreadableError
    return str(value)


def _keep_greater(versions: dict[str, Version], name: str, version: Version) -> None:
    stored = versions.get(name)
    if stored is None or stored < version:
        versions[name] = version


def _finish(change: ProfileChange) -> bool:
    """Leaves out what the change itself forgets; returns whether anything is left."""
    forgotten = change.forgotten_us
    if forgotten is not None:
        change.fields = _after(forgotten, change.fields)
        for entries in change.lists.values():
            entries.entries = _after(forgotten, entries.entries)
    for entries in change.lists.values():
        _trim(entries)
    return forgotten is not None or bool(change.fields or change.lists)


def _after(at_us: int, versions: Mapping[str, Version]) -> dict[str, Version]:
    return {name: version for name, version in versions.items() if version.at_us > at_us}


def _trim(change: ListChange) -> None:
    if len(change.entries) > change.max_entries:
        entries = change.entries.items()
        latest = heapq.nlargest(
            change.max_entries, entries, lambda entry: (entry[1].at_us, entry[0])
        )
        change.entries = dict(latest)


def _values(column: pa.ChunkedArray) -> list[Any]:
    convert = map_converter(column.type)
    try:
        return [convert(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        return [_value(scalar, convert) for scalar in column]


def _value(scalar: pa.Scalar, convert: Convert) -> Any:
    try:
        return convert(scalar.as_py())
    except (OverflowError, ValueError):
        return _UNREADABLE


def _times_us(column: pa.ChunkedArray) -> list[int | None]:
    import pyarrow as pa

    # Nanoseconds are cut off.
    microseconds = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return list(microseconds.cast(pa.int64()).to_pylist())


def _type_of(column: pa.DataType) -> FieldType:
    """Returns the type as far as keys, ids, times and conditions need it; JSON: any other."""
    from pyarrow import types

    if is_text(column):
        return FieldType.STRING
    tests = {
        FieldType.LONG: types.is_integer,
        FieldType.BOOLEAN: types.is_boolean,
        FieldType.TIMESTAMP: types.is_timestamp,
    }
    return next((kind for kind, test in tests.items() if test(column)), FieldType.JSON)
