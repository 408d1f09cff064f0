"""How Spark's streaming queries write their checkpoints."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.storage.files import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_RENAMES_IN_THE_JVM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_starting = threading.Lock()


def start_query(spark: SparkSession, writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    """Starts a query with its checkpoint at a URI, or an absolute path of this machine.

    On this machine, Spark's default ``CheckpointFileManager`` has Hadoop look for links before it
    renames a file. Without Hadoop's native library, which PySpark does not bring, that is a process
    each time (``readlink``): half the CPU time of a small batch. Spark's fallback for file systems
    without a ``FileContext`` renames in the JVM. A user's own choice wins.
    """
    with _starting:  # the session is copied at the start, with the manager that is set then
        if not spark.sparkContext.getConf().contains(_MANAGER):
            if is_local(checkpoint):
                spark.conf.set(_MANAGER, _RENAMES_IN_THE_JVM)
            else:
                spark.conf.unset(_MANAGER)
        # Spark takes a bare path for one of its default file system, which may be another. And it
        # takes the text as it is: of a path with a space, `Path.as_uri` would name another folder.
        uri = checkpoint if "://" in checkpoint else f"file://{checkpoint}"
        return writer.option("checkpointLocation", uri).start()
