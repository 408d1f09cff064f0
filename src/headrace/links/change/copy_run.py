"""Copies a topic into another one, up to the end that it had at the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from headrace.errors import (
    BrokerUnreachableError,
    LinkNoLeaderError,
    RefusedError,
    TopicChangeRefusedError,
)
from headrace.links.change.plan import ChangePlan, NewRecords, read_new, require_last_copies
from headrace.links.change.standing import copied_partitions
from headrace.links.copying.carrier import CopyCarrier
from headrace.links.copying.instance import CopyInstance
from headrace.links.copying.positions import committed_positions
from headrace.links.copying.status import CopyStatus
from headrace.links.timing import LinkTiming
from headrace.model import TopicPartition

_ASK_SECONDS = 2.0
_SHOW_SECONDS = 0.5


class ChangeCopy:
    """One run, which other runs may share. Used once.

    Args:
        plan: what is copied.
        late: copy also behind records that the new topic has of its own.
        timing: of the instance.
    """

    def __init__(
        self, plan: ChangePlan, timing: LinkTiming = LinkTiming(), *, late: bool = False
    ) -> None:
        self._plan, self._timing, self._late = plan, timing, late
        self._stopping = threading.Event()
        self._ends: Mapping[TopicPartition, int] = {}
        self._show_at = self._ask_at = 0.0
        self._refusal: Exception | None = None
        self.is_whole = False
        """Whether it has copied all that the topic had at its start."""

    def stop(self) -> None:
        """Ends it. May be called on any thread."""
        self._stopping.set()

    def run(self, observe: Callable[[CopyStatus], None]) -> None:
        """Copies until all is copied that the topic has at the start, or :meth:`stop`.

        Raises:
            TopicChangeRefusedError: if a partition can't continue, or the new topic has records
                of its own, and these are not to be copied ``late``.
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer at the start.
            KafkaException: if an error of the cluster is permanent.
        """
        plan = self._prepared()
        if plan is None:
            return
        with plan.following():
            self._copy(CopyInstance(plan, self._timing), observe)
        if self._refusal is not None:
            raise self._refusal

    def _copy(self, instance: CopyInstance, observe: Callable[[CopyStatus], None]) -> None:

        def look(_: None) -> None:
            self._look(instance)
            if self._stopping.is_set():
                instance.stop()
            if time.monotonic() >= self._show_at:
                self._show_at = time.monotonic() + _SHOW_SECONDS
                observe(instance.status())

        instance.run(look)
        observe(instance.status())

    def _prepared(self) -> ChangePlan | None:
        """Returns the plan, which knows what the new topic has; None: it was stopped.

        All of the new topic is read before the instance joins its group: a member that reads for
        an hour would be taken for dead.
        """
        parts = copied_partitions(self._plan)
        self._ends = {TopicPartition(self._plan.old, at.partition): at.end for at in parts}
        is_unknown = any(at.copied is None for at in parts)
        behind = sum(at.behind for at in parts)
        if not is_unknown and (self._late or not behind):
            return self._plan
        new = read_new(self._plan, self._stopping.is_set)
        if self._stopping.is_set():
            return None
        if behind and not self._late:
            self._require_no_own(new, behind)
        if not is_unknown:
            return self._plan
        return replace(self._plan, known_copies=require_last_copies(self._plan, new))

    def _require_no_own(self, new: NewRecords, behind: int) -> None:
        if not new.own:
            return
        raise self._refused(
            f"{self._plan.new} has {new.own:,} records of its own already, and {behind:,} offsets "
            f"of {self._plan.old} are not copied: behind those they would not be in their order. "
            f"Stop what still writes {self._plan.old}; --late copies them all the same"
        )

    def _refused(self, reason: str) -> TopicChangeRefusedError:
        return TopicChangeRefusedError(self._plan.old, self._plan.new, reason)

    def _look(self, instance: CopyInstance) -> None:
        refusals = lasting(instance.progress.refused)
        if refusals:
            partition, why = next(iter(sorted(refusals.items())))
            self._refusal = self._refused(f"{partition.path} can't be copied further: {why}")
            self._stopping.set()
        elif self._is_at_end(instance):
            self.is_whole = True
            self._stopping.set()

    def _is_at_end(self, instance: CopyInstance) -> bool:
        """Returns whether all is copied, by whichever run: they share the partitions."""
        carrier = instance.carrier
        own = carrier.committed if isinstance(carrier, CopyCarrier) else {}
        left = {at for at, end in self._ends.items() if own.get(at, -1) < end}
        if not left or own.keys() & left:
            return not left
        # Those of other runs. Not within a transaction, which may take ten seconds.
        is_open = isinstance(carrier, CopyCarrier) and carrier.has_uncommitted
        if is_open or instance.progress.unreachable or time.monotonic() < self._ask_at:
            return False
        self._ask_at = time.monotonic() + _ASK_SECONDS
        return self._are_copied(left)

    def _are_copied(self, partitions: Collection[TopicPartition]) -> bool:
        try:
            positions = committed_positions(self._plan, partitions)
        except BrokerUnreachableError:  # the instance waits for them
            return False
        return all(
            position is not None and position.offset >= self._ends[at]
            for at, position in positions.items()
        )


def lasting(
    refusals: Mapping[TopicPartition, RefusedError],
) -> dict[TopicPartition, RefusedError]:
    """Returns the refusals that do not pass by themselves, as that of a missing leader does."""
    return {at: why for at, why in refusals.items() if not isinstance(why, LinkNoLeaderError)}
