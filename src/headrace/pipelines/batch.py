"""The end of a batch: dead letters, one transaction, committed offsets, in this order.

What a crash repeats: the whole batch, from the same offsets. Dead letters that were already
written are looked up and skipped; a transaction that was already committed is recognised by
(pipeline id, batch id) and adds nothing; committing offsets again changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.errors import BrokerUnreachableError, DeadLetterLimitError
from headrace.kafka import dead_letters
from headrace.kafka.client import ClientConfig, commit_offsets
from headrace.model import DeadLetter, Pipeline, TopicPartition
from headrace.pipelines.checkpoint import Checkpoint, PlannedBatch
from headrace.pipelines.manifest import Manifest
from headrace.pipelines.source.report import BadRuns, RangeReport
from headrace.pipelines.source.staging import Staging
from headrace.pipelines.source.state import SharedState
from headrace.sinks.lake import LakeTable
from headrace.sinks.maintenance import Commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger("headrace.pipelines")


@dataclass(frozen=True)
class BatchResult:
    """What one batch did. ``positions`` are the next records to read."""

    batch_id: int
    records: int
    rows: int
    late_rows: int
    dead_letters: int
    replays_skipped: int
    commit: Commit
    seconds: float
    last_timestamp_ms: int
    positions: Mapping[TopicPartition, int]


class BatchEnd:
    """Spark calls it once a batch, one batch at a time, on a thread of the driver."""

    def __init__(  # noqa: PLR0913  the parts a batch ends in
        self,
        pipeline: Pipeline,
        *,
        checkpoint: Checkpoint,
        staging: Staging,
        table: LakeTable,
        client: ClientConfig,
        state: SharedState,
        on_batch: Callable[[BatchResult], None],
    ) -> None:
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._staging = staging
        self._table = table
        self._client = client
        self._state = state
        self._on_batch = on_batch
        self._bad_runs: dict[TopicPartition, BadRuns] = {}
        self._dead = DeadLetterWriter(pipeline, client)
        self.failure: Exception | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Runs the batch and ends it."""
        try:
            self._on_batch(self._run(frame, batch_id))
        except Exception as error:
            self.failure = error
            raise

    def _run(self, frame: DataFrame, batch_id: int) -> BatchResult:
        began = time.monotonic()
        planned = self._checkpoint.batch(batch_id)
        if self._pipeline.path[0] == "fused" and self._committed(batch_id):
            manifest, reports = Manifest((), ()), []
        else:
            manifest = Manifest.of(frame.collect())
            reports = self._staging.take(planned.ranges)
        late_before_us = self._end(manifest, reports, planned, batch_id)
        late = [file for file in manifest.files if self._table.is_late(file, late_before_us)]
        self._commit_offsets(planned)
        self._staging.clear()
        return BatchResult(
            batch_id=batch_id,
            records=sum(report.records for report in reports),
            rows=sum(file.rows for file in manifest.files),
            late_rows=sum(file.rows for file in late),
            dead_letters=sum(len(r.dead) for r in reports) + len(manifest.dead),
            replays_skipped=sum(report.replays_skipped for report in reports),
            commit=Commit(
                self._table.version(), manifest.files, frozenset(file.partition for file in late)
            ),
            seconds=time.monotonic() - began,
            last_timestamp_ms=max((r.last_timestamp_ms for r in reports), default=-1),
            positions=planned.positions,
        )

    def _end(
        self,
        manifest: Manifest,
        reports: Sequence[RangeReport],
        planned: PlannedBatch,
        batch_id: int,
    ) -> int:
        """Dead letters first: the transaction is what says that the batch is done.

        Returns:
            the event time, microseconds, before which partitions were over.
        """
        dead = [letter for report in reports for letter in report.dead] + list(manifest.dead)
        try:
            self._check_limit(reports, len(dead))
            self._dead.write(dead)
        except Exception:
            self._table.discard(manifest.files)
            raise
        late_before_us = self._late_before_us()
        if self._committed(batch_id) or not self._table.commit(
            manifest.files, app_id=self._app_id, batch_id=batch_id
        ):
            self._table.discard(manifest.files)
        self._give_feedback(reports, planned)
        return late_before_us

    @cached_property
    def _app_id(self) -> str:
        """New when the checkpoint is, since batch ids begin anew with it."""
        return f"{self._pipeline.consumer_group}.{self._checkpoint.query_id()}"

    def _committed(self, batch_id: int) -> bool:
        latest = self._table.committed_batch(self._app_id)
        return latest is not None and latest >= batch_id

    def _check_limit(self, reports: Sequence[RangeReport], dead: int) -> None:
        limit = self._pipeline.dead_letter_limit
        records = sum(report.records for report in reports)
        if records >= limit.min_records and dead > limit.max_ratio * records:
            raise DeadLetterLimitError(
                self._pipeline.name,
                f"{dead} of {records} records of a batch are bad (max_ratio {limit.max_ratio}); "
                f"the first: {_first_reason(reports)}",
            )
        for report in reports:
            partition = report.range.partition
            joined = self._bad_runs.get(partition, BadRuns()).then(report.bad_runs)
            self._bad_runs[partition] = BadRuns(joined.trailing, *[joined.trailing] * 3)
            if joined.longest > limit.max_consecutive:
                raise DeadLetterLimitError(
                    self._pipeline.name,
                    f"{joined.longest} bad records in a row in {partition} (max_consecutive "
                    f"{limit.max_consecutive}); the first: {_first_reason([report])}",
                )

    def _late_before_us(self) -> int:
        event_us = self._state.feedback(self._checkpoint.uri).event_us
        newest = max(event_us.values(), default=0)
        return newest - int(self._pipeline.sink.lateness.total_seconds() * 1e6)

    def _give_feedback(self, reports: Sequence[RangeReport], planned: PlannedBatch) -> None:
        checkpoint = self._checkpoint.uri
        planned_ms = {topic: end.planned_ms for topic, end in planned.ends.items()}
        known = self._state.feedback(checkpoint).after(reports, planned_ms)
        self._state.write_feedback(checkpoint, known)

    def _commit_offsets(self, planned: PlannedBatch) -> None:
        """Shows the progress to Kafka's tools; nothing rests on it, so an outage may skip it."""
        try:
            group = self._pipeline.consumer_group
            commit_offsets(self._client, group, planned.positions, planned.epochs)
        except BrokerUnreachableError as error:
            _LOG.warning("%s: offsets not committed, the next batch will: %s", self._app_id, error)


class DeadLetterWriter:
    """Writes dead letters once, also when the first batch of a run is a repeated one."""

    def __init__(self, pipeline: Pipeline, client: ClientConfig) -> None:
        self._pipeline = pipeline
        self._client = client
        self._may_repeat = True

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Returns when every letter is in its topic on all in-sync replicas."""
        if letters and self._may_repeat:
            letters = self._not_written(letters)
        dead_letters.write_dead_letters(
            self._client, letters, self._pipeline.name, self._pipeline.version
        )
        self._may_repeat = False

    def _not_written(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """A letter of a derived row has no position to be known by; it may be written again."""
        positions = {one.position for one in letters}
        written = {
            one.letter.position
            for topic in {partition.topic for partition, _ in positions}
            for one in dead_letters.find_written(self._client, topic, self._pipeline.name)
            if one.letter.position in positions
        }
        return [one for one in letters if one.offset < 0 or one.position not in written]


def _first_reason(reports: Sequence[RangeReport]) -> str:
    for report in reports:
        for letter in report.dead:
            return f"{letter.partition} offset {letter.offset}: {letter.reason}, {letter.detail}"
    return "(a derived row)"
