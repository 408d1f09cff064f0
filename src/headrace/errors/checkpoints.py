"""Refused starts: a checkpoint, a table and a pipeline do not fit each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors.base import HeadraceError, RefusedError


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
class ClaimLostError(HeadraceError):
    """Another driver of this pipeline may run it: this one commits nothing, and waits."""

    pipeline: str


@dataclass(eq=False)
class HandoverError(RefusedError):
    """The pipeline can't be handed over to a standby."""

    code = "HANDOVER_REFUSED"
    pipeline: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            f"Drivers are started with `headrace run {self.pipeline} --standby`; `headrace status` "
            "shows those of its machine, and how warm they are."
        )


@dataclass(eq=False)
class JoinStateError(RefusedError):
    """A file of a join's state is lost, damaged or of another form: events would find no match."""

    code = "JOIN_STATE_LOST"
    pipeline: str
    file: str

    @property
    def remedy(self) -> str:
        return (
            "Restore the whole folder of the checkpoint from a backup. Or start with an empty "
            f"state: `headrace checkpoint reset {self.pipeline} --to table`; later events that "
            "waited are lost then, and new ones do not find what was read before."
        )


@dataclass(eq=False)
class CheckpointLostError(RefusedError):
    """The pipeline has run before, but its checkpoint is missing.

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
                f"To continue exactly where the table stands: {reset} --to table` (state of "
                "stateful steps starts over). A checkpoint from a backup is compared with the "
                "table first."
            )
        return (
            f"The table has nothing of it. To read all that the topics hold: {reset} --to "
            f"earliest`; to continue at the group's committed offsets: {reset} --to committed`."
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
            "To continue exactly where the table stands: "
            f"`headrace checkpoint reset {self.pipeline} --to table` (state of stateful steps "
            "starts over)."
        )


@dataclass(eq=False)
class TableBehindCheckpointError(RefusedError):
    """The table lacks rows that the pipeline has written.

    ``in_table``: whether the table records where it stands. ``reprocess``: commands
    that bring back what was reprocessed since; empty: nothing was.
    """

    code = "TABLE_BEHIND_CHECKPOINT"
    pipeline: str
    partition: str
    checkpoint_offset: int | str
    table_offset: int | str
    reason: str = ""
    in_table: bool = field(default=True, repr=False)
    reprocess: str = field(default="", repr=False)

    @property
    def remedy(self) -> str:
        reset = f"`headrace checkpoint reset {self.pipeline}"
        if self.in_table:
            text = (
                "The table is an older copy, or was restored. To write again what it lacks: "
                f"{reset} --to table` (state of stateful steps starts over)."
            )
            if self.reprocess:
                return (
                    f"{text} What was reprocessed since, reprocess again after that: "
                    f"{self.reprocess}."
                )
            return text
        return (
            "The table was deleted, or is another one. Restore it; or let all that the topics hold "
            f"land in it: {reset} --to earliest`; or only what is new: {reset} --to committed`."
        )


@dataclass(eq=False)
class QueryChangedError(RefusedError):
    """The checkpoint was written by another query: its offsets or state have another meaning.

    ``in_table``: whether the table records where it stands.
    """

    code = "QUERY_CHANGED"
    pipeline: str
    part: str
    recorded: str
    declared: str
    in_table: bool = field(default=True, repr=False)

    @property
    def remedy(self) -> str:
        reset = f"headrace checkpoint reset {self.pipeline} --to"
        place = "table` continues where the table stands"
        if not self.in_table:
            place = "committed` continues at the group's committed offsets"
        return (
            f"Undo the change. Or start with an empty state: `{reset} {place}; keys that steps "
            "remember are forgotten, and windows and joins that are open lose the rows they have "
            "(a topic that is added has no offsets to continue at: declare a pipeline of its own "
            "for it). Or give the pipeline a new name, and it reads its topics from where they are "
            "declared to start."
        )


@dataclass(eq=False)
class NothingCommittedError(RefusedError):
    """There are no offsets to start at."""

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
class CommitUnknownError(RefusedError):
    """It can't be known whether the table has the rows of a batch.

    ``rows`` of them were about to be committed at ``prepared``, and the driver died. BigQuery has
    forgotten their streams since. ``state`` is the table that keeps the pipeline's positions.
    """

    code = "COMMIT_UNKNOWN"
    table: str
    rows: int
    prepared: str
    state: str

    @property
    def remedy(self) -> str:
        return (
            f"Look whether {self.table} has rows of that time, and say so: "
            f"`bq update --set_label headrace_batch:committed {self.state}`, or "
            "`headrace_batch:void` if it has none: then they are written again."
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
