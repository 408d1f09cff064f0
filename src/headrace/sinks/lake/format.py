"""What a format of the lake's tables does: all of ``Lake`` that differs between two formats."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.model.fault import Fault
from headrace.sinks.api import CompactionResult, PositionStore, SinkContext, SinkDriver, Snapshot
from headrace.sinks.lake.layout import TableLayout

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.settings import Secret
    from headrace.sinks.lake.files.data_file import WriteSpec


@dataclass(frozen=True)
class DeclaredTable:
    """A table as a pipeline declares it.

    Attributes:
        context: where the pipeline runs.
        name: of the table.
        layout: its partitions and files.
        event_time: column of the event time; None: there is none.
    """

    context: SinkContext
    name: str
    layout: TableLayout
    event_time: str | None

    @property
    def folder(self) -> str:
        """Returns the URI of the folder that has its name in the lake."""
        return f"{self.context.lake}/{self.name}"

    def shown_columns(self, event_id: str | None) -> list[str]:
        """Returns the columns by which people know a row of the topic."""
        names = (id_column(event_id), self.context.event_time)
        return [name for name in names if name is not None]

    def write_spec(self, schema: pa.Schema) -> WriteSpec:
        """Returns what is written to it: rows with the columns of ``schema``."""
        from headrace.sinks.any_values import fields_with_any
        from headrace.sinks.lake.files.data_file import WriteSpec

        return WriteSpec(
            self.folder,
            schema,
            self.layout,
            self.event_time if self.event_time in schema.names else None,
            self.context.pipeline,
            self.context.storage,
            fields_with_any(self.context.fields, schema),
        )


class TableFormat(abc.ABC):
    """A format of tables: a frozen dataclass of plain values, comparable and picklable.

    Methods that take a :class:`DeclaredTable` raise SinkError if the table can't be used, and
    ExtraMissingError without the libraries of the format.

    Attributes:
        extra: the extra of headrace that it needs beside ``spark``; empty: none.
        hides_times: whether partitions by time are no columns of the table.
        keeps_partitions_in_files: whether files have the columns that are partitions.
        is_provisioned: whether :meth:`apply` makes the table.
    """

    extra: ClassVar[str] = ""
    hides_times: ClassVar[bool] = False
    keeps_partitions_in_files: ClassVar[bool] = False
    is_provisioned: ClassVar[bool] = False

    def full_name(self, table: str) -> str:
        """Returns the name of a table that no other table has."""
        return table

    def partitions(self, partition_by: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the partitions of a table that declares these."""
        return partition_by

    def faults(self) -> Iterator[Fault]:
        """Yields everything wrong with its values, which may be of any type."""
        yield from ()

    def settings_faults(
        self,
        label: str,  # noqa: ARG002
        settings: Mapping[str, Secret],  # noqa: ARG002
    ) -> Iterator[Fault]:
        """Yields what is wrong with ``[sinks.lake]`` for the sink with a label."""
        yield from ()

    @abc.abstractmethod
    def position_store(self, table: DeclaredTable) -> PositionStore:
        """See :meth:`~headrace.sinks.api.Sink.position_store`."""

    @abc.abstractmethod
    def open(self, table: DeclaredTable, schema: pa.Schema) -> SinkDriver:
        """See :meth:`~headrace.sinks.api.Sink.open`."""

    @abc.abstractmethod
    def changes(self, table: DeclaredTable, schema: pa.Schema) -> Sequence[str]:
        """Returns what :meth:`apply`, or the first batch, changes: the ends of sentences."""

    def apply(self, table: DeclaredTable, schema: pa.Schema) -> Sequence[str]:  # noqa: ARG002
        """See :meth:`~headrace.sinks.api.Provisionable.apply`."""
        return ()

    @abc.abstractmethod
    def merge_small_files(self, table: DeclaredTable) -> CompactionResult:
        """See :meth:`~headrace.sinks.api.Compactable.merge_small_files`."""

    @abc.abstractmethod
    def remove_dead_files(self, table: DeclaredTable) -> CompactionResult:
        """See :meth:`~headrace.sinks.api.Compactable.remove_dead_files`."""

    @abc.abstractmethod
    def read(self, table: DeclaredTable, columns: Sequence[str] | None) -> pa.Table:
        """See :meth:`~headrace.sinks.api.Readable.read`."""

    @abc.abstractmethod
    def snapshot(self, table: DeclaredTable) -> Snapshot | None:
        """See :meth:`~headrace.sinks.api.Recountable.snapshot`."""

    @abc.abstractmethod
    def open_to_reprocess(
        self, table: DeclaredTable, schema: pa.Schema, event_id: str | None
    ) -> SinkDriver:
        """See :meth:`~headrace.sinks.api.Reprocessable.open_to_reprocess`."""


def id_column(event_id: str | None) -> str | None:
    """Returns the column with an id, whose path may lead into it."""
    return None if event_id is None else event_id.partition(".")[0]
