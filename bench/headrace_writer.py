"""headrace itself, as a project would use it: one declared pipeline a run, one warm session."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.driver import OnCommit, WriteOnce
from bench.events import impressions_topic
from bench.setup import LOOK_SECONDS, Setup
from headrace import BatchLimits, Lake, Pipeline
from headrace.settings.model import KafkaSettings, Settings, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.run.pipeline_run import PipelineRun

TABLE = "impressions"


def marked(impressions: DataFrame) -> DataFrame:
    """The Spark step: a derived column, and a filter that keeps every event."""
    from pyspark.sql import functions as F  # noqa: N812

    is_shown = F.col("position") > 0
    first = (F.col("position") == 1).alias("is_first")
    return impressions.where(is_shown).select("*", first)


def open_headrace(setup: Setup, *, with_step: bool, **settings: Any) -> WriteOnce:
    """Starts Spark; the function returned writes the whole topic into a fresh lake.

    ``settings`` are those of :func:`open_pipelines`.
    """
    pipeline = partial(_lake_pipeline, setup, with_step=with_step)
    return open_pipelines(setup, "spark-step" if with_step else "fused", pipeline, **settings)


def open_pipelines(
    setup: Setup,
    name: str,
    pipeline_for: Callable[[Path], Pipeline],
    *,
    until: int | None = None,
    **settings: Any,
) -> WriteOnce:
    """Starts Spark; the function returned runs a pipeline once over its whole topic.

    Args:
        setup: of the benchmark.
        name: of the session's folder.
        pipeline_for: makes the pipeline of a run, from the folder of the run.
        until: of a pipeline that follows its topic: the records after which it is stopped.
        settings: other fields of the project's settings, such as ``sinks``.
    """
    from headrace.pipelines.run.pipeline_run import Deployment, PipelineRun
    from headrace.spark.session import start_session

    spark_settings = SparkSettings(setup.master, {"spark.driver.memory": f"{setup.heap_mb}m"})
    # Systems of one contest may be the same pipelines with other settings.
    state = setup.logs / f"{name}-{os.getpid()}"
    spark = start_session(
        "bench", spark_settings, master=setup.master, java=setup.java, state=state
    )

    def write_once(out: Path, on_commit: OnCommit) -> None:
        kafka = KafkaSettings(setup.bootstrap)
        project = Settings(
            root=out, name="bench", modules=(), lake=str(out), kafka=kafka, **settings
        )
        deployment = Deployment(setup.bootstrap, str(out), setup.master, setup.java)
        run = PipelineRun(spark, project, pipeline_for(out), deployment, once=until is None)
        _finish(run, on_commit, until)

    return write_once


def batch_limits(setup: Setup) -> BatchLimits:
    """The size of a batch, in records alone.

    By bytes too, a pipeline would plan a smaller first batch, before it has seen any record.
    """
    return BatchLimits(max_records=setup.batch_records, max_bytes=2**40)


def lake_sink() -> Lake:
    """The table of every benchmark that writes a lake."""
    return Lake(TABLE, partition_by=("day", "hour", "category"))


def _lake_pipeline(setup: Setup, out: Path, *, with_step: bool) -> Pipeline:
    return Pipeline(
        out.name,
        source=impressions_topic(setup.topic, setup.partitions),
        sink=lake_sink(),
        steps=(marked,) if with_step else (),
        limits=batch_limits(setup),
    )


def _finish(run: PipelineRun, on_commit: OnCommit, until: int | None) -> None:
    from headrace.service.status import State

    told = 0

    def tell() -> None:
        nonlocal told
        if run.progress.rows_in > told:
            told = run.progress.rows_in
            on_commit(told)

    try:
        while not run.progress.has_ended and (until is None or run.progress.rows_in < until):
            run.poll()
            tell()
            time.sleep(LOOK_SECONDS)
        tell()  # batches end on another thread
    finally:
        run.stop()
    has_read_all = until is not None and run.progress.rows_in >= until
    if not has_read_all and run.progress.state is not State.FINISHED:
        raise RuntimeError(f"{run.pipeline.name}: {run.progress.state}: {run.progress.reason}")


def table_files(out: Path) -> list[Path]:
    """The Parquet files of the table's present version."""
    return files_of(out / TABLE)


def files_of(table: Path) -> list[Path]:
    """The Parquet files of a Delta table's present version."""
    from urllib.parse import unquote, urlparse

    from deltalake import DeltaTable

    uris: Mapping[int, str] = dict(enumerate(DeltaTable(str(table)).file_uris()))
    return [Path(unquote(urlparse(uri).path)) for uri in uris.values()]
