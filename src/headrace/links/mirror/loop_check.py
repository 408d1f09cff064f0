"""Whether records that a mirror skips as loops have been at its site, as their origins say."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.origin import Origin, origins
from headrace.model import TopicPartition

if TYPE_CHECKING:
    from headrace.links.copying.plan import CopyPlan

_LOG = logging.getLogger("headrace.links")
_LOOK_SECONDS = 60.0  # a site with many loops would ask for each of them


class LoopCheck:
    """Logs an error where the cluster of a mirror never had a record that it skips.

    Another site has the name of this one then, and its records are lost here. Of each topic of the
    source, one record in a minute is looked up.
    """

    def __init__(self, plan: CopyPlan) -> None:
        self._plan = plan
        self._look_at: dict[str, float] = {}

    def look(
        self, source: TopicPartition, offset: int, headers: Collection[tuple[str, bytes | None]]
    ) -> None:
        """Takes a record that is skipped."""
        now = time.monotonic()
        if now < self._look_at.get(source.topic, now):
            return
        self._look_at[source.topic] = now + _LOOK_SECONDS
        site, plan = self._plan.target_site, self._plan
        foreign = [at for at in origins(headers) if at.site == site and not self._has(at)]
        for at in foreign[:1]:
            _LOG.error(
                "%s: offset %d of %s at %s is skipped: by its origin %s/%s/%d/%d it has been at "
                "%s, which has no such record. Unless %s was deleted or recreated here, another "
                "site is named %s, too, and its records are lost: give each site a project.site "
                "of its own",
                plan.name,
                offset,
                source,
                plan.source_site,
                *(at.site, at.topic, at.partition, at.offset),
                site,
                at.topic,
                site,
            )

    def _has(self, origin: Origin) -> bool:
        """Returns whether the partition has come so far, or it is not known."""
        place = TopicPartition(origin.topic, origin.partition)
        try:
            live = describe(self._plan.target, [origin.topic]).get(origin.topic)
            if live is None or origin.partition >= live.partitions:
                return False
            return origin.offset < high_watermarks(self._plan.target, [place])[place]
        except (HeadraceError, KafkaException):  # the mirror itself may not need that topic
            return True
