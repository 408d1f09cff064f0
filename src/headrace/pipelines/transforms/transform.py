"""What a ready-made step is."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.metrics import Metric
from headrace.model import FieldType
from headrace.model.fault import Fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DELAY = "spark.watermarkDelayMs"


class Transform(abc.ABC):
    """A step with figures of its own: a frozen dataclass that is called like any step.

    Attributes:
        metrics: of its figures, which stand in the pipeline's status and metrics.
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()

    @abc.abstractmethod
    def __call__(self, rows: DataFrame) -> DataFrame:
        """Called on the driver at every start of the pipeline, with streaming rows."""

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:  # noqa: ARG002
        """Yields everything wrong with the declaration; ``check`` shows it.

        Args:
            columns: of the rows, where it is the first step after one source; else None.
        """
        yield from ()

    def figures(self, operator: Mapping[str, Any]) -> Mapping[str, int]:  # noqa: ARG002
        """Returns figures from Spark's report of a stateful operator in one batch.

        Called for every operator of the pipeline. The values of counters are added up; of other
        metrics the last value is shown.
        """
        return {}


def with_watermark(rows: DataFrame, event_time: str, delay: timedelta) -> DataFrame:
    """Returns ``rows`` with a watermark on ``event_time``, their own where they have one.

    Spark takes a second watermark on a column, and fails in the second batch.
    """
    if _DELAY in rows.schema[event_time].metadata:
        return rows
    return rows.withWatermark(event_time, f"{int(delay.total_seconds() * 1000)} milliseconds")


def missing_columns(
    transform: str, names: Sequence[str], columns: Mapping[str, FieldType] | None
) -> Iterator[Fault]:
    """Yields a fault for each of ``names`` that is no column; none where columns are not known."""
    for name in names if columns is not None else ():
        if name not in (columns or {}):
            known = f"columns: {', '.join(columns or {})}"
            yield Fault(f"{transform}: {name!r} is not a column", known)
