"""The table: what a start or ``apply`` makes and adds, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import SinkUnavailableError, TableMismatchError
from headrace.model import EventField
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.columns import (
    TableColumn,
    by_name,
    column_for,
    difference,
    missing_required,
    naming_faults,
)
from headrace.sinks.bigquery.connection import NAME, TableAddress, Tables, retry_for
from headrace.sinks.bigquery.conversion import RowForm

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TableSpec:
    """What a table must be.

    Attributes:
        address: where it is.
        schema: of the rows.
        fields: of the events, by column.
        event_time: column of the rows that a new table is partitioned by; None: by none.
        partition: ``hour``, ``day`` or ``month``; None: a new table has no partitions.
        clustering: columns, in their order.
    """

    address: TableAddress
    schema: pa.Schema
    fields: Mapping[str, EventField]
    event_time: str | None
    partition: str | None
    clustering: tuple[str, ...]


@dataclass(frozen=True)
class TargetState:
    """A table as it is now.

    Attributes:
        creation_time: when it was made; another number where it was recreated.
        form: of its rows.
    """

    creation_time: str
    form: RowForm


class TargetTable:
    """Compares a table with what it must be.

    Raises:
        TableMismatchError: by each method, if something would have to change that is not added.
    """

    def __init__(self, tables: Tables, spec: TableSpec) -> None:
        self._tables, self._spec = tables, spec
        self._label = spec.address.label

    def changes(self) -> list[str]:
        """Returns what :meth:`make` would do, as ends of a sentence about the table."""
        existing = self._tables.get(self._spec.address)
        return self._differences(existing)

    def make(self) -> tuple[TargetState, list[str]]:
        """Makes the table, or adds columns to it; returns it, and what was done.

        Raises:
            SinkUnavailableError: if BigQuery does not answer for 20 seconds.
            TableMismatchError: also if it says that it adds columns, and does not.
        """
        wait_seconds = connection.COMMIT_WAIT_SECONDS
        existing = retry_for(lambda: self._tables.get(self._spec.address), wait_seconds)
        changes = self._differences(existing)
        if existing is None:
            existing = retry_for(self._inserted, wait_seconds)
        if self._differences(existing):  # also where another start has made it meanwhile
            existing = retry_for(self._extended, wait_seconds)
        known = by_name(_columns_of(existing))
        columns = {name: known[name.lower()] for name in self._spec.schema.names}
        form = RowForm(columns, self._spec.fields)
        return TargetState(str(existing.get("creationTime", "")), form), changes

    def _inserted(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "schema": {"fields": [column.resource() for column in self._columns().values()]}
        }
        if self._partitioning:
            body["timePartitioning"] = self._partitioning
        if self._spec.clustering:
            body["clustering"] = {"fields": list(self._spec.clustering)}
        # None: another start has created it meanwhile, and that table must fit.
        made = self._tables.insert(self._spec.address, body)
        return made or self._existing()

    def _extended(self) -> dict[str, Any]:
        """Adds columns, unless another start has; of two that add at the same time, one waits."""
        existing = self._existing()
        if not self._differences(existing):
            return existing
        fields = _with_added(existing["schema"]["fields"], list(self._columns().values()))
        # Only while the table is that of the etag: columns that another start adds are not lost.
        changed = self._tables.patch(
            self._spec.address, {"schema": {"fields": fields}}, existing["etag"]
        )
        if changed is None:
            raise SinkUnavailableError(NAME, f"table {self._label} was changed meanwhile")
        lacking = self._differences(changed)
        if lacking:
            columns = "; ".join(lacking)
            reason = f"{NAME} took this change and did not make it: {columns}. Make it by hand"
            raise TableMismatchError(self._label, reason)
        return changed

    def _existing(self) -> dict[str, Any]:
        existing = self._tables.get(self._spec.address)
        if existing is None:
            raise SinkUnavailableError(NAME, f"table {self._label} is not there yet")
        return existing

    def _differences(self, existing: Mapping[str, Any] | None) -> list[str]:
        declared = self._columns()
        if existing is None:
            return [f"is created{self._layout()}"]
        self._check_layout(existing)
        columns = _columns_of(existing)
        known = by_name(columns)
        for name, column in declared.items():
            if (old := known.get(name.lower())) and (reason := difference(old, column)):
                raise TableMismatchError(self._label, f"column {name!r} {reason}")
        if needed := missing_required(columns, declared.values()):
            reason = f"column {needed[0]!r} is REQUIRED, and the rows do not have it"
            raise TableMismatchError(self._label, reason)
        return [f"gets column {path!r}, {sql}" for path, sql in _added(columns, declared.values())]

    def _columns(self) -> dict[str, TableColumn]:
        """Returns the columns of a new table, by name.

        Raises:
            TableMismatchError: if there is none for a column of the rows, or none of its name.
        """
        made = {
            field.name: column_for(field.name, field.type, self._spec.fields.get(field.name))
            for field in self._spec.schema
        }
        for name, column in made.items():
            if column is None:
                kind = self._spec.schema.field(name).type
                raise TableMismatchError(self._label, f"it has no type for {name!r}, {kind}")
        columns = {name: column for name, column in made.items() if column is not None}
        self._check_names(columns.values())
        return columns

    def _check_names(self, columns: Iterable[TableColumn]) -> None:
        for message, remedy in naming_faults(column.name for column in columns):
            raise TableMismatchError(self._label, f"{message}: {remedy}")
        for column in columns:
            self._check_names(column.fields)

    @property
    def _partitioning(self) -> dict[str, str] | None:
        if self._spec.partition is None or self._spec.event_time is None:
            return None
        return {"type": self._spec.partition.upper(), "field": self._spec.event_time}

    def _layout(self) -> str:
        parts = []
        if self._partitioning:
            limit = " (10,000 partitions: 416 days)" if self._spec.partition == "hour" else ""
            unit = f"{self._spec.partition} of {self._spec.event_time!r}{limit}"
            parts.append(f", partitioned by {unit}")
        if self._spec.clustering:
            parts.append(f", clustered by {', '.join(self._spec.clustering)}")
        return "".join(parts)

    def _check_layout(self, existing: Mapping[str, Any]) -> None:
        layout = existing.get("timePartitioning")
        actual = layout and {"type": layout.get("type"), "field": layout.get("field")}
        if actual != self._partitioning:
            reason = f"it is {_described(actual)}, and declared {_described(self._partitioning)}"
            raise TableMismatchError(self._label, reason)
        clustering = tuple(existing.get("clustering", {}).get("fields", ()))
        if clustering != self._spec.clustering:
            reason = f"it is clustered by {clustering}, and declared by {self._spec.clustering}"
            raise TableMismatchError(self._label, reason)


def _described(partitioning: Mapping[str, str | None] | None) -> str:
    if partitioning is None:
        return "without partitions by time"
    return f"partitioned by {str(partitioning['type']).lower()} of {partitioning['field']!r}"


def _columns_of(existing: Mapping[str, Any]) -> list[TableColumn]:
    return [TableColumn.of(field) for field in existing.get("schema", {}).get("fields", ())]


def _added(
    existing: Iterable[TableColumn], declared: Iterable[TableColumn], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Yields path and type of each column and member that a table lacks."""
    known = by_name(existing)
    for column in declared:
        old = known.get(column.name.lower())
        if old is None:
            yield path + column.name, column.sql
        elif old.type == column.type:
            yield from _added(old.fields, column.fields, f"{path}{column.name}.")


def _with_added(
    existing: Sequence[dict[str, Any]], declared: Sequence[TableColumn]
) -> list[dict[str, Any]]:
    """Returns the schema of a table with what it lacks; what it has stays as it is."""
    columns = by_name(declared)
    fields = []
    for field in existing:
        column = columns.pop(field["name"].lower(), None)
        inner = field.get("fields")
        if column is not None and inner and column.fields:
            field = {**field, "fields": _with_added(inner, column.fields)}  # noqa: PLW2901
        fields.append(field)
    return fields + [column.resource() for column in columns.values()]
