"""headrace itself, as a project would use it: one declared pipeline a run, one warm session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench.driver import OnCommit, WriteOnce
from bench.events import impressions_topic
from bench.setup import LOOK_SECONDS, Setup
from headrace import BatchLimits, Lake, Pipeline
from headrace.settings.model import KafkaSettings, Settings, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.run import PipelineRun

TABLE = "impressions"


def marked(impressions: DataFrame) -> DataFrame:
    """The Spark step: a derived column, and a filter that keeps every event."""
    from pyspark.sql import functions as F  # noqa: N812

    is_shown = F.col("position") > 0
    first = (F.col("position") == 1).alias("is_first")
    return impressions.where(is_shown).select("*", first)


def open_headrace(setup: Setup, *, with_step: bool) -> WriteOnce:
    """Starts Spark; the function returned writes the whole topic into a fresh lake."""
    from headrace.pipelines.run import Deployment, PipelineRun
    from headrace.pipelines.session import start_session

    spark_settings = SparkSettings(setup.master, {"spark.driver.memory": f"{setup.heap_mb}m"})
    state = setup.logs / ("spark-step" if with_step else "fused")
    spark = start_session(
        "bench", spark_settings, master=setup.master, java=setup.java, state=state
    )

    def write_once(out: Path, on_commit: OnCommit) -> None:
        settings = Settings(
            root=out, name="bench", modules=(), lake=str(out), kafka=KafkaSettings(setup.bootstrap)
        )
        deployment = Deployment(setup.bootstrap, str(out), setup.master, setup.java)
        pipeline = _pipeline(setup, out.name, with_step=with_step)
        run = PipelineRun(spark, settings, pipeline, deployment, once=True)
        _finish(run, on_commit)

    return write_once


def _pipeline(setup: Setup, name: str, *, with_step: bool) -> Pipeline:
    return Pipeline(
        name,
        source=impressions_topic(setup.topic, setup.partitions),
        sink=Lake(TABLE, partition_by=("day", "hour", "category")),
        steps=(marked,) if with_step else (),
        # By bytes too it would plan its first batch smaller, before it has seen any record.
        limits=BatchLimits(max_records=setup.batch_records, max_bytes=2**40),
    )


def _finish(run: PipelineRun, on_commit: OnCommit) -> None:
    from headrace.pipelines.progress import PipelineState

    told = 0
    try:
        while not run.progress.final:
            run.poll()
            if run.progress.batches > told:
                told = run.progress.batches
                on_commit(run.progress.rows_in)
            time.sleep(LOOK_SECONDS)
    finally:
        run.stop()
    if run.progress.state is not PipelineState.FINISHED:
        raise RuntimeError(f"{run.pipeline.name}: {run.progress.state}: {run.progress.reason}")


def table_files(out: Path) -> list[Path]:
    """The Parquet files of the table's present version."""
    from urllib.parse import unquote, urlparse

    from deltalake import DeltaTable

    uris: Mapping[int, str] = dict(enumerate(DeltaTable(str(out / TABLE)).file_uris()))
    return [Path(unquote(urlparse(uri).path)) for uri in uris.values()]
