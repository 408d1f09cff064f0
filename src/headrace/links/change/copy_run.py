"""Copies a topic into another one until it is at the end."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.errors import BrokerUnreachableError, TopicChangeRefusedError
from headrace.links.change.plan import ChangePlan
from headrace.links.change.standing import copied_partitions, has_own_records
from headrace.links.copying.instance import CopyInstance
from headrace.links.copying.status import CopyStatus
from headrace.links.timing import LinkTiming

_LOOK_SECONDS = 0.5


class ChangeCopy:
    """One run, which other runs may share. Used once."""

    def __init__(self, plan: ChangePlan, timing: LinkTiming = LinkTiming()) -> None:
        self._plan, self._instance = plan, CopyInstance(plan, timing)
        self._look_at = 0.0
        self._refusal: Exception | None = None

    def stop(self) -> None:
        """Ends it. May be called on any thread."""
        self._instance.stop()

    def run(self, observe: Callable[[CopyStatus], None]) -> None:
        """Copies until all is copied that the topic has, or :meth:`stop`.

        Raises:
            TopicChangeRefusedError: if a partition can't continue.
            AuthorizationError: if an ACL is missing.
            KafkaException: if an error of the cluster is permanent.
        """

        def look(_: None) -> None:
            if time.monotonic() < self._look_at:
                return
            self._look_at = time.monotonic() + _LOOK_SECONDS
            self._look()
            observe(self._instance.status())

        self._instance.run(look)
        observe(self._instance.status())
        if self._refusal is not None:
            raise self._refusal

    def _look(self) -> None:
        status = self._instance.status()
        if status.refused:
            partition, why = next(iter(status.refused.items()))
            reason = f"{partition} can't be copied further: {why}"
            self._refusal = TopicChangeRefusedError(self._plan.old, self._plan.new, reason)
            self._instance.stop()
        elif not status.reason and self._is_at_end():
            self._instance.stop()

    def _is_at_end(self) -> bool:
        """Returns whether all is copied, by whichever run: they share the partitions."""
        try:
            return not any(at.behind for at in copied_partitions(self._plan))
        except BrokerUnreachableError:  # the instance waits for them
            return False


def require_no_own_records(plan: ChangePlan) -> None:
    """Checks that nothing but copies is at the end of the new topic, where there is more to copy.

    Raises:
        TopicChangeRefusedError: if there is.
    """
    behind = sum(partition.behind for partition in copied_partitions(plan))
    if behind and has_own_records(plan):
        reason = (
            f"{plan.new} has records of its own already, and {behind:,} offsets of {plan.old} are "
            "not copied: behind those they would not be in their order. Stop what still writes "
            f"{plan.old}; --late copies them all the same"
        )
        raise TopicChangeRefusedError(plan.old, plan.new, reason)
