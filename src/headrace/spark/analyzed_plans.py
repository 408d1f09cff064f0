"""Analyzed plans of Spark as objects of its JVM, and DataFrames of them.

There is no public way to either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def analyzed(rows: DataFrame) -> Any:
    """Returns the analyzed plan of ``rows``."""
    return rows._jdf.queryExecution().analyzed()  # noqa: SLF001  see above


def with_children(plan: Any, children: Sequence[Any], like: DataFrame) -> Any:
    """Returns an operator with other inputs; ``like`` is any DataFrame of its session."""
    jvm: Any = like.sparkSession.sparkContext._jvm  # noqa: SLF001  see above
    return plan.withNewChildren(jvm.PythonUtils.toSeq(list(children)))


def frame_of(plan: Any, like: DataFrame) -> DataFrame:
    """Returns a plan as a DataFrame of the session of ``like``."""
    from pyspark.sql.classic.dataframe import DataFrame

    session: Any = like.sparkSession
    dataset: Any = session._jvm.org.apache.spark.sql.classic.Dataset  # noqa: SLF001  see above
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)  # noqa: SLF001
