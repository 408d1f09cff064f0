"""A standing query cannot be registered, changed, shown or answered."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError, RefusedError


@dataclass(eq=False)
class QueryTextError(FactsError):
    """The query is not valid.

    ``line`` and ``column`` are those of its text, from 1 on.
    """

    exit_code = 2
    line: int
    column: int
    reason: str


@dataclass(eq=False)
class QueryInvalidError(FactsError):
    """The query can't be registered with these values."""

    exit_code = 2
    field: str
    value: str
    reason: str


@dataclass(eq=False)
class QueryMissingError(FactsError):
    """There is no such registered query."""

    exit_code = 2
    query: str
    registry: str
    reason: str

    @property
    def remedy(self) -> str:
        return "`headrace query list` shows the ids."


@dataclass(eq=False)
class QueryIdTakenError(RefusedError):
    """A live query with another text has that id."""

    code = "QUERY_ID_TAKEN"
    query: str
    revision: int

    @property
    def remedy(self) -> str:
        return f"`headrace query update {self.query} TEXT` changes it; or choose another id."


@dataclass(eq=False)
class QueryUnmatchedError(RefusedError):
    """No pipeline matches the events of the topic with queries."""

    code = "QUERY_UNMATCHED"
    topic: str
    registry: str
    matched: str

    @property
    def remedy(self) -> str:
        pipeline = f'Pipeline("match-{self.topic}", {self.topic}, MatchQueries({self.registry}))'
        return f"Declare {pipeline}, with the names of your module."


@dataclass(eq=False)
class QueriesUnmatchedError(RefusedError):
    """No pipeline matches events with the standing queries."""

    code = "QUERIES_UNMATCHED"
    queries: str

    @property
    def remedy(self) -> str:
        pipeline = f'Pipeline("match-TOPIC", TOPIC, MatchQueries({self.queries}))'
        return f"Declare {pipeline} for each topic, with the names of your module."


@dataclass(eq=False)
class MatchedEventsRunningError(RefusedError):
    """Matched events are sent already, or their positions were committed by another process."""

    code = "MATCHED_EVENTS_RUNNING"
    runs_elsewhere = True
    name: str
    instance: str

    @property
    def remedy(self) -> str:
        return (
            f"One process sends the matched events of a topic: {self.instance} does, or has done "
            "so until now. Stop the one that is not wanted."
        )


@dataclass(eq=False)
class MatchedRecordsDeletedError(RefusedError):
    """Retention has deleted records before an instance took them: windows would lack events."""

    code = "MATCHED_RECORDS_DELETED"
    partition: str
    offset: int
    snapshots: str

    @property
    def remedy(self) -> str:
        return (
            f"To continue with the records that remain, delete those of {self.snapshots} with "
            "Kafka's kafka-delete-records.sh: windows that are open are lost, and results of "
            "records that remain are written again."
        )


@dataclass(eq=False)
class QueryTopicRecreatedError(RefusedError):
    """A topic of standing queries was deleted and created again since the snapshots were written.

    The offsets in the snapshots mean other records now.
    """

    code = "QUERY_TOPIC_RECREATED"
    topic: str
    snapshot_topic_id: str
    live_topic_id: str
    snapshots: str

    @property
    def remedy(self) -> str:
        return (
            "To continue with the new topic, stop all instances, and delete the records of all "
            f"partitions of {self.snapshots} with Kafka's kafka-delete-records.sh: windows that "
            "are open are lost, and results of records that remain are written again."
        )


@dataclass(eq=False)
class QueryTopicTruncatedError(RefusedError):
    """The log of a partition was cut: records that instances have taken are no longer in it."""

    code = "QUERY_TOPIC_TRUNCATED"
    partition: str
    cut_offset: int
    snapshots: str

    @property
    def remedy(self) -> str:
        return (
            "The brokers lost acknowledged records (unclean leader election, lost disk); what "
            f"follows offset {self.cut_offset} now was not taken. To take it, delete the records "
            f"of {self.snapshots} with Kafka's kafka-delete-records.sh: windows that are open are "
            "lost, and results of records that remain are written again."
        )


@dataclass(eq=False)
class MatchedEventsFormatError(RefusedError):
    """Matched events can't be sent of the records of this topic."""

    code = "MATCHED_EVENTS_FORMAT"
    topic: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "They are sent of topics whose records are JSON, one event each. Windows are made of "
            "all topics: leave MATCHED EVENTS EMIT out, or send the events on as JSON."
        )


@dataclass(eq=False)
class SnapshotDamagedError(RefusedError):
    """The snapshots of windows do not fit together: windows that are open would be lost."""

    code = "SNAPSHOT_DAMAGED"
    partition: str
    snapshots: int

    @property
    def remedy(self) -> str:
        return (
            "Delete the records of the partition with Kafka's kafka-delete-records.sh: an instance "
            "then starts at the first record of the matched topic, and writes results again that "
            "are still within its retention."
        )
