"""Sends of tasks that wait in memory for the transaction of their record."""

from __future__ import annotations

from typing import Any

from headrace.errors import WorkerStateError
from headrace.kafka.write.record import ProducerRecord
from headrace.model.fault import is_a
from headrace.workers.exactly_once.output_topics import OutputTopics
from headrace.workers.lanes.attempt import CURRENT, OwnCall, Sends
from headrace.workers.lanes.sender import CallSender, Sent
from headrace.workers.lanes.sender import ProducerRecord as Sending
from headrace.workers.tasks.task import Headers

_MAX_PARTITION = 2**31 - 1


class HoldingSender(CallSender):
    """Keeps what tasks send with the call that sends it.

    A send is confirmed when its topic is known to take the record, which is before it is written:
    a task that awaits it would wait for a transaction that waits for the task.
    """

    def __init__(self, topics: OutputTopics) -> None:
        super().__init__()
        self._topics = topics

    async def close(self, seconds: float) -> None:
        """Does nothing: transactions are the consumers'."""

    def _sends(self, topic: str, *, is_here: bool) -> Sends:
        return open_sends(topic, is_here=is_here)

    def _start(self, record: Sending, headers: Headers, sent: Sent, *, is_here: bool) -> None:
        try:
            held = _record(*record, headers)
        except (TypeError, OverflowError) as invalid:
            self._on_loop(is_here, sent.end, invalid)
        else:
            self._on_loop(is_here, self._topics.check, held, sent)


def open_sends(topic: str, *, is_here: bool) -> Sends:
    """Returns the sends of the call that the running code belongs to.

    Args:
        topic: for messages.
        is_here: the code runs on the event loop, not on a thread.

    Raises:
        WorkerStateError: if it belongs to none, to one that has ended, or to ``accept``.
    """
    call = CURRENT.get(None)
    if call is None:
        raise WorkerStateError(
            f"sent to topic {topic} outside of a task's methods: with EXACTLY_ONCE it would be in "
            "no transaction"
        )
    if isinstance(call, OwnCall) and call.name == "accept":
        raise WorkerStateError(
            f"sent to topic {topic} in accept, which decides when a record is processed: with "
            "EXACTLY_ONCE it would be in no transaction; send it in process"
        )
    if call.expired_at and not is_here:
        # The thread continues with a record that timed out; its policy may send meanwhile.
        raise WorkerStateError(f"sent to topic {topic} by a call that took too long")
    sends = call.sending()
    sends.check_open(topic)
    return sends


def _record(
    topic: str,
    value: bytes | str | None,
    key: bytes | str | None,
    partition: int,
    headers: Headers,
) -> ProducerRecord:
    """Returns a record of what the client library takes.

    Raises:
        TypeError: if something is of a type that Kafka has not.
        OverflowError: if the partition is beyond 32 bits.
    """
    if not is_a(topic, str):
        raise TypeError(f"the topic is {topic!r}, and must be text")
    if not is_a(partition, int):
        raise TypeError(f"the partition is {partition!r}, and must be a whole number")
    if not -1 <= partition <= _MAX_PARTITION:
        raise OverflowError(f"there is no partition {partition}")
    in_bytes = tuple((name, _as_bytes(content)) for name, content in headers)
    return ProducerRecord(topic, _as_bytes(key), _as_bytes(value), in_bytes, partition)


def _as_bytes(content: Any) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"an instance of {type(content).__name__} is neither bytes nor text")
