"""The base class of ready-made steps."""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from headrace.metrics import Metric
from headrace.model import FieldType, Topic
from headrace.model.fault import Fault, is_a
from headrace.model.name import OWN_PREFIX, is_own_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.pipelines.ledger.counting.step_ledger import StepLedger
    from headrace.pipelines.references.table import ReferenceReader

WATERMARK_DELAY = "spark.watermarkDelayMs"
"""Spark's key in the metadata of a column that has a watermark: its delay in milliseconds."""

MAX_INTERVAL = timedelta(days=365_000)
"""Longest time that a step may name. Spark refuses intervals beyond 64 bits."""

EVENT_TIME = "event_time"
"""The column of the event time where neither a transform nor its topic names one."""


class Transform(abc.ABC):
    """A step with figures of its own: a frozen dataclass that is called like any step.

    It can check its declaration (:meth:`faults`) and count rows (:meth:`count`). A transform that
    keeps state also reports figures of its state (:meth:`figures`).

    Attributes:
        metrics: of its figures, which stand in the pipeline's status and metrics. Their names must
            not be those of other figures of pipelines.
        keeps_lineage: whether it reports each row that it drops to the ledger
            (:meth:`with_ledger`), and gives rows with the ledger's column if they come with it.
            Where it is False, it does not see that column.
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()
    keeps_lineage: ClassVar[bool] = False

    @property
    def all_metrics(self) -> tuple[Metric, ...]:
        """The metrics of this declaration: those of its class, and those that its arguments name.

        By default those of its class.
        """
        return self.metrics

    @property
    def watermark_delay(self) -> timedelta | None:
        """The delay of the watermark that it sets on rows without one; None: it sets none."""
        return None

    @property
    def references(self) -> tuple[Topic, ...]:
        """The compacted topics in which it looks values up."""
        return ()

    def with_reader(self, reader: ReferenceReader) -> Transform:  # noqa: ARG002
        """Returns the transform with what reads its references; called before the step itself."""
        return self

    def with_ledger(self, ledger: StepLedger) -> Transform:  # noqa: ARG002
        """Returns the transform with what counts for the ledger; called before the step itself.

        Called only for rows that the ledger can count, and where :attr:`keeps_lineage` is True.
        """
        return self

    @abc.abstractmethod
    def __call__(self, rows: DataFrame) -> DataFrame:
        """Called on the driver at every start of the pipeline, with streaming rows."""

    def state(self) -> Mapping[str, str | list[str]]:
        """Returns what the meaning of its state depends on; empty if it keeps none.

        It is recorded with the checkpoint. A start with other values is refused, since the state
        would be taken for one of the new values. What may change at any time is not in it: how
        long something is remembered.
        """
        return {}

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:  # noqa: ARG002
        """Yields everything wrong with the declaration; ``check`` shows it.

        Args:
            columns: of the rows, where every step between it and one source is ready-made; else
                None.
        """
        yield from ()

    def columns_after(
        self,
        columns: Mapping[str, FieldType],  # noqa: ARG002
    ) -> Mapping[str, FieldType] | None:
        """Returns the columns that it gives; None: they are not known before it runs.

        Called where :meth:`faults` found nothing.

        Args:
            columns: of the rows that it takes.
        """
        return None

    def for_topic(self, event_time: str | None) -> Transform:  # noqa: ARG002
        """Returns the transform as it runs in a pipeline, whose first topic has an event time.

        Called before :meth:`faults` and before the step itself; does not change the transform.

        Args:
            event_time: the column that the topic declares; None: it declares none.
        """
        return self

    def figures(self, operator: Mapping[str, Any]) -> Mapping[str, int]:  # noqa: ARG002
        """Returns figures from Spark's report of a stateful operator in one batch.

        Called for every operator of the pipeline, also those of other steps. A figure has the name
        of one of its metrics. What several operators of a batch give under one name is added up;
        several transforms that give it of the same operator count as one. Over the batches, the
        values of counters are added up, of other metrics the last value is shown.
        """
        return {}

    def count(self, rows: DataFrame, **conditions: Column) -> DataFrame:
        """Returns ``rows``, of which each batch counts those that fulfil conditions.

        A batch that Spark repeats within a run is counted once. The rows themselves and their order
        are not touched.

        Args:
            rows: streaming rows.
            conditions: by the name of one of its metrics, a counter, the rows that it counts.
        """
        from pyspark.sql import functions as F  # noqa: N812

        counts = [F.count_if(condition).alias(name) for name, condition in conditions.items()]
        # Spark refuses a second observation of a name, as of another instance of this class.
        return rows.observe(f"{type(self).__name__}-{uuid4().hex}", *counts)


def state_rows(operator: Mapping[str, Any], name: str, figure: str) -> Mapping[str, int]:
    """Returns the rows in the state of an operator as ``figure``, if Spark calls it ``name``."""
    return {figure: int(operator["numRowsTotal"])} if operator["operatorName"] == name else {}


def with_watermark(rows: DataFrame, event_time: str, delay: timedelta) -> DataFrame:
    """Returns ``rows`` with a watermark on ``event_time``, their own where they have one.

    Spark takes a second watermark on a column, and fails in the second batch.
    """
    if WATERMARK_DELAY in rows.schema[event_time].metadata:
        return rows
    return rows.withWatermark(event_time, interval(delay))


def interval(length: timedelta) -> str:
    """Returns the text that Spark takes for a length of time, in whole milliseconds."""
    return f"{length // timedelta(milliseconds=1)} milliseconds"


def missing_columns(
    transform: str, names: Sequence[str], columns: Mapping[str, FieldType] | None
) -> Iterator[Fault]:
    """Yields a fault for each of ``names`` that is no column; none where columns are not known."""
    for name in names if columns is not None else ():
        if name not in (columns or {}):
            known = f"columns: {', '.join(columns or {})}"
            yield Fault(f"{transform}: {name!r} is not a column", known)


def missing_event_time(
    transform: str, event_time: str, columns: Mapping[str, FieldType] | None
) -> Iterator[Fault]:
    """Yields a fault if the event time is no column, or can have no watermark."""
    yield from watermark_faults(transform, event_time)
    for fault in missing_columns(transform, [event_time], columns):
        remedy = f'{fault.remedy}; give one as event_time="...", or declare Topic(event_time=...)'
        yield Fault(f"{fault.message}, and is its event time", remedy)


def watermark_faults(subject: str, event_time: str) -> Iterator[Fault]:
    """Yields a fault for a name that Spark takes for a path where it sets a watermark."""
    if is_a(event_time, str) and not {".", "`"}.isdisjoint(event_time):
        message = f"{subject}: {event_time!r} can have no watermark: Spark takes it for a path"
        yield Fault(message, "a step that gives the column a name without '.' and '`'")


def new_column(argument: str, name: object, columns: Collection[str] | None) -> Iterator[Fault]:
    """Yields a fault if ``name`` is no text, or a column already, as Spark compares: in any case.

    Args:
        argument: that names the column: ``classify.into``.
        name: of the column to add.
        columns: of the rows; None: they are not known.
    """
    if not isinstance(name, str) or not name:
        yield Fault(f"{argument} is {name!r}", "the name of a column to add")
        return
    if is_own_column(name):
        message = f"{argument} is {name!r}; names that begin with {OWN_PREFIX!r} are headrace's own"
        yield Fault(message, "choose another name")
    taken = next((known for known in columns or () if known.lower() == name.lower()), None)
    if taken is not None:
        yield Fault(f"{argument} is {name!r}, and {taken!r} is a column", "choose another name")


def refuse_taken(argument: str, name: str, rows: DataFrame) -> None:
    """Refuses the name of a column to add that would replace one of ``rows``.

    Raises:
        ValueError: if a column has the name, in any case.
    """
    for fault in new_column(argument, name, rows.columns):
        raise ValueError(f"{fault.message}; {fault.remedy}")
