"""Checks before a pipeline starts: its checkpoint, its sink, its topics."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headrace.errors import (
    BrokerUnreachableError,
    CheckpointBehindTableError,
    CheckpointLostError,
    QueryChangedError,
    TableBehindCheckpointError,
    TopicMissingError,
)
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.cluster import Cluster
from headrace.pipelines.batch.positions import (
    CheckpointIds,
    newest_checkpoint,
    reprocess_command,
    taken_back,
)
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.reprocessed import ReprocessedFolder
from headrace.pipelines.source.planning.initial import read_initial
from headrace.pipelines.start.checkpoint import (
    FROM_TABLE,
    Checkpoint,
    CheckpointFolder,
    CurrentCheckpoint,
)
from headrace.pipelines.start.query_record import QueryRecord, read_query, write_query
from headrace.pipelines.start.resets import Resets
from headrace.sinks.api import PositionStore

_LOG = logging.getLogger("headrace.pipelines")


def check_topics(client: ClientConfig, pipeline: Pipeline) -> None:
    """Looks for the topics, also those of dead letters, which may be needed only months later.

    While the cluster does not answer it is not known, and the pipeline waits for it anyway.

    Raises:
        TopicMissingError: if one is missing.
    """
    topics = [source.topic for source in pipeline.sources]
    names = [*(topic.name for topic in topics), *(topic.dead_letters for topic in topics)]
    try:
        present = describe(client, names)
    except BrokerUnreachableError as error:
        _LOG.warning("%s: cannot check that the topics exist: %s", pipeline.name, error)
        return
    for name in names:
        if name not in present:
            raise TopicMissingError(name)


@dataclass(frozen=True)
class StartChecks:
    """Finds the checkpoint to continue, and refuses what does not fit together.

    Attributes:
        pipeline: the one to start.
        root: of the checkpoints.
        cluster: where its topics are.
        positions: what its sink records of it; None: nothing.
        reprocessed: the ledger's entries of what was reprocessed.
        ledger: those of batches.
    """

    pipeline: Pipeline
    root: str
    cluster: Cluster
    positions: PositionStore | None
    reprocessed: ReprocessedFolder
    ledger: LedgerFolder

    @property
    def folder(self) -> CheckpointFolder:
        """All checkpoints of the pipeline."""
        return CheckpointFolder(self.root, self.pipeline.name)

    def checkpoint(self) -> CurrentCheckpoint:
        """Returns the checkpoint to continue; a new one only where there was none before.

        Raises:
            CheckpointLostError: if there are traces of a checkpoint that was lost.
            CheckpointBehindTableError: if the sink knows a newer checkpoint, or another driver has
                committed since this one was reset to the table.
            TableBehindCheckpointError: if a RESTORE or replacement has taken rows from the table.
        """
        current = self.folder.current()
        ids = CheckpointIds(self.pipeline.name, current.number if current else 1)
        newest = newest_checkpoint(self.pipeline.name, self.positions)
        if current is None:
            self._refuse_lost(newest)
            return CurrentCheckpoint(1, "", begun=False)
        self._refuse_incomplete(current, newest)
        ids.check_newest(newest)
        if self.positions is not None:
            # The sink has rows of this checkpoint, which a RESTORE may have removed. Otherwise the
            # checkpoint has committed nothing, and no other driver may have committed since its
            # reset.
            if newest == current.number:
                self._refuse_restored(self.positions, ids)
            else:
                self._refuse_stale(self.positions, current)
        return current

    def check_query(self, checkpoint: Checkpoint, query: QueryRecord) -> None:
        """Compares a query with the one that wrote its checkpoint, and records it if there is none.

        It is recorded before Spark writes anything. Until a batch is planned there is no state, and
        the query may be another one.

        Raises:
            QueryChangedError: if offsets or state would be taken for those of something else.
        """
        recorded = read_query(checkpoint.uri)
        if recorded is not None and checkpoint.has_batches():
            difference = recorded.difference(query)
            if difference is not None:
                in_table = self.positions is not None
                raise QueryChangedError(self.pipeline.name, *difference, in_table)
        if recorded != query:
            write_query(checkpoint.uri, query)

    @property
    def resets(self) -> Resets:
        """What begins new checkpoints of the pipeline."""
        return Resets(self.pipeline, self.folder, self.positions, self.cluster, ledger=self.ledger)

    def number_to_take_over(self) -> int | None:
        """Returns the number of a checkpoint that may begin where the sink stands.

        None where none may: the sink records nothing of the pipeline, or an operator has reset the
        pipeline since.

        Raises:
            TableBehindCheckpointError: if a RESTORE or replacement has taken rows from the table.
        """
        newest = newest_checkpoint(self.pipeline.name, self.positions)
        current = self.folder.current()
        if newest is None or self.positions is None:
            return None
        if current is not None and current.number > newest:
            return None
        self._refuse_restored(self.positions, CheckpointIds(self.pipeline.name, newest))
        return self.resets.following()

    def _refuse_lost(self, newest: int | None) -> None:
        # Evidence in the table first: only with it can the remedy be a reset to the table.
        if newest is not None:
            raise self._lost(f"the table has rows of its checkpoint {newest}", in_table=True)
        first = self.folder.checkpoint(CurrentCheckpoint(1, "", begun=False))
        # A query that Spark refuses leaves its description, and neither metadata nor batches.
        if first.exists() or first.has_batches():
            raise self._lost("current.json is missing, and checkpoint 1 exists", in_table=False)
        group = self.pipeline.consumer_group
        for source in self.pipeline.sources:
            if self.cluster.committed(group, source.topic.name):
                evidence = f"consumer group {group} has offsets of {source.topic.name}"
                raise self._lost(evidence, in_table=False)

    def _refuse_incomplete(self, current: CurrentCheckpoint, newest: int | None) -> None:
        checkpoint = self.folder.checkpoint(current)
        if current.begun and not checkpoint.exists():
            evidence = f"{self.folder.uri}/current.json says that it was started"
            raise self._lost(evidence, in_table=newest is not None)
        if current.start != FROM_TABLE:
            return
        for source in self.pipeline.sources:
            if read_initial(checkpoint.uri, source.topic.name) is None:
                name = source.topic.name
                evidence = f"it was reset to the table, its position of {name} is missing"
                raise self._lost(evidence, in_table=True)

    def _refuse_stale(self, positions: PositionStore, current: CurrentCheckpoint) -> None:
        expected = current.expected_versions
        recorded = positions.versions(expected) if expected else {}
        if any(recorded.get(app_id) != version for app_id, version in expected.items()):
            reason = "another driver has committed since the reset to the table"
            raise CheckpointBehindTableError(self.pipeline.name, "", "", "", reason)
        if expected and self.resets.held() != current.held:
            reason = "the table was restored or replaced since the reset"
            raise CheckpointBehindTableError(self.pipeline.name, "", "", "", reason)

    def _lost(self, evidence: str, *, in_table: bool) -> CheckpointLostError:
        return CheckpointLostError(self.pipeline.name, self.folder.uri, evidence, in_table)

    def _refuse_restored(self, positions: PositionStore, ids: CheckpointIds) -> None:
        restored = taken_back(ids, positions)
        if restored is None:
            return
        names = (ids.batch, ids.reprocess)
        recorded, before = restored.to.versions(names), restored.at.versions(names)
        # With the same last batch before and after the RESTORE, only reprocessed rows are missing.
        has_batches = recorded.get(ids.batch) == before.get(ids.batch)
        rows = "rows that were reprocessed" if has_batches else "rows of its batches"
        parts = range(recorded.get(ids.reprocess, 0) + 1, before.get(ids.reprocess, 0) + 1)
        raise TableBehindCheckpointError(
            self.pipeline.name,
            *("", "", ""),
            f"a RESTORE or replacement of the table has taken {rows} from it",
            in_table=newest_checkpoint(self.pipeline.name, restored.to) is not None,
            reprocess=self._commands(parts),
        )

    def _commands(self, parts: range) -> str:
        """Returns the commands that reprocess the time ranges of ``parts``."""
        entries = [e for e in self.reprocessed.counted(parts.stop - 1) if e.number in parts]
        ranges = {f"--from {e.start.isoformat()} --to {e.end.isoformat()}": None for e in entries}
        # The times of some parts are unknown, so the command is shown without times.
        if len(entries) < len(parts):
            return reprocess_command(self.pipeline.name)
        return ", ".join(reprocess_command(self.pipeline.name, read) for read in ranges)
