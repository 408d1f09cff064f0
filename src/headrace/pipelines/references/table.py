"""A reference table in the process that looks values up in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import ReferenceRecreatedError, ReferenceTooLargeError
from headrace.kafka.read.cluster import Cluster
from headrace.kafka.read.range_reader import Record
from headrace.kafka.table.topic_table import TableRecreatedError, TopicPosition, held_table
from headrace.model import EventSchema, Format
from headrace.pipelines.references.positions import announced
from headrace.pipelines.source.decode import columns_for, decoder_for, record_values
from headrace.settings import SchemaRegistrySettings
from headrace.spark.remote_errors import raising_remote_errors

if TYPE_CHECKING:
    import pyarrow as pa

    Lookup = Callable[[Iterator[pa.Array]], Iterator[pa.StructArray]]

_LOG = logging.getLogger("headrace.pipelines")
# What Python's dictionary needs for a key of some twenty bytes, its offset included.
_BYTES_PER_KEY = 150


@dataclass(frozen=True)
class ReferenceSpec:
    """One reference table of a pipeline; picklable, as it travels to the tasks.

    Attributes:
        topic: Kafka's name of the topic.
        schema: fields of its events.
        format: how record values hold them.
        columns: fields to keep, in this order.
        max_bytes: of memory that the table may need.
    """

    topic: str
    schema: EventSchema
    format: Format
    columns: tuple[str, ...]
    max_bytes: int


@dataclass(frozen=True)
class ReferenceReader:
    """Reads the reference tables of a pipeline; picklable.

    Attributes:
        pipeline: its name.
        cluster: where the topics are.
        registry: of the schemas of topics.
    """

    pipeline: str
    cluster: Cluster
    registry: SchemaRegistrySettings | None = None

    def table(self, spec: ReferenceSpec, position: TopicPosition) -> ReferenceTable:
        """Returns the table of this process at a position.

        Raises:
            ReferenceRecreatedError: if the topic was recreated since the batch was planned.
            ReferenceTooLargeError: if it needs more memory than it may.
            HeadraceError: those of :meth:`headrace.kafka.table.topic_table.HeldTable.read_to`.
        """
        create = partial(ReferenceTable, self.pipeline, spec, self.registry)
        try:
            with held_table(create, self.pipeline, spec) as held:
                return held.read_to(position, self.cluster, spec.topic)
        except TableRecreatedError as error:
            ids = error.known_id, error.live_id
            raise ReferenceRecreatedError(error.topic, *ids, pipeline=self.pipeline) from error


def kept_columns(spec: ReferenceSpec) -> pa.Schema:
    """Returns the columns of the reference's events that ``spec`` keeps."""
    import pyarrow as pa

    events = columns_for(spec.schema)
    return pa.schema([events.field(name) for name in spec.columns])


class ReferenceTable:
    """The newest record of each key, as rows of columns; used by one thread.

    Rows of records that were replaced stay until they are half of all, so that a change costs what
    it changes.
    """

    min_unused_rows = 10_000  # that are dropped together

    def __init__(
        self, pipeline: str, spec: ReferenceSpec, registry: SchemaRegistrySettings | None = None
    ) -> None:
        self._pipeline = pipeline
        self._spec = spec
        self._decoder = decoder_for(spec.format, spec.schema, registry)
        self._index: dict[bytes, int] = {}
        self._rows = kept_columns(spec).empty_table()
        self._structs: pa.StructArray | None = None

    def take(self, records: Sequence[Record]) -> None:
        """Applies records, which are in the order of each partition.

        Raises:
            ReferenceTooLargeError: if the table needs more memory than it may.
        """
        # Only the newest record of each key is decoded.
        newest = {key: record for record in records if (key := record.key()) is not None}
        for key in newest:
            self._index.pop(key, None)
        written = {key: record for key, record in newest.items() if record.value() is not None}
        decoded = self._decoder.decode(record_values(written.values(), self._spec.format))
        for index, (key, record) in enumerate(written.items()):
            if index in decoded.rejected:
                facts = (self._pipeline, self._spec.topic, record.offset(), key)
                _LOG.warning(
                    "%s: the record of %s at offset %d with key %r is no event of it, and its key "
                    "has no values: %s, %s",
                    *(*facts, *decoded.rejected[index]),
                )
        keys = (key for index, key in enumerate(written) if index not in decoded.rejected)
        self._append(keys, decoded.rows)

    @property
    def rows(self) -> int:
        """How many rows are held, unused ones included."""
        return int(self._rows.num_rows)

    def find(self, keys: pa.Array) -> pa.StructArray:
        """Returns the columns of the record of each key, null where there is none.

        Args:
            keys: binary; a null finds nothing.
        """
        import pyarrow as pa

        if self._structs is None:
            self._structs = self._rows.to_struct_array().combine_chunks()
        # Rows often repeat a key: each is looked up once.
        encoded = keys.dictionary_encode()
        rows = pa.array(map(self._index.get, encoded.dictionary.to_pylist()), pa.int64())
        return self._structs.take(rows.take(encoded.indices))

    def _append(self, keys: Iterable[bytes], rows: pa.Table) -> None:
        import pyarrow as pa

        first = self._rows.num_rows
        self._index.update((key, first + index) for index, key in enumerate(keys))
        self._rows = pa.concat_tables([self._rows, rows.select(self._spec.columns)])
        self._structs = None
        unused = self._rows.num_rows - len(self._index)
        # Copying all rows once half of them are unused costs each change a constant time.
        if unused > max(len(self._index), self.min_unused_rows):
            self._rows = self._rows.take(pa.array(self._index.values(), pa.int64()))
            self._index = {key: row for row, key in enumerate(self._index)}
        needed = self._rows.nbytes + len(self._index) * _BYTES_PER_KEY
        if needed > self._spec.max_bytes:
            spec = self._spec
            raise ReferenceTooLargeError(
                self._pipeline, spec.topic, len(self._index), needed, spec.max_bytes
            )


def lookup(reader: ReferenceReader, spec: ReferenceSpec) -> Lookup:
    """Returns a function that Spark calls once per task, in a Python worker process.

    It takes binary keys and gives the columns of their records, null where there is none. Without
    a row to look up, it reads nothing of the reference.
    """
    import pyarrow as pa

    def find(batches: Iterator[pa.Array]) -> Iterator[pa.StructArray]:
        table = None
        with raising_remote_errors():
            for keys in batches:
                # Not before the first row: a task without rows reads nothing of the reference.
                table = table or reader.table(spec, announced(spec.topic))
                yield table.find(keys)

    # Spark takes the kind of a function from its annotations, and can't resolve texts with `pa`.
    find.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return find
