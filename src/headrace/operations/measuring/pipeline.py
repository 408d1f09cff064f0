"""Measures a pipeline: batches of it, from a topic with the sample into a lake on this machine."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.errors import MeasurementError
from headrace.kafka.admin.measuring import present_topic, temporary_name
from headrace.kafka.admin.topics import dead_letter_topic
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.groups import delete_group
from headrace.model import BatchLimits, DeadLetterLimit, Start, Topic
from headrace.operations.measuring.repeats import Repetition, distinct_by, varied_field
from headrace.operations.measuring.result import (
    MeasuredDeclaration,
    Round,
    machine,
    memory,
    now,
    versions,
)
from headrace.operations.measuring.rounds import MeasureOptions, OnStep
from headrace.operations.measuring.sample import RecordSample, sample_of, used
from headrace.operations.measuring.scratch import (
    SCRATCH_PREFIX,
    Filler,
    scratch_topics,
)
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.run.pipeline_run import Deployment
from headrace.pipelines.run.runner import Driver, driver_session
from headrace.pipelines.status import PipelineStatus
from headrace.project.services import bootstrap_servers, broker_config
from headrace.runtime.java.installation import find_java
from headrace.runtime.process_tree import Watch
from headrace.service.status import State
from headrace.settings import RestartSettings, Settings, environment
from headrace.sinks.api import Sink
from headrace.sinks.lake.declaration import Lake
from headrace.sinks.lake.delta.declaration import Delta

_LOCAL = "local"
# Two sizes of batches separate what a batch costs from what a record costs. Of each, the first
# batch is a warm-up.
_TRIED = (1_000, 20_000)
_FEWEST = 200
"""Records of a batch: with fewer, nothing but what a batch costs is measured."""


@dataclass(frozen=True)
class TriedBatch:
    """A batch that was tried: its records, and its duration."""

    records: int
    seconds: float


@dataclass
class _Batches:
    """Makes a round of each batch but the first, as the status of a run says when it has ended.

    Attributes:
        watch: of the process tree.
        lake: folder that the batches write to.
        stop: set by the user.
        most_rounds: after so many, the run ends.
        end: set when the run must end.
        rounds: until now.
        has_first: whether there was a batch.
    """

    watch: Watch
    lake: Path
    stop: threading.Event
    most_rounds: int
    end: threading.Event = field(default_factory=threading.Event)
    rounds: list[Round] = field(default_factory=list)
    has_first: bool = False
    _seen: PipelineStatus = field(default_factory=lambda: PipelineStatus(""))
    _cpu_seconds: float = 0.0
    _bytes: int = 0

    def observe(self, progress: Mapping[str, PipelineStatus]) -> None:
        """Takes the status of the one pipeline that runs."""
        [status] = progress.values()
        before = self._seen
        if self.stop.is_set():
            self.end.set()
        if status.batches == before.batches or status.rows_in == before.rows_in:
            return
        cpu, written = self.watch.cpu_seconds(), _size(self.lake)
        records = status.rows_in - before.rows_in
        # Several batches at once: they were faster than the status is looked at.
        seconds = status.batch_seconds * (status.batches - before.batches)
        if not self.has_first:
            self.has_first = True
        elif len(self.rounds) < self.most_rounds:
            self.rounds.append(
                Round(
                    seconds,
                    records,
                    status.dead_letters - before.dead_letters,
                    cpu - self._cpu_seconds,
                    status.rows_out - before.rows_out,
                    written - self._bytes,
                )
            )
        self._seen, self._cpu_seconds, self._bytes = status, cpu, written
        if len(self.rounds) >= self.most_rounds:
            self.end.set()


@dataclass
class _Runs:
    """Runs of one pipeline in one session of Spark, each with a lake and a checkpoint of its own.

    Attributes:
        driver: makes them.
        folder: of all of their files.
        pipeline: as it is run, but for its name and limits.
    """

    settings: Settings
    deployment: Deployment
    config: ClientConfig
    folder: Path
    pipeline: Pipeline
    watch: Watch
    stop: threading.Event

    @contextmanager
    def session(self) -> Iterator[_Session]:
        """Starts Spark, for as long as the context lasts."""
        isolated = isolated_settings(self.settings, self.folder / "spark")
        with driver_session(isolated, self.deployment) as spark:
            yield _Session(self, spark)


class _Session:
    """Spark, while it runs."""

    def __init__(self, runs: _Runs, spark: object) -> None:
        self._runs, self._spark = runs, spark

    def batches(self, max_records: int, rounds: int) -> _Batches:
        """Runs the pipeline from the start of its topics, in batches of so many records.

        Its topics have enough for all rounds, and a batch before them.

        Raises:
            MeasurementError: if it fails, or makes dead letters of all records.
            KeyboardInterrupt: if it was stopped.
        """
        runs, name = self._runs, temporary_name(SCRATCH_PREFIX)
        folder = runs.folder / name
        settings = isolated_settings(runs.settings, folder)
        deployment = replace(runs.deployment, lake=str(folder / "lake"))
        limits = replace(runs.pipeline.limits, max_records=max_records)
        pipeline = replace(runs.pipeline, name=name, limits=limits)
        batches = _Batches(runs.watch, folder / "lake", runs.stop, most_rounds=rounds)
        driver = Driver(self._spark, settings, deployment)
        try:
            outcomes = driver.run([pipeline], once=True, observe=batches.observe, stop=batches.end)
        finally:
            delete_group(runs.config, pipeline.consumer_group)
        if runs.stop.is_set():
            raise KeyboardInterrupt
        _check(runs.pipeline.name, outcomes[name], batches)
        return batches


def measure_pipeline(
    settings: Settings,
    pipeline: Pipeline,
    options: MeasureOptions,
    on_step: OnStep,
    stop: threading.Event,
) -> MeasuredDeclaration:
    """Runs ``pipeline`` on samples of its topics in Spark on this machine, and measures batches.

    Raises:
        MeasurementError: if it has a join, there is no sample, or it fails.
        TopicMissingError: if a topic does not exist.
        BrokerUnreachableError: if the brokers do not answer.
        KeyboardInterrupt: if it was stopped.
    """
    if pipeline.join is not None:
        reason = "it has a Join, whose events must fit together; a sample's would not"
        raise MeasurementError(pipeline.name, reason)
    config = broker_config(settings)
    samples = {
        source.topic.name: sample_of(config, settings, source.topic, options.records, options.file)
        for source in pipeline.sources
    }
    samples = _varied(pipeline, samples)
    with ExitStack() as stack:
        watch = stack.enter_context(Watch(os.getpid()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX)))
        topics = stack.enter_context(_topics(config, pipeline))
        names = (topic.name for topic in topics)
        filler = Filler(config, list(zip(names, samples.values(), strict=True)))
        isolated = isolated_pipeline(pipeline, topics)
        runs = _Runs(settings, deployment_of(settings), config, folder, isolated, watch, stop)
        rounds, size = _rounds(runs, filler, options, on_step)
    return MeasuredDeclaration(
        "pipeline",
        pipeline.name,
        options.command,
        now(),
        versions(),
        machine(),
        used(samples, filler.mean_bytes),
        tuple(rounds),
        *memory(watch.usage),
        not_measured=(
            *not_measured(pipeline, settings),
            *dropped_rows(pipeline, rounds),
            f"batches of other sizes than {size:,}",
        ),
    )


def _varied(pipeline: Pipeline, samples: Mapping[str, RecordSample]) -> dict[str, RecordSample]:
    """Returns samples that no part of ``pipeline`` takes for duplicates when they are repeated."""
    keys = (varied_field(pipeline, by) for _, by in distinct_by(pipeline))
    fields = [*dict.fromkeys(name for name in keys if name is not None)]
    return {
        topic: replace(sample, repeated=Repetition.of(fields, sample.records)) if fields else sample
        for topic, sample in samples.items()
    }


def dropped_rows(pipeline: Pipeline, rounds: Sequence[Round]) -> Iterator[str]:
    """Yields how few rows were written where duplicates are dropped: it may be the measurement."""
    read = sum(batch.records - batch.failed for batch in rounds)
    written = sum(batch.sent_records for batch in rounds)
    if written < read and any(distinct_by(pipeline)):
        yield (
            f"rows that are duplicates: of {read:,} records that were read, {written:,} rows were "
            "written"
        )


@contextmanager
def _topics(config: ClientConfig, pipeline: Pipeline) -> Iterator[list[Topic]]:
    """Creates topics like those of ``pipeline``, and topics for their dead letters."""
    with (
        scratch_topics(config, [source.topic for source in pipeline.sources]) as topics,
        ExitStack() as stack,
    ):
        for topic in topics:
            stack.enter_context(present_topic(config, dead_letter_topic(topic)))
        yield topics


def _rounds(
    runs: _Runs, filler: Filler, options: MeasureOptions, on_step: OnStep
) -> tuple[list[Round], int]:
    """Returns the rounds, and how many records their batches have."""
    on_step(0, 3, "Spark starts")
    with runs.session() as session:
        on_step(1, 3, "warm-up: small batches")
        size = _batch_size(session, filler, runs.pipeline.limits, options)
        on_step(2, 3, f"{options.rounds} batches of {size:,} records, after one for warm-up")
        _fill_to(filler, size * (options.rounds + 1))
        return session.batches(size, options.rounds).rounds, size


def _batch_size(
    session: _Session, filler: Filler, limits: BatchLimits, options: MeasureOptions
) -> int:
    """Returns how many records a batch of a round has: as many as its time allows."""
    most = int(min(limits.max_records, 2 * filler.most / (options.rounds + 1)))
    tried: list[TriedBatch] = []
    for records in _TRIED:
        count = max(1, min(records, most))
        if tried and tried[-1].seconds * count / tried[-1].records > options.seconds:
            break
        _fill_to(filler, 2 * count)
        [last] = session.batches(count, rounds=1).rounds
        tried.append(TriedBatch(last.records, last.seconds))
    fewest = min(most, _FEWEST)
    return max(fewest, min(most, batch_records(tried, options.round_seconds)))


def batch_records(tried: Sequence[TriedBatch], seconds: float) -> int:
    """Returns the records of a batch that takes ``seconds``, by batches that were tried.

    What each batch costs, whatever its size, is left out, but for half of the time.
    """
    first, last = tried[0], tried[-1]
    if last.records == first.records or last.seconds <= first.seconds:
        # Nothing can be said of a single record but that it costs no more than this.
        return int(last.records / max(last.seconds, 1e-3) * seconds)
    a_record = (last.seconds - first.seconds) / (last.records - first.records)
    fixed = max(0.0, first.seconds - first.records * a_record)
    return int(max(seconds - fixed, seconds / 2) / a_record)


def _fill_to(filler: Filler, count: int) -> None:
    while filler.filled < count:
        filler.fill(count - filler.filled)


def _check(name: str, status: PipelineStatus, batches: _Batches) -> None:
    if status.state not in (State.FINISHED, State.STOPPED):
        raise MeasurementError(name, f"it is {status.state} after a start: {status.reason}")
    if not batches.rounds:
        raise MeasurementError(name, "it has read all records in one batch: more --seconds")
    if status.dead_letters >= status.rows_in:
        reason = f"all of {status.rows_in} records became dead letters; the log has the reasons"
        raise MeasurementError(name, reason)


def isolated_settings(settings: Settings, folder: Path) -> Settings:
    """Returns settings by which all files are in ``folder``."""
    # Tasks import the project's modules, which stay where they are.
    paths = {"spark.executorEnv.PYTHONPATH": str(settings.root)}
    spark = replace(settings.spark, config=paths | dict(settings.spark.config))
    return replace(
        settings,
        root=folder,
        lake=str(folder / "lake"),
        checkpoints="",
        embedded_hdfs=False,
        spark=spark,
        restart=RestartSettings(budget=0),
    )


def isolated_pipeline(pipeline: Pipeline, topics: Sequence[Topic]) -> Pipeline:
    """Returns ``pipeline`` on other topics, into tables of a lake, without a dead-letter limit."""
    sources = tuple(
        replace(source, topic=topic, start=Start.EARLIEST)
        for source, topic in zip(pipeline.sources, topics, strict=True)
    )
    late = pipeline.late_data
    return replace(
        pipeline,
        source=sources,
        sink=_table(pipeline, pipeline.sink, "measured"),
        late_data=_table(pipeline, late, "measured_late") if isinstance(late, Sink) else late,
        dead_letter_limit=DeadLetterLimit(max_ratio=1.0, max_consecutive=10**9),
    )


def _table(pipeline: Pipeline, sink: Sink, name: str) -> Lake:
    if not isinstance(sink, Lake):
        return Lake(name)
    # The sample is repeated: without fields that differ, no row but the first ones were written.
    unique = sink.unique
    is_varied = unique is not None and varied_field(pipeline, unique.by) is not None
    return replace(sink, format=Delta(), unique=unique if is_varied else None)


def deployment_of(settings: Settings) -> Deployment:
    """Returns Spark on this machine: only processes of this machine can be measured."""
    master = settings.spark.master
    return Deployment(
        bootstrap=bootstrap_servers(settings),
        lake="",
        master=master if master.startswith(_LOCAL) else f"{_LOCAL}[*]",
        java=find_java(environment()).environ(),
    )


def not_measured(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    """Yields the parts of the cost that are missing."""
    if isinstance(pipeline.sink, Lake):
        yield "the lake's storage: the table was on a disk of this machine"
        if pipeline.sink.unique is not None and not varied_field(pipeline, pipeline.sink.unique.by):
            yield (
                "Lake.unique: the sample is repeated, and none of its columns can be made to "
                "differ, so rows were written without a look for duplicates"
            )
    else:
        kind = pipeline.sink.kind
        yield f"the sink ({kind}): rows were written to a table of a lake on this machine"
    if not settings.spark.master.startswith(_LOCAL):
        yield f"the cluster {settings.spark.master}: Spark ran on this machine"
    yield "other partitions: each topic had one, so one task read it"
    yield "Spark's start, and the first batch"


def _size(folder: Path) -> int:
    """Returns the bytes of the table's data files."""
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))
