"""The declaration of a table of BigQuery that a pipeline writes to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from headrace.model import FieldType, Guarantee
from headrace.model.fault import Fault, are_texts, is_a
from headrace.sinks.api import (
    BatchPace,
    DeclaredRows,
    PositionStore,
    Provisionable,
    Sink,
    SinkContext,
    SinkDriver,
)
from headrace.sinks.bigquery.columns import naming_faults
from headrace.sinks.bigquery.connection import REST_ENDPOINT, TableAddress, Tables

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.settings import Secret
    from headrace.sinks.bigquery.table import TableSpec

PROJECT, DATASET = "project", "dataset"
_ENDPOINTS = ENDPOINT, STORAGE_ENDPOINT = ("endpoint", "storage_endpoint")
_UNITS = ("hour", "day", "month")
_TABLE = re.compile(r"(?:\w{1,1024}\.)?([\w -]+)")
# BigQuery takes 1,024: the name of the commit state has the pipeline's behind it.
_MAX_TABLE_BYTES = 900
_MAX_CLUSTERING = 4
STREAMS_AN_HOUR = 7_500
"""Quota of a project in a region, of its documents: 30,000 streams each four hours."""
MIN_BATCH_SECONDS = 4
"""How long a batch is at least: it changes the commit state twice, of 5 changes each 10 s."""
_TIMES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})
_CLUSTERABLE = _TIMES | {
    *(FieldType.STRING, FieldType.LONG, FieldType.BOOLEAN, FieldType.DATE, FieldType.DECIMAL)
}


@dataclass(frozen=True)
class BigQuery(Sink, Provisionable):
    """Sink: a table of BigQuery. Exactly once; :mod:`headrace.sinks.bigquery` has the contract.

    Attributes:
        table: its name, ``dataset.table``, or one in the dataset of headrace.toml.
        partition_by: of a new table: ``"hour"``, ``"day"`` or ``"month"`` of the event time; None:
            it has no partitions.
        cluster_by: of a new table: up to four columns by which it is sorted within a partition.
    """

    table: str
    partition_by: str | None = "day"
    cluster_by: Sequence[str] = ()

    kind: ClassVar[str] = "bigquery"
    extra: ClassVar[str] = "bigquery"
    required_settings: ClassVar[tuple[str, ...]] = (PROJECT,)
    optional_settings: ClassVar[tuple[str, ...]] = (DATASET, ENDPOINT, STORAGE_ENDPOINT)
    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE

    @property
    def target(self) -> str:
        """Name of the table."""
        return self.table

    def resolved_target(self, settings: Mapping[str, Secret]) -> str:
        """Returns the name of the table with its dataset."""
        if "." in str(self.table) or DATASET not in settings:
            return self.table
        return f"{settings[DATASET].reveal()}.{self.table}"

    def settings_faults(self, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields a fault for a table without a dataset, and for endpoints that do not fit."""
        if "." not in str(self.table) and DATASET not in settings:
            message = f"BigQuery.table is {self.table!r}, and no dataset is set"
            yield Fault(message, '"dataset.table", or dataset in [sinks.bigquery]')
        for name in sorted(settings.keys() - {*self.required_settings, *self.optional_settings}):
            known = ", ".join((*self.required_settings, *self.optional_settings))
            yield Fault(f"sinks.bigquery.{name} is no setting", known)
        addresses = {name: settings[name].reveal() for name in _ENDPOINTS if name in settings}
        for name, address in addresses.items():
            if not address.startswith("http://"):
                message = f"sinks.bigquery.{name} is no address of a stand-in"
                yield Fault(message, "http://host:port; without it, Google's servers are asked")
        if len(addresses) == 1:
            message = f"sinks.bigquery has {next(iter(addresses))} alone"
            yield Fault(message, f"both of {' and '.join(_ENDPOINTS)}, or none")

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        name = _TABLE.fullmatch(self.table) if is_a(self.table, str) else None
        if name is None or len(name[1].encode()) > _MAX_TABLE_BYTES:
            remedy = f"a table, of at most {_MAX_TABLE_BYTES} bytes of UTF-8, or dataset.table"
            yield Fault(f"BigQuery.table is {self.table!r}", remedy)
        if self.partition_by is not None and self.partition_by not in _UNITS:
            yield Fault(f"BigQuery.partition_by is {self.partition_by!r}", '"day", "hour", "month"')
        if not are_texts(self.cluster_by) or len(self.cluster_by) > _MAX_CLUSTERING:
            yield Fault(f"BigQuery.cluster_by is {self.cluster_by!r}", 'cluster_by=["country"]')
        elif rows.columns is not None:
            yield from self._layout_faults(rows.columns, rows.event_time)
            yield from (Fault(*fault) for fault in naming_faults(rows.columns))

    def faults_beside(self, other: Sink) -> Iterator[Fault]:
        """Yields a fault unless both declare one layout of their table."""
        if not isinstance(other, BigQuery):
            return
        if self.partition_by != other.partition_by:
            units = f"{self.partition_by!r} here and by {other.partition_by!r}"
            message = f"table {self.table!r} is partitioned by {units}"
            yield Fault(message, "one partition_by in every pipeline of the table")
        are_columns = are_texts(self.cluster_by) and are_texts(other.cluster_by)
        if are_columns and list(self.cluster_by) != list(other.cluster_by):
            columns = f"{list(self.cluster_by)} here and by {list(other.cluster_by)}"
            message = f"table {self.table!r} is clustered by {columns}"
            yield Fault(message, "one cluster_by in every pipeline of the table")

    def pace_faults(self, pace: BatchPace) -> Iterator[Fault]:
        """Yields a fault for more streams or changes of metadata than BigQuery's quotas allow."""
        seconds = max(pace.max_wait.total_seconds(), 1.0)
        streams = round(pace.tasks * 3600 / seconds)
        least = max(pace.tasks * 3600 / STREAMS_AN_HOUR, MIN_BATCH_SECONDS)
        if seconds < least:
            message = (
                f"up to {streams:,} streams an hour, one for each of {pace.tasks} tasks each"
                f" {seconds:g} s, and two changes of the commit state; BigQuery allows"
                f" {STREAMS_AN_HOUR:,}, and a change each {MIN_BATCH_SECONDS // 2} s: batches wait"
            )
            yield Fault(message, f"limits=BatchLimits(max_wait=timedelta(seconds={ceil(least)}))")

    def _layout_faults(
        self, columns: Mapping[str, FieldType], event_time: str | None
    ) -> Iterator[Fault]:
        if self.partition_by is not None and columns.get(event_time or "") not in _TIMES:
            message = f"BigQuery.partition_by is {self.partition_by!r}, and the rows have no time"
            yield Fault(message, "partition_by=None, or a topic with an event_time")
        for name in self.cluster_by:
            if columns.get(name) not in _CLUSTERABLE:
                message = f"BigQuery: a table can't be clustered by {name!r}"
                yield Fault(message, "a text, integer, decimal, Boolean, date or time")

    def position_store(self, context: SinkContext) -> PositionStore:
        """Returns the commit state of the pipeline, in the dataset of the table."""
        from headrace.sinks.bigquery.state import BigQueryPositions

        return BigQueryPositions(self._address(context), context.pipeline)

    def changes(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Returns that the table is created, or which columns it gets.

        Raises:
            TableMismatchError: if anything else differs.
            SinkUnavailableError: if BigQuery does not answer.
        """
        from headrace.sinks.bigquery.table import TargetTable

        with closing(Tables(self._address(context))) as tables:
            return TargetTable(tables, self._spec(context, schema)).changes()

    def apply(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Makes the table, or adds the columns that it lacks."""
        from headrace.sinks.bigquery.table import TargetTable

        with closing(Tables(self._address(context))) as tables:
            _, changes = TargetTable(tables, self._spec(context, schema)).make()
            return changes

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Completes a pending commit, then makes the table as :meth:`apply` does.

        Raises:
            TableMismatchError: if anything but a missing column differs, or the table was
                recreated since the pipeline wrote to it.
            CommitUnknownError: if it can't be known whether a batch is in the table.
            SinkUnavailableError: if BigQuery does not answer.
        """
        from headrace.sinks.bigquery.driver import BigQueryDriver

        return BigQueryDriver(self._spec(context, schema), context.pipeline)

    def _address(self, context: SinkContext) -> TableAddress:
        settings = {name: secret.reveal() for name, secret in context.settings.items()}
        dataset, _, table = self.table.rpartition(".")
        return TableAddress(
            settings[PROJECT],
            dataset or settings[DATASET],
            table,
            settings.get(ENDPOINT, REST_ENDPOINT),
            settings.get(STORAGE_ENDPOINT, ""),
        )

    def _spec(self, context: SinkContext, schema: pa.Schema) -> TableSpec:
        from headrace.sinks.any_values import fields_of
        from headrace.sinks.bigquery.table import TableSpec

        event_time = context.event_time if context.event_time in schema.names else None
        return TableSpec(
            self._address(context),
            schema,
            fields_of(context.fields, schema),
            event_time,
            self.partition_by,
            tuple(self.cluster_by),
        )
