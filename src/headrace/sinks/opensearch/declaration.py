"""The declaration of documents that a pipeline writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import TableMismatchError
from headrace.model import FieldType, Guarantee, Metadata
from headrace.model.fault import Fault, are_texts, is_a, lists_as_tuples
from headrace.sinks.api import (
    DeclaredRows,
    Provisionable,
    Reprocessable,
    Sink,
    SinkContext,
    SinkDriver,
)
from headrace.sinks.arrow_types import is_point_in_time
from headrace.sinks.opensearch.client import URL, Client, ClusterNodes, settings_faults
from headrace.sinks.opensearch.index_name import IndexBy, is_index_name
from headrace.sinks.opensearch.mapping import (
    UnmappedError,
    name_fault,
    name_faults,
    properties_of,
)
from headrace.sinks.opensearch.metrics import OPENSEARCH_METRICS
from headrace.sinks.opensearch.positions import INDEX as POSITIONS
from headrace.sinks.opensearch.positions import OpenSearchPositions
from headrace.sinks.unique.declaration import Unique
from headrace.sinks.write_mode import WriteMode

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.metrics import Metric
    from headrace.settings import Secret
    from headrace.sinks.opensearch.documents import DocumentSpec
    from headrace.sinks.opensearch.provisioning import Target

_PLACE = (Metadata.TOPIC_ID, Metadata.PARTITION, Metadata.OFFSET, Metadata.EVENT_INDEX)
_TIMES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})
_OF_IDS = frozenset({FieldType.STRING, FieldType.LONG, FieldType.DATE, *_TIMES})
_VERSIONS = frozenset({FieldType.LONG, *_TIMES})


@dataclass(frozen=True)
class OpenSearch(Sink, Provisionable, Reprocessable):
    """Sink: documents of OpenSearch or Elasticsearch. Effectively once; data streams at least once.

    :mod:`headrace.sinks.opensearch` has the contract.

    Attributes:
        index: its name, or that of a data stream; with ``index_by``, what precedes the time in
            the names of several.
        mode: APPEND: a row is a document. UPSERT: it replaces the document of its key.
        key: columns whose values are the id of a document, for UPSERT.
        newest_by: for UPSERT: a column that says which of two rows of a key is the newer one, a
            time since 1970 or an integer from 0 on.
        unique: for APPEND: which rows are one document, without ``within`` and ``ignore``. None:
            each event of the topic is one.
        index_by: for APPEND: ``"hour"``, ``"day"`` or ``"month"``: documents are divided among
            indices by their event time. None: all are in one.
        data_stream: for APPEND: the index is a data stream. Each document has the event time in the
            field ``@timestamp``, too.
        text: columns of texts that are searched by their words; others are found as a whole. A path
            for a field of a struct: ``repo.description``.
    """

    index: str
    mode: WriteMode = WriteMode.APPEND
    key: tuple[str, ...] = ()
    newest_by: str | None = None
    unique: Unique | None = None
    index_by: str | None = None
    data_stream: bool = False
    text: tuple[str, ...] = ()

    kind: ClassVar[str] = "opensearch"
    extra: ClassVar[str] = "opensearch"
    required_settings: ClassVar[tuple[str, ...]] = (URL,)
    metadata: ClassVar[tuple[Metadata, ...]] = _PLACE
    metrics: ClassVar[tuple[Metric, ...]] = OPENSEARCH_METRICS

    def __post_init__(self) -> None:
        lists_as_tuples(self, "key", "text")

    @property
    def target(self) -> str:
        """Name of the index or data stream, or of several what precedes the time."""
        return self.index

    @property
    def guarantee(self) -> Guarantee:
        """Returns at least once for a data stream: an id may be in each of its indices."""
        return Guarantee.AT_LEAST_ONCE if self.data_stream else Guarantee.EFFECTIVELY_ONCE

    @property
    def wanted_metadata(self) -> tuple[Metadata, ...]:
        """The place of the record, where that is the id of its document."""
        return () if self._id_columns else _PLACE

    @property
    def _id_columns(self) -> tuple[str, ...]:
        if self.mode is WriteMode.APPEND and isinstance(self.unique, Unique):
            return tuple(self.unique.by)
        return self.key

    @property
    def _index_by(self) -> IndexBy | None:
        return None if self.index_by is None else IndexBy(self.index_by)

    def settings_faults(self, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields what is wrong with ``[sinks.opensearch]``."""
        return settings_faults(settings)

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        if self.index == POSITIONS:
            yield Fault(f"OpenSearch.index is {self.index!r}, where positions are", "another name")
        elif not is_index_name(self.index):
            remedy = "lower-case letters and digits, and '-', '_' and '.' within, such as 'clicks'"
            yield Fault(f"OpenSearch.index is {self.index!r}", remedy)
        for name in ("key", "text"):
            value = getattr(self, name)
            if not are_texts(value):
                yield Fault(f"OpenSearch.{name} is {value!r}", f'{name}=("id",)')
                return
        if not is_a(self.mode, WriteMode) or self.mode is WriteMode.ADD:
            yield Fault(f"OpenSearch.mode is {self.mode!r}", "WriteMode.APPEND or .UPSERT")
        elif self.mode is WriteMode.UPSERT:
            yield from self._upsert_faults(rows)
        else:
            yield from self._append_faults(rows)
        yield from self._column_faults(rows)

    def _upsert_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        if not self.key:
            yield Fault("OpenSearch.mode upsert needs a key", 'key=("id",)')
        if self.unique is not None:
            yield Fault("OpenSearch.unique is for APPEND", "mode=WriteMode.APPEND")
        for name in ("index_by", "data_stream"):
            if getattr(self, name):
                message = f"OpenSearch.{name} is for APPEND: a newer row of a key goes elsewhere"
                yield Fault(message, "leave it out")
        if not is_a(self.newest_by, str):
            message = "OpenSearch.mode upsert needs newest_by: bulks are written in no order"
            yield Fault(message, 'newest_by="updated_at", a column that says which row is newer')
            return
        kind = FieldType.LONG if rows.columns is None else rows.columns.get(str(self.newest_by))
        if kind is not None and kind not in _VERSIONS:
            message = f"OpenSearch.newest_by: {self.newest_by!r} is {kind.value}"
            yield Fault(message, "a time or an integer")

    def _append_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        if self.key or self.newest_by is not None:
            yield Fault("OpenSearch.key and newest_by are for UPSERT", "mode=WriteMode.UPSERT")
        if self.index_by not in (None, *IndexBy):
            yield Fault(f"OpenSearch.index_by is {self.index_by!r}", '"day", "hour" or "month"')
        elif not is_a(self.data_stream, bool):
            yield Fault(f"OpenSearch.data_stream is {self.data_stream!r}", "True or False")
        elif self.index_by is not None and self.data_stream:
            message = "OpenSearch.index_by and data_stream: a data stream divides by rollover"
            yield Fault(message, "one of them")
        elif (self.index_by is not None or self.data_stream) and rows.event_time is None:
            name = "data_stream" if self.data_stream else "index_by"
            message = f"OpenSearch.{name} needs an event time, and the topic declares none"
            yield Fault(message, 'Topic(event_time="at")')
        if self.unique is None and rows.columns is None:
            message = "OpenSearch needs unique after steps: what the id of a row is, is not known"
            yield Fault(message, 'unique=Unique(by=["event_id"])')
        elif self.unique is not None and not is_a(self.unique, Unique):
            yield Fault(f"OpenSearch.unique is {self.unique!r}", 'Unique(by=["id"])')
        elif self.unique is not None:
            yield from self.unique.faults("OpenSearch", rows.columns)
            if self.unique.within is not None or self.unique.ignore:
                message = "OpenSearch.unique has no within and no ignore: ids alone are compared"
                yield Fault(message, "Unique(by=...)")

    def _column_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        columns = {} if rows.columns is None else rows.columns
        needed = (*self._id_columns, *((self.newest_by,) if self.newest_by else ()))
        for name in needed if columns else ():
            if name not in columns:
                known = f"columns: {', '.join(columns)}"
                yield Fault(f"OpenSearch: {name!r} is no column of the rows", known)
        for name in self._id_columns:
            kind = columns.get(name)
            if kind is not None and kind not in _OF_IDS:
                message = f"OpenSearch: {name!r} is {kind.value}, which is no part of an id"
                yield Fault(message, "texts, integers, times and dates")
        remedy = "give the field another name, or convert it in a step"
        fields = [field for name, field in rows.fields.items() if name in columns]
        for path, fault in name_faults(fields):
            yield Fault(f"OpenSearch: the name of field {path!r} {fault}", remedy)
        for name in columns.keys() - rows.fields.keys():
            if (reason := name_fault(name)) is not None:
                yield Fault(f"OpenSearch: the name of column {name!r} {reason}", remedy)

    def faults_beside(self, other: Sink) -> Iterator[Fault]:
        """Yields a fault unless both write to the index in one way."""
        if self != other:
            message = f"index {self.index!r} is written by {self!r} here and by {other!r}"
            yield Fault(message, "the same declaration, or another index")

    def position_store(self, context: SinkContext) -> OpenSearchPositions:
        """Returns the document of the pipeline in the index ``headrace-positions``."""
        cluster = ClusterNodes.of(context.settings)
        return OpenSearchPositions(cluster, self.index, context.pipeline)

    def changes(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Returns what the index and its template lack.

        Raises:
            TableMismatchError: if an existing field has another type, the target is no index,
                or a column can be no field.
            SinkError: if the cluster refuses.
            SinkUnavailableError: if it does not answer.
        """
        target = self._target(context, schema)
        with closing(Client(ClusterNodes.of(context.settings))) as client:
            return [change.detail for change in target.changes(client)]

    def apply(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Puts the template, creates the index, adds fields; see :meth:`changes`."""
        target = self._target(context, schema)
        with closing(Client(ClusterNodes.of(context.settings))) as client:
            return target.apply(client)

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Makes the index fit; see :meth:`changes`."""
        from headrace.sinks.opensearch.writer import DocumentWriters, OpenSearchDriver

        spec = self._spec(context, schema)
        self.apply(context, schema)
        positions = self.position_store(context)
        positions.create_index()
        cluster = ClusterNodes.of(context.settings)
        return OpenSearchDriver(positions, DocumentWriters(cluster, spec, schema))

    def reprocessing_fault(
        self,
        columns: Collection[str] | None,  # noqa: ARG002
        event_id: str | None,  # noqa: ARG002
    ) -> Fault | None:
        """Returns None for UPSERT: rows of one version take the place of documents."""
        if self.mode is WriteMode.UPSERT:
            return None
        message = "OpenSearch.mode append leaves documents that exist as they are"
        return Fault(message, "another pipeline, which writes to another index")

    def _target(self, context: SinkContext, schema: pa.Schema) -> Target:
        from headrace.sinks.any_values import fields_with_any
        from headrace.sinks.opensearch.provisioning import Target

        schema = self._document_schema(context, schema)
        try:
            any_fields = fields_with_any(context.fields, schema)
            properties = properties_of(schema, any_fields, self.text)
        except UnmappedError as error:
            raise TableMismatchError(self.index, str(error)) from None
        return Target(self.index, self._index_by, properties, self.data_stream)

    def _document_schema(self, context: SinkContext, schema: pa.Schema) -> pa.Schema:
        """Returns the columns of documents."""
        from headrace.sinks.opensearch.documents import TIMESTAMP

        if not self.data_stream:
            return schema
        if TIMESTAMP in schema.names:
            reason = f"the rows have a column {TIMESTAMP!r}, where the event time goes"
            raise TableMismatchError(self.index, f"{reason}: rename it in a step")
        self._check_columns(schema, context.event_time)
        return schema.append(schema.field(context.event_time).with_name(TIMESTAMP))

    def _check_columns(self, schema: pa.Schema, *names: str | None) -> None:
        for name in names:
            if name is not None and name not in schema.names:
                reason = f"the rows have no column {name!r}, and have {', '.join(schema.names)}"
                raise TableMismatchError(self.index, reason)

    def _spec(self, context: SinkContext, schema: pa.Schema) -> DocumentSpec:
        """Returns how rows become documents.

        Raises:
            TableMismatchError: if the rows lack a column for that, or it has another type.
        """
        from headrace.sinks.any_values import fields_with_any
        from headrace.sinks.opensearch.documents import (
            PLACE,
            DocumentSpec,
            is_of_id,
            is_version,
        )

        has_time = self.index_by is not None or self.data_stream
        event_time = context.event_time if has_time else None
        self._check_columns(schema, *(self._id_columns or PLACE), event_time, self.newest_by)
        parts = dict.fromkeys(self._id_columns, is_of_id) | {event_time: is_point_in_time}
        for name, is_fit in [*parts.items(), (self.newest_by, is_version)]:
            if name is not None and not is_fit(kind := schema.field(name).type):
                reason = f"column {name!r} is {kind}, which is no part of an id, version or time"
                raise TableMismatchError(self.index, f"{reason}: convert it in a step")
        any_fields = fields_with_any(context.fields, schema)
        return DocumentSpec(
            self.index,
            self._index_by,
            event_time,
            self._id_columns,
            self.newest_by,
            any_fields,
            is_data_stream=self.data_stream,
        )
