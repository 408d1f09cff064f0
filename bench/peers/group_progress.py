"""How far a system is, by what its consumer group has committed."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.driver import OnCommit
from bench.setup import Setup
from headrace.kafka.client import client_config, group_offsets
from headrace.model import TopicPartition
from headrace.settings.model import KafkaSettings

LOOK_SECONDS = 0.1


def follow_group(setup: Setup, group: str, on_commit: OnCommit, check: Callable[[], None]) -> None:
    """Tells of each commit that is seen, and returns once the whole topic is committed.

    ``check`` raises when nothing is to be waited for any more.
    """
    config = client_config(KafkaSettings(), setup.bootstrap)
    partitions = [TopicPartition(setup.topic, number) for number in range(setup.partitions)]
    committed = 0
    while committed < setup.messages:
        check()
        time.sleep(LOOK_SECONDS)
        now = sum(group_offsets(config, group, partitions).values())
        if now > committed:
            on_commit(now)
        committed = now
