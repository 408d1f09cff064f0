"""Makes the book of a pipeline: its ledger, hop by hop, and of a recount the rows of its tables."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import chain
from math import lcm

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.dead_letters.letters import dead_letters_topic, scan
from headrace.ledger.request import ReconcileRequest
from headrace.model import Topic, TopicPartition
from headrace.model.durations import microseconds
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.ledger.book import PipelineBook, by_times
from headrace.pipelines.ledger.comparison import HopComparison
from headrace.pipelines.ledger.completeness import CompletenessBounds
from headrace.pipelines.ledger.counting.letters import LetterRecount, recount_letters
from headrace.pipelines.ledger.counting.recount import Recount, added_counts, recount
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.ledger.entry import LedgerEntry
from headrace.pipelines.ledger.history import LedgerHistory, read_history, versions_in
from headrace.pipelines.ledger.reprocessed import ReprocessedFolder
from headrace.pipelines.sinks import sink_context
from headrace.pipelines.start.checkpoint import CheckpointFolder, CurrentCheckpoint, checkpoint_root
from headrace.pipelines.start.shared_targets import writers_beside
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config, lake_uri
from headrace.settings import Settings
from headrace.sinks.api import CountsEvents, Recountable, Sink, Snapshot
from headrace.storage import files as storage


def pipeline_book(
    project: LoadedProject, pipeline: Pipeline, request: ReconcileRequest
) -> PipelineBook:
    """Returns the book of a pipeline. Changes nothing.

    Raises:
        SinkError: if the ledger or a table can't be read.
        ServerStartError: if the lake is on the embedded HDFS, which is down.
    """
    with ExitStack() as opened:
        return _PipelineReconciliation(project, pipeline, request, opened).book()


class _PipelineReconciliation:
    """The comparison of one pipeline; ``opened`` closes the rows that it reads."""

    def __init__(
        self,
        project: LoadedProject,
        pipeline: Pipeline,
        request: ReconcileRequest,
        opened: ExitStack,
    ) -> None:
        self._project = project
        self._settings: Settings = project.settings
        self._pipeline = pipeline
        self._request = request
        self._not_recounted: list[str] = []
        self._lake = lake_uri(self._settings)
        sink, context = pipeline.sink, sink_context(self._settings, pipeline, pipeline.sink)
        # What the sink holds comes first: an entry is written before its batch is committed.
        self._rows = sink.snapshot(context) if isinstance(sink, Recountable) else None
        if self._rows is not None:
            opened.callback(self._rows.close)
        self._counts = None
        if isinstance(sink, CountsEvents) and request.recount:
            self._counts = sink.window_counts(context)
        snapshot = self._rows or self._counts
        self._is_snapshot = snapshot is not None
        self._recorded = snapshot or sink.position_store(context)
        self._side_rows: Snapshot | None = None
        self._opened = opened

    def book(self) -> PipelineBook:
        """Returns the book."""
        history = self._history()
        entries: Sequence[LedgerEntry] = history.entries
        if not entries:
            return PipelineBook(self._pipeline.name, 0, (), (), "it has no entries in the ledger")
        # A batch is in the side table before it is in the sink: what counts is there now.
        self._side_rows = self._side_snapshot() if self._request.recount else None
        if self._counts is not None:
            lengths = (entry.window_seconds for entry in entries)
            seconds = lcm(max(lengths), self._counts.seconds)
            entries = [entry.with_windows(seconds) for entry in entries]
        side_table = self._pipeline.side_table
        balance = HopComparison(
            entries,
            self._bounds(),
            history.reprocessed,
            has_steps=not self._pipeline.is_fused,
            is_join=self._pipeline.join is not None,
            recorded=history.recorded,
            unrecorded_parts=history.unrecorded_parts,
            counted_by={(topic.event_time, topic.event_id) for topic in self._counted_topics},
            side_table="" if side_table is None else side_table.label,
        )
        counted = self._recount(balance) if self._request.recount else None
        side_recount = self._recount_side_table(balance, entries) if self._request.recount else None
        shows, seconds = self._request.shows, balance.window_seconds
        windows = balance.windows(counted, side_recount)
        return PipelineBook(
            self._pipeline.name,
            seconds,
            tuple(balance.breaks()),
            tuple(window for window in windows if shows(window.start, seconds)),
            uncounted=balance.uncounted,
            letters=self._letters(balance) if self._request.recount else LetterRecount(),
            reprocessed=tuple(by_times(history.reprocessed)),
            not_recounted=tuple(self._not_recounted),
        )

    @property
    def _counted_topics(self) -> list[Topic]:
        return [source.topic for source in self._pipeline.counted_sources]

    @cached_property
    def _partitions(self) -> Mapping[str, Collection[TopicPartition]] | None:
        """The partitions of each topic; None: the brokers do not respond."""
        topics = [source.topic.name for source in self._pipeline.sources]
        try:
            live = describe(broker_config(self._settings), topics)
        except BrokerUnreachableError:
            return None
        return {topic: state.all_partitions for topic, state in live.items()}

    def _history(self) -> LedgerHistory:
        """Reads the entries that count by what the sink records at one moment."""
        place, options = (self._lake, self._pipeline.name), self._settings.storage
        counts = {topic: len(of_topic) for topic, of_topic in (self._partitions or {}).items()}
        if self._is_snapshot:
            return read_history(*place, self._versions, options, partitions=counts)
        known: set[str] = set()

        def noting(names: Collection[str]) -> Mapping[str, int]:
            known.update(names)
            return self._versions(names)

        read_history(*place, noting, options, partitions=counts)
        # An entry is written before its batch is committed.
        versions = versions_in(self._versions(known))
        return read_history(*place, versions, options, partitions=counts)

    def _versions(self, names: Collection[str]) -> Mapping[str, int]:
        return self._ended(names) if self._recorded is None else self._recorded.versions(names)

    def _ended(self, names: Collection[str]) -> Mapping[str, int]:
        """Returns the last batches that Spark has noted, by the ids that a sink would record.

        Of a checkpoint that is lost, all count; so do parts of a reprocessing that have an entry.
        """
        folder = CheckpointFolder(checkpoint_root(self._lake, self._settings), self._pipeline.name)
        ids = CheckpointIds(self._pipeline.name, 0)
        numbers = {name: name.removeprefix(f"{ids.newest}/") for name in names}
        ended = {name: _last_ended(folder, int(n)) for name, n in numbers.items() if n.isdigit()}
        if ids.reprocess not in names:
            return ended
        parts = ReprocessedFolder(self._lake, self._pipeline.name, self._settings.storage).numbers()
        return ended | {ids.reprocess: max(parts, default=0)}

    def _bounds(self) -> CompletenessBounds:
        allowed_us = microseconds(self._pipeline.allowed_lateness)
        if self._partitions is None:
            return CompletenessBounds(allowed_us)
        partitions = [*chain.from_iterable(self._partitions.values())]
        try:
            bounds = watermarks(broker_config(self._settings), partitions)
        except BrokerUnreachableError:
            return CompletenessBounds(allowed_us)
        ends = {partition: latest for partition, (_, latest) in bounds.items()}
        return CompletenessBounds(allowed_us, ends)

    def _recount(self, balance: HopComparison) -> Recount | None:
        """Counts the rows of the sink; None: it keeps none that can be counted."""
        sink, counts, rows = self._pipeline.sink, self._counts, self._rows
        if counts is None and not (isinstance(sink, Recountable) and sink.tells_rows_apart):
            self._not_recounted.append(sink.label)
            return None
        rule = self._rule(balance, sink)
        if isinstance(rule, Recount):
            return rule
        if counts is not None:
            return added_counts(counts, rule, balance.changed)
        if rows is not None:
            return recount(rows, rule, balance.changed)
        return Recount(failure=f"{sink.label} does not exist any more")

    def _recount_side_table(
        self, balance: HopComparison, entries: Sequence[LedgerEntry]
    ) -> Recount | None:
        """Counts the side table: its rows are events as they were read, whatever steps change.

        Returns None: there is none, or it keeps no rows that can be counted.
        """
        sink = self._pipeline.side_table
        if sink is None:
            return None
        if not (isinstance(sink, Recountable) and sink.keeps_each_row):
            self._not_recounted.append(sink.label)
            return None
        rule = self._rule(balance, sink)
        if isinstance(rule, Recount):
            return rule
        if self._side_rows is None:
            return Recount()  # nothing was written to it yet
        newest = max(entries, key=lambda entry: (entry.checkpoint, entry.last))
        name = CheckpointIds(self._pipeline.name, newest.checkpoint).batch
        if self._side_rows.versions([name]).get(name, -1) > newest.last:
            return Recount(
                failure=f"{sink.label} has rows of a batch that the sink does not hold yet: try "
                "again when the pipeline has committed it"
            )
        return recount(self._side_rows, rule)

    def _side_snapshot(self) -> Snapshot | None:
        sink = self._pipeline.side_table
        if sink is None or not isinstance(sink, Recountable) or not sink.keeps_each_row:
            return None
        rows = sink.snapshot(sink_context(self._settings, self._pipeline, sink))
        if rows is not None:
            self._opened.callback(rows.close)
        return rows

    def _rule(self, balance: HopComparison, sink: Sink) -> LedgerRule | Recount:
        """Returns by what the ledger counts the rows of a sink, or why they can't be compared."""
        if others := writers_beside(self._project, sink):
            return Recount(failure=f"{sink.label} has rows of {', '.join(others)} too")
        topics = self._counted_topics
        rules = {LedgerRule(balance.window_seconds, t.event_time, t.event_id) for t in topics}
        if len(rules) > 1:
            return Recount(failure="its topics have other fields for the event id or the time")
        return rules.pop()

    def _letters(self, balance: HopComparison) -> LetterRecount:
        if not any(balance.dead_letters().values()):
            return LetterRecount()
        topics = [source.topic.name for source in self._pipeline.sources]
        try:
            config = broker_config(self._settings)
            live = describe(config, [dead_letters_topic(topic) for topic in topics])
            partitions = [
                partition for topic in live.values() for partition in topic.all_partitions
            ]
            # A topic that does not begin at 0 has lost letters, and can't be compared.
            if any(earliest for earliest, _ in watermarks(config, partitions).values()):
                return LetterRecount(unknown="dead letters were deleted by their topic's retention")
            scanned = (letter for topic in topics for letter in scan(config, topic))
            own = (letter for letter in scanned if letter.pipeline == self._pipeline.name)
            return recount_letters(own, balance)
        except BrokerUnreachableError:
            return LetterRecount(unknown="Kafka does not respond, so dead letters are not counted")


def _last_ended(folder: CheckpointFolder, number: int) -> int:
    checkpoint = folder.checkpoint(CurrentCheckpoint(number, "", begun=True))
    return checkpoint.last_ended() if storage.exists(checkpoint.uri) else sys.maxsize
