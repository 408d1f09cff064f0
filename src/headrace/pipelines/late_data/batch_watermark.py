"""Spark's watermark of a batch, which the driver passes to the batch's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_WATERMARK_MS = "headrace.watermark_ms"
_TAKES_BEHIND_AS_LATE = "headrace.takes_behind_as_late"


def announce_watermark(
    spark: SparkSession, watermark_ms: int, *, takes_behind_as_late: bool = False
) -> None:
    """Passes the watermark of a batch to the tasks of jobs that this thread starts from now on.

    Called on the thread that runs the batch, before it starts any job.

    Args:
        spark: the session.
        watermark_ms: in milliseconds since 1970; 0 before there is one, to Spark's operators, too.
        takes_behind_as_late: whether events behind it are late where they are read.
    """
    context = spark.sparkContext
    context.setLocalProperty(_WATERMARK_MS, str(watermark_ms))
    context.setLocalProperty(_TAKES_BEHIND_AS_LATE, str(takes_behind_as_late))


def rows_behind(times: pa.Array, watermark_us: int) -> NDArray[np.bool_]:
    """Returns which rows an operator with state drops, as Spark's condition says.

    Args:
        times: timestamps in microseconds; a row without one is not dropped.
        watermark_us: in microseconds since 1970.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_behind = pc.less_equal(times.cast(pa.int64()), watermark_us).fill_null(fill_value=False)
    return np.asarray(is_behind, np.bool_)


def watermark_us() -> int:
    """Returns the watermark of the batch, in a task of it: in microseconds since 1970."""
    return 1000 * int(_property(_WATERMARK_MS) or 0)


def late_watermark_us() -> int | None:
    """Returns :func:`watermark_us` where events behind it are late as they are read; else None."""
    return watermark_us() if _property(_TAKES_BEHIND_AS_LATE) == str(True) else None


def _property(name: str) -> str | None:
    from pyspark import TaskContext

    task = TaskContext.get()
    return None if task is None else task.getLocalProperty(name)
