"""Announces to the tasks of a batch up to where they read reference tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.kafka.table.topic_table import TopicPosition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "headrace.references"
_PLANNED = "headrace.planned_ms"


def announce(spark: SparkSession, positions: Mapping[str, TopicPosition], planned_ms: int) -> None:
    """Passes to the tasks of jobs that this thread starts from now on where they look values up.

    Called on the thread that runs the batch, before it starts any job.

    Args:
        spark: the session.
        positions: by topic.
        planned_ms: when the batch was planned, in milliseconds since 1970.
    """
    encoded = {topic: position.to_json() for topic, position in positions.items()}
    spark.sparkContext.setLocalProperty(_PROPERTY, json.dumps(encoded))
    spark.sparkContext.setLocalProperty(_PLANNED, str(planned_ms))


def announced(topic: str) -> TopicPosition:
    """Returns where the batch of this task looks values of ``topic`` up; called in a task."""
    return TopicPosition.from_json(json.loads(_local_property(_PROPERTY))[topic])


def announced_ms() -> int:
    """Returns when the batch of this task was planned, in milliseconds since 1970.

    A batch that is repeated has the time that it had before. Called in a task.
    """
    return int(_local_property(_PLANNED))


def _local_property(name: str) -> str:
    from pyspark import TaskContext

    task = TaskContext.get()
    value = None if task is None else task.getLocalProperty(name)
    if value is None:
        raise RuntimeError("a lookup outside of a batch of a pipeline")
    return str(value)
