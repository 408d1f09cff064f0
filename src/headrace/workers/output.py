"""How what an instance sends gets to its topics, and its offsets to its group."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.subscription import Membership
from headrace.workers.consumer_group.group_consumer import GroupConsumer
from headrace.workers.declaration import Worker
from headrace.workers.exactly_once.consumer import ExactlyOnceConsumer
from headrace.workers.exactly_once.dead_letters import HeldDeadLetters
from headrace.workers.exactly_once.output_topics import OutputTopics
from headrace.workers.exactly_once.sender import HoldingSender
from headrace.workers.failures.dead_letters import BatchedDeadLetters
from headrace.workers.failures.failures import DeadLetterOutput
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.sender import Sender
from headrace.workers.tasks.sent_events import encoding, event_topics
from headrace.workers.tasks.task import Headers, Send
from headrace.workers.timing import WorkerTiming

if TYPE_CHECKING:
    from headrace.project.loaded import LoadedProject
    from headrace.topics.spreads.placing import SpreadPlaces


@dataclass(frozen=True)
class WorkerOutput:
    """What differs between the guarantees of a worker.

    Attributes:
        send: of its tasks.
        retries: of its policy, to retry topics, which are beside the topics that are read.
        letters: takes its dead letters.
        consumer: makes a member of a group, which commits what is done.
        close: waits for what was sent, for so many seconds, before the last commit.
        places: of what tasks send to topics that take spreads; None: the project has none.
        sent_to: names of topics that tasks have sent to.
    """

    send: Send
    retries: Send
    letters: DeadLetterOutput
    consumer: Callable[[Membership, LaneContext, PartitionSet], GroupConsumer]
    close: Callable[[float], Awaitable[None]]
    places: SpreadPlaces | None = None
    sent_to: set[str] = field(default_factory=set)


MakeOutput: TypeAlias = Callable[[Worker, ClientConfig, ClientConfig, WorkerTiming], WorkerOutput]
"""What :func:`output_of` is."""


def output_of(
    worker: Worker, config: ClientConfig, source: ClientConfig, timing: WorkerTiming
) -> WorkerOutput:
    """Returns what an instance of ``worker`` sends and commits with, on the event loop.

    Args:
        worker: that is run. One that is exactly once has a single cluster.
        config: of the cluster that its tasks send to.
        source: of the cluster with the topics that are read.
        timing: of the instance.
    """
    output = (
        _exactly_once(worker, config, timing)
        if worker.is_exactly_once
        else _at_least_once(worker, config, source, timing)
    )
    if worker.spread_topics is None:
        send = encoding(output.send, worker.event_topics, output.sent_to)
        return replace(output, send=send)
    from headrace.topics.spreads.placing import SpreadPlaces

    places = SpreadPlaces(worker.spread_topics, config)
    send = encoding(placing(output.send, places), worker.event_topics, output.sent_to)
    return replace(output, send=send, places=places)


def with_project_topics(worker: Worker, project: LoadedProject) -> Worker:
    """Returns a worker that is about to run, whose sends follow what topics declare and apply.

    Raises:
        ExtraMissingError: if the extra of the format of such a topic is not installed.
    """
    worker = replace(worker, event_topics=event_topics(project))
    if not any(topic.takes_spreads for topic in project.topics.values()):
        return worker
    from headrace.topics.spreads.placing import SpreadTopics

    topics = [*project.topics.values()]
    return replace(worker, spread_topics=SpreadTopics.of(topics, project.settings))


def placing(send: Send, places: SpreadPlaces) -> Send:
    """Returns what sends records to the partitions that ``places`` says, unless one is named."""

    def placed(
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> Awaitable[None]:
        if partition == -1 and isinstance(topic, str):
            partition = places.partition(topic, value, key, headers)
        return send(topic, value, key=key, headers=headers, partition=partition)

    return placed


def _at_least_once(
    worker: Worker, config: ClientConfig, source: ClientConfig, timing: WorkerTiming
) -> WorkerOutput:
    sender = Sender(config, timing)
    retries = sender if source == config else Sender(source, timing)

    async def close(seconds: float) -> None:
        await asyncio.gather(*(sending.close(seconds) for sending in {sender, retries}))

    return WorkerOutput(
        sender.send,
        retries.send,
        BatchedDeadLetters(worker, source, timing),
        functools.partial(GroupConsumer, source),
        close,
    )


def _exactly_once(worker: Worker, config: ClientConfig, timing: WorkerTiming) -> WorkerOutput:
    topics = OutputTopics(config, timing)
    sender = HoldingSender(topics)

    def consumer(
        membership: Membership, context: LaneContext, assignments: PartitionSet
    ) -> GroupConsumer:
        return ExactlyOnceConsumer(
            config, membership, context, assignments, lambda: topics.batch_bytes
        )

    return WorkerOutput(
        sender.send,
        sender.send,
        HeldDeadLetters(worker, config, sender.send),
        consumer,
        sender.close,
    )
