"""The declaration of a table of statistics."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import TableMismatchError
from headrace.model import FieldType, Guarantee
from headrace.model.fault import Fault, is_a, with_or_without
from headrace.runtime.extras import require_extra
from headrace.sinks.api import (
    CountsEvents,
    DeclaredRows,
    PositionStore,
    Sink,
    SinkContext,
    SinkDriver,
    WindowCounts,
)
from headrace.sinks.postgres.declaration import Postgres
from headrace.sinks.postgres.metrics import UNIQUE_METRICS
from headrace.sinks.postgres.servers.names import (
    URL,
    name_faults,
    server_faults,
    target_at,
)
from headrace.sinks.postgres.stats.grouping import WINDOW_START, StatsGrouping
from headrace.sinks.postgres.stats.measures import Count, Distinct, Measure, Sum
from headrace.sinks.postgres.stats.unique.keys_table import keys_name
from headrace.sinks.postgres.target import sketch_column
from headrace.sinks.unique.declaration import Unique

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.metrics import Metric
    from headrace.settings import Secret
    from headrace.sinks.unique.compared_rows import ComparedRows

_GROUPS = frozenset(
    {
        FieldType.STRING,
        FieldType.LONG,
        FieldType.BOOLEAN,
        FieldType.TIMESTAMP,
        FieldType.MILLIS,
        FieldType.DATE,
        FieldType.DECIMAL,
    }
)
_NAME = 63  # bytes of a name in PostgreSQL
_MIN_WINDOW, _MAX_WINDOW = timedelta(seconds=1), timedelta(days=10_000)


@dataclass(frozen=True)
class Stats(Sink, CountsEvents):
    """Sink: event-time counts, sums and distinct counts in a table of PostgreSQL. Exactly once.

    ::

        Stats(
            "ad_stats",
            by=("campaign", "policy"),
            every=timedelta(minutes=1),
            measures={"clicks": Count(), "spend": Sum("price"), "users": Distinct("user_id")},
        )

    The table has a row for each window and group that has events; the first start makes it. Late
    events correct their windows. :mod:`headrace.sinks.postgres.stats` has the contract: columns,
    nulls, what is rejected, and how a reader knows that a window is complete.

    Attributes:
        table: its name, ``schema.table`` or as the search path finds it.
        by: columns whose values make groups; none: a row for each window.
        every: length of the windows, in whole seconds, at most 10,000 days; they are aligned to
            1970 in UTC.
        measures: by the name of their column, :class:`Count`, :class:`Sum`, :class:`Distinct`.
        event_time: column of the event time; None: the one that the first topic declares.
        unique: which events are one, and count once; :mod:`headrace.sinks.postgres.stats.unique`
            has the contract. None: an event that comes twice counts twice.
        server: name of the server that has the table, as of :class:`~headrace.Postgres`.
    """

    table: str
    _: KW_ONLY
    by: tuple[str, ...]
    every: timedelta
    measures: Mapping[str, Measure]
    event_time: str | None = None
    unique: Unique | None = None
    server: str | None = None

    kind: ClassVar[str] = Postgres.kind
    extra: ClassVar[str] = "stats"
    required_settings: ClassVar[tuple[str, ...]] = (URL,)
    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    metrics: ClassVar[tuple[Metric, ...]] = UNIQUE_METRICS

    @property
    def target(self) -> str:
        """Name of the table."""
        return self.table

    @property
    def label(self) -> str:
        """Kind and target, and the server where it is named."""
        return target_at(self.server, f"{self.kind} {self.target}")

    @property
    def needed_settings(self) -> tuple[str, ...]:
        """The address of the server that has no name, unless another one is named."""
        return self.required_settings if self.server is None else ()

    def settings_faults(self, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields a fault where the server is not in headrace.toml, or one there has other keys."""
        yield from server_faults("Stats.server", (self.server,), settings)

    def resolved_target(self, settings: Mapping[str, Secret]) -> str:
        """Returns the name of the table with its schema, as :class:`Postgres` has it."""
        return Postgres(self.table, server=self.server).resolved_target(settings)

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        if not is_a(self.table, str) or not self.table.strip("."):
            yield Fault(f"Stats.table is {self.table!r}", "a table, or schema.table")
        yield from name_faults("Stats.server", self.server)
        is_duration = is_a(self.every, timedelta) and _MIN_WINDOW <= self.every <= _MAX_WINDOW
        if not is_duration or self.every % _MIN_WINDOW:
            yield Fault(f"Stats.every is {self.every!r}", f"whole seconds, at most {_MAX_WINDOW}")
        yield from self._event_time_faults(rows)
        yield from self._unique_faults(rows.columns) if self.unique is not None else ()
        if not is_a(self.by, tuple | list) or not all(is_a(name, str) for name in self.by):
            yield Fault(f"Stats.by is {self.by!r}", 'by=("campaign",)')
        elif not is_a(self.measures, Mapping) or not self.measures:
            yield Fault(f"Stats.measures is {self.measures!r}", 'measures={"clicks": Count()}')
        else:
            yield from self._group_faults(rows.columns) if rows.columns is not None else ()
            for name, measure in self.measures.items():
                if not is_a(name, str) or not name:
                    yield Fault(f"Stats.measures: {name!r} is no name of a column", '"clicks"')
                elif not is_a(measure, Count | Sum | Distinct):
                    message = f"Stats.measures: {name!r} is {measure!r}"
                    yield Fault(message, 'Count(), Sum("column") or Distinct("column")')
                else:
                    yield from measure.faults(rows.columns)
            yield from self._name_faults()

    def _event_time_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        if not is_a(self.event_time, str | None):
            yield Fault(f"Stats.event_time is {self.event_time!r}", 'event_time="seen_at"')
            return
        name = self.event_time or rows.event_time
        if name is None:
            message = "Stats needs an event time, and the topic declares none"
            yield Fault(message, 'Topic(event_time="...") or Stats(event_time="...")')
        elif rows.columns is not None and name not in rows.columns:
            message = f"Stats.event_time: {name!r} is no column of the rows"
            yield Fault(message, f"columns: {', '.join(rows.columns)}")
        elif rows.columns and rows.columns[name] not in {FieldType.TIMESTAMP, FieldType.MILLIS}:
            message = f"Stats.event_time: {name!r} is {rows.columns[name].value}"
            yield Fault(message, "datetime or EpochMillis")

    def _unique_faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        if not isinstance(self.unique, Unique):
            yield Fault(f"Stats.unique is {self.unique!r}", 'Unique(by=["event_id"], within=...)')
            return
        yield from self.unique.faults("Stats", columns)
        within = self.unique.within
        if isinstance(within, timedelta) and within > _MAX_WINDOW:
            yield Fault(f"Unique.within is {within!r}", f"at most {_MAX_WINDOW}, or None: for ever")
        if is_a(self.table, str) and len(keys_name(self.table.rpartition(".")[2]).encode()) > _NAME:
            message = f"Stats.unique: {keys_name(self.table)!r} is too long for a table of keys"
            yield Fault(message, f"at most {_NAME} bytes")

    def _group_faults(self, columns: Mapping[str, FieldType]) -> Iterator[Fault]:
        for name in self.by:
            if name not in columns:
                message = f"Stats.by: {name!r} is no column of the rows"
                yield Fault(message, f"columns: {', '.join(columns)}")
            elif columns[name] not in _GROUPS:
                message = f"Stats.by: {name!r} is {columns[name].value}, which makes no groups"
                yield Fault(message, "a text, an integer, a decimal, a boolean, a date or a time")

    def _name_faults(self) -> Iterator[Fault]:
        """Yields a fault for each column that the table would have twice."""
        names = [WINDOW_START, *self.by]
        for name, measure in self.measures.items():
            names += [name, sketch_column(name)] if is_a(measure, Distinct) else [name]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield Fault(f"Stats: column {name!r} would be there twice", "another name of a measure")

    def faults_beside(self, other: Sink) -> Iterator[Fault]:
        """Yields a fault unless both write to the table in one way."""
        if not isinstance(other, Stats):
            yield Fault(
                f"table {self.table!r} is written by Stats here and by {type(other).__name__}"
            )
            return
        for name in ("by", "every", "measures", "unique"):
            value, other_value = getattr(self, name), getattr(other, name)
            if value != other_value:
                here, beside = (with_or_without(name, part) for part in (value, other_value))
                yield Fault(f"table {self.table!r} is declared {here} here and {beside}")

    def changes(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Returns the statements by which the first start makes tables that are not there.

        Raises:
            ExtraMissingError: if ``headrace[stats]`` is not installed.
            TableMismatchError: if the existing table does not fit, has rows of another
                declaration, or was there before.
            SinkUnavailableError: if the server does not answer.
        """
        require_extra(self.extra)
        from headrace.sinks.postgres.connection import connect, find_table, translated_errors
        from headrace.sinks.postgres.recorded_table import (
            TableDeclaration,
            check_declaration,
            find_recorded,
        )
        from headrace.sinks.postgres.stats import table
        from headrace.sinks.postgres.stats.unique.keys_table import has_keys, keys_creation
        from headrace.sinks.postgres.target import check_table

        grouping = self._grouping(context, schema)
        statements = []
        with translated_errors(), connect(self._url(context)) as connection:
            recorded = find_recorded(connection, self.table)
            if find_table(connection, self.table) is None:
                table.check_not_lost(connection, recorded)
                statements.append(table.creation(connection, self.table, grouping, schema))
            else:
                check_table(connection, table.spec_of(connection, self.table, grouping, schema))
                declaration = TableDeclaration(grouping.row_meaning, context.pipeline)
                check_declaration(connection, recorded, declaration)
            if self.unique is not None and not has_keys(connection, self.table):
                statements.append(keys_creation(connection, self.table))
            texts = [statement.as_string(connection) for statement in statements]
        return tuple(f"is made by the first start: {text}" for text in texts)

    def _url(self, context: SinkContext) -> Secret:
        from headrace.sinks.postgres.servers.address import url_of

        return url_of(context.settings, self.server)

    def position_store(self, context: SinkContext) -> PositionStore | None:
        """Returns the table ``headrace.positions`` of the database."""
        return Postgres(self.table, server=self.server).position_store(context)

    def window_counts(self, context: SinkContext) -> WindowCounts | None:
        """Returns how many events the first :class:`Count` has counted; None: there is none.

        Raises:
            ExtraMissingError: if psycopg is not installed.
            SinkUnavailableError: if the server does not answer.
        """
        count = next((name for name, kind in self.measures.items() if is_a(kind, Count)), None)
        event_time = self.event_time or context.event_time
        if count is None or event_time is None:
            return None
        from headrace.sinks.postgres.connection import connect, translated_errors
        from headrace.sinks.postgres.stats import table

        with translated_errors(), connect(self._url(context)) as connection:
            events, recorded = table.counted(connection, self.table, count)
        return WindowCounts(int(self.every.total_seconds()), event_time, events, recorded)

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Makes the table if there is none, or looks whether it fits.

        Raises:
            ExtraMissingError: if ``headrace[stats]`` is not installed.
            TableMismatchError: the rows lack a column, the table does not fit, has rows of another
                declaration, or was there before.
            SinkError: if the role lacks a right.
            SinkUnavailableError: if the server does not answer.
        """
        require_extra(self.extra)
        from headrace.sinks.postgres.connection import connect, translated_errors
        from headrace.sinks.postgres.driver import PostgresDriver
        from headrace.sinks.postgres.positions import set_up
        from headrace.sinks.postgres.recorded_table import TableDeclaration, declare
        from headrace.sinks.postgres.stats import table
        from headrace.sinks.postgres.stats.unique import keys_table
        from headrace.sinks.postgres.stats.unique.driver import UniqueStatsDriver
        from headrace.sinks.postgres.stats.writer import StatsWriter

        url, grouping = self._url(context), self._grouping(context, schema)
        declaration = TableDeclaration(grouping.row_meaning, context.pipeline)
        with translated_errors(), connect(url) as connection:
            set_up(connection, table.COMPLETENESS)
            with connection.transaction():
                table.make_table(connection, self.table, grouping, schema)
                recorded = declare(connection, self.table, declaration)
                if self.unique is not None:
                    keys_table.lock_keys(connection, recorded.target)
                    keys_table.make_keys(connection, self.table)
                table.begin_completeness(connection, recorded, context.pipeline)
                table.notice_emptied(connection, recorded)
            spec = table.spec_of(connection, self.table, grouping, schema)
        beside = functools.partial(table.record_completeness, context.pipeline)
        if self.unique is not None:
            rule = self._rule(self.unique, grouping.event_time, context, schema)
            return UniqueStatsDriver(
                url, spec, declaration, beside, grouping=grouping, rule=rule, unique=self.unique
            )
        driver = PostgresDriver(url, context.pipeline, spec, declaration, beside)
        driver.writers = functools.partial(StatsWriter, driver.writers, grouping)
        return driver

    def _rule(
        self, unique: Unique, event_time: str, context: SinkContext, schema: pa.Schema
    ) -> ComparedRows:
        """Returns how events are compared."""
        from headrace.sinks.any_values import fields_with_any
        from headrace.sinks.unique.compared_rows import ComparedRows, compared_columns

        return ComparedRows(
            tuple(unique.by),
            compared_columns(schema, (*unique.by, *unique.ignore)),
            event_time,
            fields_with_any(context.fields, schema),
        )

    def _grouping(self, context: SinkContext, schema: pa.Schema) -> StatsGrouping:
        """Returns how rows are grouped.

        Raises:
            TableMismatchError: if the rows lack a column, or one has another type.
        """
        event_time = self.event_time or context.event_time
        if event_time is None:
            reason = "Stats needs an event time: Topic(event_time=...) or Stats(event_time=...)"
            raise TableMismatchError(self.table, reason)
        seconds = int(self.every.total_seconds())
        measures = dict(self.measures)
        grouping = StatsGrouping(event_time, seconds, tuple(self.by), measures, self.unique)
        grouping.check(self.table, schema)
        return grouping
