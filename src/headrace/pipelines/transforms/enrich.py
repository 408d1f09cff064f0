"""``enrich``: adds columns of a reference table, which is a compacted topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.metrics import Metric
from headrace.model import FieldType, Topic
from headrace.model.event import readable_schema
from headrace.model.fault import Fault, at_least, is_a
from headrace.pipelines.steps.column_names import quoted
from headrace.pipelines.transforms.transform import (
    Transform,
    missing_columns,
    new_column,
    refuse_taken,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.pipelines.references.table import ReferenceReader

COMPACTION_LAG = "min.compaction.lag.ms"
_RECORD = "_headrace_record"
_ADDED = "enrich: the added column"
# An Arrow column of text holds 2 GiB at most.
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class enrich(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: adds columns of the reference record whose key is the value of a column.

    ========== =================================================================================
    columns    as they come in, and each of ``columns``, named with ``prefix`` in front
    gives      every row, in order. Where ``by`` is null, or there is no record of its value, the
               added columns are null; such rows are counted as ``enrich_unmatched_rows``
    record     the newest one of its key that was in the topic when the batch was planned. A
               tombstone deletes it; a record that is no event of the topic counts as one, and the
               log names it
    snapshot   one position of the topic per batch, for all of its tasks. It is kept in the batch's
               offset in the checkpoint, so a batch that is repeated uses it again
    compaction deletes records that were replaced. The topic must keep them for longer than a
               batch, and an outage, may last (``min.compaction.lag.ms``): to a batch that is
               repeated later than that, a key that was written again since has no record
    memory     the columns of all records, in every Python worker process that looks values up: up
               to one per core, and more where steps and the sink run beside it. More than
               ``max_bytes`` ends the pipeline
    state      none in the checkpoint. Each process reads the topic from its start before the first
               row, and what is added with each batch
    a crash    repeats nothing, and a batch that is repeated gives the same rows
    ========== =================================================================================

    A reference that is written after the row that needs it comes too late for that row. What has to
    wait for the other side is a join.

    Attributes:
        reference: the topic, compacted, with an event class; its record keys are text, or the
            bytes of a binary column.
        by: the column whose text is the record key.
        columns: fields of the reference's events.
        prefix: of the names of the added columns.
        max_bytes: of memory that the table may need in a process, at most 1 GiB.
        reader: set by headrace where the pipeline runs.
    """

    reference: Topic
    by: str
    columns: Sequence[str]
    prefix: str = ""
    max_bytes: int = 256 << 20
    reader: ReferenceReader | None = field(default=None, repr=False, compare=False)

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "enrich_unmatched_rows",
            "rows",
            "rows for which `enrich` has no record of the reference, or whose `by` is null",
            "rising: the reference lacks keys, or is written after the events that need it",
            is_counter=True,
        ),
    )

    @property
    def references(self) -> tuple[Topic, ...]:
        """The topic in which it looks values up."""
        return (self.reference,) if is_a(self.reference, Topic) else ()

    def with_reader(self, reader: ReferenceReader) -> enrich:
        """Returns the step with what reads its table."""
        return replace(self, reader=reader)

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Looks the record of each row up, counts those without, and adds the columns."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import BinaryType

        for name in self._added:
            refuse_taken(_ADDED, name, rows)
        key = F.col(quoted(self.by))
        if not isinstance(rows.schema[self.by].dataType, BinaryType):
            key = key.cast("string").cast("binary")
        record = F.col(_RECORD)
        matched = rows.withColumn(_RECORD, self._lookup()(key))
        counted = self.count(matched, enrich_unmatched_rows=record.isNull())
        added = (record[name].alias(alias) for alias, name in self._added.items())
        return counted.select(*map(quoted, rows.columns), *added)

    def _lookup(self) -> Callable[[Column], Column]:
        """Returns a function from keys to records as structs; only the keys go to Python."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.pandas.types import from_arrow_schema

        from headrace.pipelines.references.table import ReferenceSpec, kept_columns, lookup

        reader, schema = self.reader, self.reference.schema
        if reader is None or schema is None:
            raise RuntimeError("enrich is a step of a pipeline, and is not called otherwise")
        spec = ReferenceSpec(
            topic=self.reference.name,
            schema=schema,
            format=self.reference.record_format,
            columns=tuple(self.columns),
            max_bytes=self.max_bytes,
        )
        record = from_arrow_schema(kept_columns(spec))
        find: Callable[[Column], Column] = F.arrow_udf(lookup(reader, spec), record)
        return find

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for a reference that is no table, and for columns that it can't use."""
        yield from missing_columns("enrich", [self.by], columns)
        if not is_a(self.reference, Topic) or self.reference.event is None:
            yield Fault(f"enrich.reference is {self.reference!r}", "a Topic with an event class")
            return
        yield from self._topic_faults()
        yield from at_least(self, "max_bytes", 1)
        if is_a(self.max_bytes, int) and self.max_bytes > MAX_BYTES:
            yield Fault(f"enrich.max_bytes is {self.max_bytes}", f"at most {MAX_BYTES}, 1 GiB")
        if is_a(self.columns, str) or not self.columns:
            yield Fault(f"enrich.columns is {self.columns!r}", 'columns=["name"]')
            return
        if (known := self._fields()) is None:
            return
        yield from missing_columns(f"enrich, {self.reference.name}", self.columns, known)
        for name in self._added:
            yield from new_column(_ADDED, name, columns)

    def columns_after(self, columns: Mapping[str, FieldType]) -> Mapping[str, FieldType] | None:
        """Returns the columns that come in, and those of the reference."""
        if (known := self._fields()) is None:
            return None
        return {**columns, **{added: known[name] for added, name in self._added.items()}}

    def _fields(self) -> dict[str, FieldType] | None:
        """Returns the fields of the reference; None: its class can't be read, as its topic says."""
        if self.reference.event is None:
            return None
        try:
            schema, _ = readable_schema(self.reference.event)
        except Exception:  # noqa: BLE001  annotations run the user's code
            return None
        return {member.name: member.type for member in schema.fields}

    @property
    def _added(self) -> dict[str, str]:
        """The fields of the reference by the columns to add."""
        return {f"{self.prefix}{name}": name for name in self.columns}

    def _topic_faults(self) -> Iterator[Fault]:
        name = self.reference.name
        if not self.reference.compaction:
            yield Fault(f"enrich.reference {name!r} is not compacted", "Topic(compaction=True)")
        if COMPACTION_LAG not in self.reference.config:
            yield Fault(
                f"enrich.reference {name!r} does not say how long replaced records are kept",
                f'config={{"{COMPACTION_LAG}": "86400000"}}: longer than a batch, and an outage',
            )
