"""Refused starts: the offset to start at is no longer in the topic."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import RefusedError


@dataclass(eq=False)
class TopicMissingError(RefusedError):
    """The topic does not exist."""

    code = "TOPIC_MISSING"
    topic: str

    @property
    def remedy(self) -> str:
        return "Create the declared topics with `headrace apply`."


@dataclass(eq=False)
class PartitionMissingError(RefusedError):
    """The topic has no such partition."""

    code = "PARTITION_MISSING"
    topic: str
    partition: int
    partitions: int

    @property
    def remedy(self) -> str:
        return f"Its partitions are 0 to {self.partitions - 1}."


@dataclass(eq=False)
class TopicRecreatedError(RefusedError):
    """The topic was deleted and created again since the checkpoint was written."""

    code = "TOPIC_RECREATED"
    topic: str
    checkpoint_topic_id: str
    live_topic_id: str
    pipeline: str

    @property
    def remedy(self) -> str:
        return (
            "Its offsets mean other records now. To read the new topic from its start: "
            f"`headrace checkpoint reset {self.pipeline} --to earliest`."
        )


@dataclass(eq=False)
class ReferenceRecreatedError(RefusedError):
    """The topic of a reference was deleted and created again since the batch was planned."""

    code = "REFERENCE_RECREATED"
    topic: str
    planned_topic_id: str
    live_topic_id: str
    pipeline: str

    @property
    def remedy(self) -> str:
        return (
            "The records that the batch looks up are deleted. To plan it again with the new topic: "
            f"`headrace checkpoint reset {self.pipeline} --to table`."
        )


@dataclass(eq=False)
class TopicTruncatedError(RefusedError):
    """The topic was cut before the checkpoint: records that were read are no longer in it."""

    code = "TOPIC_TRUNCATED"
    topic: str
    partition: int
    checkpoint_offset: int
    cut_offset: int
    pipeline: str

    @property
    def remedy(self) -> str:
        return (
            "The brokers lost acknowledged records (unclean leader election, lost disk); what "
            f"follows offset {self.cut_offset} now was not read. To read it: "
            f"`headrace checkpoint reset {self.pipeline} --to committed`, which starts at the cut."
        )


@dataclass(eq=False)
class PartitionsAddedError(RefusedError):
    """The topic has got partitions, and the sink keeps the row of each key that is read last."""

    code = "PARTITIONS_ADDED"
    topic: str
    known_partitions: int
    partitions: int
    pipeline: str

    @property
    def remedy(self) -> str:
        return (
            "Keys have moved to other partitions, where later records may be read before earlier "
            "ones. Name `newest_by` in the sink; or, if all earlier records were read before the "
            "first later one was sent: "
            f"`headrace checkpoint reset {self.pipeline} --to table`."
        )


@dataclass(eq=False)
class KeyMovedError(RefusedError):
    """A record is not in the partition of its key, and the sink keeps the row that is read last.

    ``partitions``: how many the topic has.
    """

    code = "KEY_MOVED"
    partition: str
    offset: int
    partitions: int
    pipeline: str

    @property
    def remedy(self) -> str:
        return (
            "The topic has got partitions since then, or producers choose them in different ways "
            "(librdkafka needs `partitioner=murmur2_random` beside others): later records of a key "
            "may be read before earlier ones. Name `newest_by` in the sink, or read a topic into "
            "which all records were sent in one way."
        )


@dataclass(eq=False)
class RetentionPassedError(RefusedError):
    """Records that were not read yet have been deleted by retention."""

    code = "RETENTION_PASSED"
    topic: str
    partition: int
    checkpoint_offset: int
    earliest_offset: int
    pipeline: str

    @property
    def remedy(self) -> str:
        # Offsets, not records: in a compacted or transactional topic there are fewer records.
        lost = self.earliest_offset - self.checkpoint_offset
        return (
            f"{lost} offsets are gone. To accept the loss and continue at the earliest that "
            f"remains: `headrace checkpoint reset {self.pipeline} --to table --accept-loss`."
        )


@dataclass(eq=False)
class DeletesExpiredError(RefusedError):
    """Compaction may have removed tombstones that were not read yet."""

    code = "DELETES_EXPIRED"
    topic: str
    partition: int
    checkpoint_offset: int
    delete_retention_ms: int
    pipeline: str

    @property
    def remedy(self) -> str:
        reset = f"`headrace checkpoint reset {self.pipeline} --to"
        return (
            "The pipeline has not read to the end of the topic within its delete.retention.ms, and "
            "rows may stay whose keys were deleted. To have them right: empty the table, and "
            f"{reset} earliest`. To accept that some stay: {reset} table --accept-loss`, or where "
            f"the sink records no offsets {reset} committed`."
        )


@dataclass(eq=False)
class RecordsDeletedError(RefusedError):
    """Records of a planned batch were deleted by retention before they were read."""

    code = "RECORDS_DELETED"
    partition: str
    first_offset: int
    # Empty where the reader does not know it, as in a worker: its remedy then names no command.
    pipeline: str = ""

    @property
    def remedy(self) -> str:
        keep = "Give the topic a longer retention or more of it a batch"
        if not self.pipeline:
            return f"{keep}."
        reset = f"`headrace checkpoint reset {self.pipeline} --to table --accept-loss`"
        return f"{keep}; to accept the loss: {reset}."


@dataclass(eq=False)
class CommittedOffsetError(RefusedError):
    """The committed offset of the group is no longer in the topic."""

    code = "COMMITTED_OFFSET"
    group: str
    topic: str
    partition: int
    committed: int
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "Records were deleted unread, or the topic was recreated. "
            "`headrace workers reset NAME` starts at the earliest record."
        )


@dataclass(eq=False)
class StateRefusedError(RefusedError):
    """The state of a worker can't be used with the offsets of its group."""

    code = "WORKER_STATE"
    worker: str
    topic: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "`headrace workers reset NAME` deletes the state, and builds it again from the records "
            "that exist."
        )


@dataclass(eq=False)
class WorkerTruncatedError(RefusedError):
    """The topic was cut before a worker's position: records that it did are no longer in it."""

    code = "WORKER_TRUNCATED"
    topic: str
    partition: int
    cut_offset: int

    @property
    def remedy(self) -> str:
        return (
            "The brokers lost acknowledged records (unclean leader election, lost disk); what "
            f"follows offset {self.cut_offset} now was not processed. To process it: "
            "`headrace workers reset NAME --to committed`, which starts at the cut."
        )


@dataclass(eq=False)
class TopicChangeRefusedError(RefusedError):
    """A topic can't be changed into another one exactly.

    Attributes:
        to: the topic with the other number of partitions, or the other key.
    """

    code = "TOPIC_CHANGE_REFUSED"
    topic: str
    to: str
    reason: str
