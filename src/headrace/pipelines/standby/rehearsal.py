"""Keeps a standby warm: its query runs on a few records, into a table that is thrown away.

A first start in a process takes ten times as long as the next one: Spark loads its classes and
compiles them, and each Python worker imports what decodes records and writes files. A rehearsal
does all of that before it matters. It runs the pipeline's own steps on at most a thousand records
from the start of the topic, commits nothing, and writes to no target of the project.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model import Start
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.graph import build
from headrace.pipelines.join.declaration import Join
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.rows import RunContext
from headrace.pipelines.source.state import SourceState, SourceView
from headrace.pipelines.start.checkpoint import Checkpoint
from headrace.runtime.logs import Subject, logging_about
from headrace.sinks.lake.declaration import Lake
from headrace.spark.checkpoints import start_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipelines.graph import Graph

_LOG = logging.getLogger("headrace.pipelines")
# Spark ends Python workers that have been idle for a minute.
EVERY_SECONDS = 45.0
_RECORDS = 1_000
_LOOK_SECONDS = 0.1


class Rehearsal:
    """Rehearses a pipeline on a thread of its own, until it is cancelled. Used once.

    Args:
        spark: the session in which the pipeline will run.
        pipeline: as it is declared.
        context: of its runs.
        folder: of this driver, for what it writes.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, context: RunContext, folder: Path
    ) -> None:
        self._spark, self._folder = spark, folder
        self._subject = Subject("pipeline", pipeline.name)
        self._pipeline = rehearsed(pipeline)
        self._context = replace(
            context,
            lake=str(folder / "lake"),
            state=folder / "state",
            staging=str(folder / "staging"),
            storage={},
            ledger=replace(context.ledger, enabled=False),
        )
        self._failure = ""
        self._ended_at: float | None = None
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rehearsal", daemon=True)
        self._thread.start()

    @property
    def age_seconds(self) -> float | None:
        """How long ago the last rehearsal has ended; ``None``: none has."""
        return None if self._ended_at is None else time.monotonic() - self._ended_at

    def cancel(self) -> None:
        """Ends it soon, without a wait: the pipeline can start beside it."""
        self._cancelled.set()

    def close(self) -> None:
        """Ends it, and waits for that."""
        self.cancel()
        self._thread.join()

    def _run(self) -> None:
        with logging_about(self._subject):
            while not self._cancelled.is_set():
                try:
                    self._rehearse()
                    self._ended_at, self._failure = time.monotonic(), ""
                except Exception as error:  # noqa: BLE001 - a standby that is cold is better than none
                    self._note(str(error))
                finally:
                    shutil.rmtree(self._folder, ignore_errors=True)
                self._cancelled.wait(EVERY_SECONDS)

    def _note(self, failure: str) -> None:
        if failure != self._failure and not self._cancelled.is_set():
            _LOG.warning("The standby is not warm, its rehearsal has failed: %s", failure)
        self._failure = failure

    def _rehearse(self) -> None:
        checkpoint = Checkpoint(str(self._folder / "checkpoint"), 1)
        parts = (self._spark, self._pipeline, self._context, checkpoint)
        graph = build(*parts, Start.EARLIEST, lambda _: None)
        topics = [source.topic.name for source in self._pipeline.sources]
        state = SourceState(self._context.state)
        with closing(_Rehearsed(graph, checkpoint)) as query:
            while query.is_running and not is_empty(state.view(topic) for topic in topics):
                if self._cancelled.wait(_LOOK_SECONDS):
                    return
            query.raise_failure()


class _Rehearsed:
    """A query whose batches run their tasks, and end with nothing."""

    def __init__(self, graph: Graph, checkpoint: Checkpoint) -> None:
        self._graph, self._has_ended = graph, threading.Event()
        writer = graph.manifests.writeStream.foreachBatch(self._read)
        self._query = start_query(graph.manifests.sparkSession, writer, checkpoint.uri)

    def _read(self, frame: DataFrame, batch_id: int) -> None:
        self._graph.committer.rehearse(frame, batch_id)
        self._has_ended.set()

    @property
    def is_running(self) -> bool:
        """Whether no batch has ended, and the query has not failed."""
        return bool(self._query.isActive) and not self._has_ended.is_set()

    def raise_failure(self) -> None:
        """Raises what has ended the query, if anything has."""
        if (failure := self._query.exception()) is not None:
            raise failure

    def close(self) -> None:
        """Stops the query."""
        self._query.stop()
        self._graph.close(0.0)


def is_empty(views: Iterable[SourceView]) -> bool:
    """Returns whether the planner has seen that no topic has a record: then no batch comes."""
    return all(view.latest and view.latest == view.positions for view in views)


def rehearsed(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline under another name, with a table of a folder as its only sink.

    Under its own name it would read the consumer group, and replace the source of the real query.
    """
    source = pipeline.source
    if isinstance(source, Join):
        source = replace(source, unmatched=None)
    return replace(
        pipeline,
        name=f"{pipeline.name}-rehearsal",
        source=source,
        sink=Lake("rehearsal"),
        late_data=LateData.KEEP,
        limits=replace(pipeline.limits, max_records=_RECORDS, max_wait=timedelta(milliseconds=100)),
    )
