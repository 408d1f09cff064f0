"""Why an instance that runs has nothing done, as far as brokers know it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.groups import describe_group

_SETTLED = frozenset({"stable", "empty", "none"})


class WaitReason:
    """Asks brokers, at intervals and on another thread.

    Attributes:
        reason: as of the last answer; empty: nothing is known that it waits for.
    """

    def __init__(self, group: str, instance: str, source: ClientConfig, own: ClientConfig) -> None:
        """Asks the cluster ``source`` about the group, and ``own`` about topics that are sent to.

        Args:
            group: that the instance is a member of.
            instance: its name, as the group knows it.
            source: the cluster with the topics that are read.
            own: the cluster that tasks send to.
        """
        self._group, self._instance, self._source, self._own = group, instance, source, own
        self._known: set[str] = set()
        self.reason = ""

    def is_settled(self, sent_to: Collection[str], *, has_partitions: bool) -> bool:
        """Returns whether there is nothing to ask."""
        return has_partitions and self._known.issuperset(sent_to)

    async def refresh(self, sent_to: Collection[str], *, has_partitions: bool) -> None:
        """Asks once. ``sent_to`` are the topics that tasks have sent to."""
        ask = self._missing_topics if has_partitions else self._rebalance
        try:
            self.reason = await asyncio.to_thread(ask, {*sent_to})
        except (HeadraceError, KafkaException):  # the instance itself reports what it meets
            self.reason = ""

    def _rebalance(self, _: set[str]) -> str:
        group = describe_group(self._source, self._group)
        names = (member.name for member in group.members)
        others = ", ".join(name for name in names if name != self._instance)
        if group.state in _SETTLED or not others:
            return ""
        return (
            f"waits for partitions while group {self._group} rebalances with {others}: a member "
            "that was killed is waited for until its session has expired, 45 s by default"
        )

    def _missing_topics(self, sent_to: set[str]) -> str:
        live = describe(self._own, sent_to - self._known)
        self._known |= live.keys()
        missing = ", ".join(sorted(sent_to - self._known))
        return f"sends wait for topics that do not exist: {missing}" if missing else ""
