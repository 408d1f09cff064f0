"""How far a system is, looked at from outside, the same way for all that commit by themselves."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial

from bench.driver import OnCommit
from bench.setup import Setup
from headrace.kafka.client.clients import client_config
from headrace.kafka.client.offsets import group_offsets
from headrace.model import TopicPartition
from headrace.settings.model import KafkaSettings

LOOK_SECONDS = 0.1
STALL_SECONDS = 120.0
_CHECK_EVERY = 20


def follow(
    look: Callable[[], int], messages: int, on_commit: OnCommit, check: Callable[[], None]
) -> None:
    """Tells of each commit that ``look`` sees, and returns once all ``messages`` are committed.

    ``check`` raises when there is nothing to wait for any more.

    Raises:
        RuntimeError: nothing was committed for long.
    """
    committed, since = 0, time.monotonic()
    for number in itertools.count():
        if number % _CHECK_EVERY == 0:
            check()
        now = look()
        if now > committed:
            on_commit(now)
            committed, since = now, time.monotonic()
        if committed >= messages:
            return
        if time.monotonic() - since > STALL_SECONDS:
            raise RuntimeError(f"{committed} of {messages}, and no more in {STALL_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)


def follow_group(setup: Setup, group: str, on_commit: OnCommit, check: Callable[[], None]) -> None:
    """:func:`follow` what a consumer group commits of the topic."""
    follow_groups(setup, [setup.topic], group, on_commit, check)


def follow_groups(
    setup: Setup,
    topics: Sequence[str],
    group: str,
    on_commit: OnCommit,
    check: Callable[[], None],
) -> None:
    """:func:`follow` what a consumer group commits of several topics of as many partitions."""
    config = client_config(KafkaSettings(), setup.bootstrap)
    partitions = [
        TopicPartition(topic, number) for topic in topics for number in range(setup.partitions)
    ]
    look = partial(_committed, config, group, partitions)
    follow(look, setup.messages, on_commit, check)


def _committed(config: dict[str, str], group: str, partitions: list[TopicPartition]) -> int:
    return sum(group_offsets(config, group, partitions).values())
