"""Sends of tasks: a record is done once all in-sync replicas have what was sent for it."""

from __future__ import annotations

import abc
import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.kafka.client.broker_errors import delivery_failure
from headrace.kafka.client.clients import ClientConfig, writer_tuning
from headrace.kafka.client.headers import check_header_names
from headrace.kafka.write.polled_producer import PolledProducer
from headrace.workers.lanes.attempt import CURRENT, Sends
from headrace.workers.tasks.task import Headers
from headrace.workers.timing import WorkerTiming

_TUNING = {"linger.ms": "1"}  # records wait for their sends; batches fill from many lanes

ProducerRecord: TypeAlias = tuple[str, bytes | None, bytes | None, int]
"""Topic, value, key, partition."""


class Sent:
    """A sent record. Awaiting it waits for all in-sync replicas, and raises what failed.

    No future is made where nothing awaits it: most tasks leave the waiting to the record's end.

    Attributes:
        sends: of the call that sent it; ``None``: none did.
    """

    __slots__ = ("_error", "_is_there", "_loop", "_waiters", "sends")

    def __init__(self, loop: asyncio.AbstractEventLoop, sends: Sends | None) -> None:
        self._loop, self.sends = loop, sends
        self._error: BaseException | None = None
        self._is_there = False
        self._waiters: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, None]:
        if not self._is_there:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error

    def report(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        """Takes the delivery report, as the client library gives it, on the event loop."""
        failure = delivery_failure(error, message)
        self.end(None if failure is None else _failed(message.topic(), failure))

    def end(self, error: BaseException | None) -> None:
        """Notes that it was acknowledged, or failed."""
        if self._is_there:
            return
        self._is_there, self._error = True, error
        if self.sends is not None:
            self.sends.confirm(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class CallSender(abc.ABC):
    """Counts what tasks send with the call that sends it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> Sent:
        """Sends a record; see :class:`headrace.workers.Send`. May be called from any thread.

        Raises:
            UnicodeEncodeError: if the name of a header is no text.
            WorkerStateError: as :meth:`_sends`.
        """
        if headers:
            check_header_names(headers)
        is_here = threading.get_ident() == self._thread
        sends = self._sends(topic, is_here=is_here)
        if sends is not None:
            sends.add()
        sent = Sent(self._loop, sends)
        self._start((topic, value, key, partition), headers, sent, is_here=is_here)
        return sent

    def _sends(self, topic: str, *, is_here: bool) -> Sends | None:  # noqa: ARG002 - of others
        """Returns the sends of the call that the running code belongs to; ``None``: of none.

        Args:
            topic: for messages.
            is_here: the code runs on the event loop, not on a thread.
        """
        call = CURRENT.get(None)
        return None if call is None else call.sending()

    @abc.abstractmethod
    def _start(
        self, record: ProducerRecord, headers: Headers, sent: Sent, *, is_here: bool
    ) -> None:
        """Takes a record, on whatever thread, and ends ``sent`` on the event loop."""

    def _on_loop(self, is_here: bool, react: Callable[..., object], *arguments: object) -> None:
        if is_here:
            react(*arguments)
        else:
            self._loop.call_soon_threadsafe(react, *arguments)


class Sender(CallSender):
    """One producer for all tasks of an instance. Made when something is sent first."""

    def __init__(self, config: ClientConfig, timing: WorkerTiming = WorkerTiming()) -> None:
        super().__init__()
        self._config, self._timing = config, timing
        self._producer: PolledProducer | None = None
        self._waiting: deque[tuple[ProducerRecord, Headers, Sent]] = deque()

    async def close(self, seconds: float) -> None:
        """Waits for what is on its way."""
        if self._producer is not None:
            await self._producer.close(seconds)

    def _start(
        self, record: ProducerRecord, headers: Headers, sent: Sent, *, is_here: bool
    ) -> None:
        # A task on a thread: the producer is used on the event loop alone.
        self._on_loop(is_here, self._produce, record, headers, sent)

    def _produce(self, record: ProducerRecord, headers: Headers, sent: Sent) -> None:
        """Hands a record over, after those that wait for room: in the order of the calls."""
        # After those that wait, even if there is room by now: sends of a task keep their order.
        if self._waiting or not self.hand_over(record, headers, sent):
            if not self._waiting:
                self._loop.call_later(self._timing.full_queue_seconds, self._produce_waiting)
            self._waiting.append((record, headers, sent))

    def _produce_waiting(self) -> None:
        while self._waiting:
            if not self.hand_over(*self._waiting[0]):
                self._loop.call_later(self._timing.full_queue_seconds, self._produce_waiting)
                return
            self._waiting.popleft()

    def hand_over(self, record: ProducerRecord, headers: Headers, sent: Sent) -> bool:
        """Gives a record to the producer, on the event loop; ``False``: it has no room.

        An event loop can't wait for room as ``kafka.write`` does.
        """
        try:
            self.enqueue(record, headers, sent)
        except BufferError:
            return False
        except KafkaException as error:
            sent.end(_failed(record[0], error.args[0]))
        except Exception as error:  # noqa: BLE001 - it is of the record that it was sent for
            sent.end(error)
        return True

    def enqueue(self, record: ProducerRecord, headers: Headers, sent: Sent) -> None:
        """Puts a record into the producer's queue; raises what the client library rejects it for.

        Raises:
            BufferError: if the queue is full.
            KafkaException: if the record is larger than every topic takes.
            TypeError: if its value, key, partition or a header is of a type that Kafka has not.
            OverflowError: if its partition is beyond 32 bits.
        """
        if self._producer is None:
            self._producer = PolledProducer(self._config, writer_tuning(self._config, _TUNING))
        self._producer.current.produce(*record, headers=list(headers), on_delivery=sent.report)
        self._producer.expect_reports()


def _failed(topic: str | None, error: KafkaError) -> KafkaException:
    """Returns an error that names the destination: the record it was sent for has another topic."""
    return KafkaException(KafkaError(error.code(), f"sent to topic {topic}: {error.str()}"))
