"""Sends the lines of a file or stream to a topic as events."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headrace.errors import LinkTargetError, SpreadsUnknownError, TopicMissingError
from headrace.events import BYTE_ORDER_MARK
from headrace.events.avro.container import ContainerRecord, container_records
from headrace.ingest.events.validation import Accepted, largest_message
from headrace.ingest.http.problem import ProblemDetails
from headrace.ingest.producing.event_producer import Headers, TopicCheck
from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.write.counting_producer import CountingProducer
from headrace.model import EventSchema
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config

MAX_SHOWN_CHARACTERS = 200
MAX_NAMED_LINES = 20
# Larger than a pipe (64 KiB), so that a read takes all that it holds.
_CHUNK_BYTES = 1 << 18
_WAIT_SECONDS = 0.2  # a stop is noticed within it
_PROGRESS_SECONDS = 0.2

ProduceState: TypeAlias = Literal["finished", "rejected", "interrupted", "failed"]
"""What ended it: the last line, a rejected line, a signal, or an event that Kafka rejected."""


@dataclass(frozen=True)
class ProduceOptions:
    """How lines become records.

    Attributes:
        skip_invalid: leave rejected lines out, instead of ending at the first one.
        unchecked: send each line as it is, valid or not, without a key.
        account: whose events these are: their key where the topic declares none.
        headers: headers of every record.
        is_avro: the file is a container file of Avro, and each of its records a line.
    """

    skip_invalid: bool = False
    unchecked: bool = False
    account: str = ""
    headers: Headers = ()
    is_avro: bool = False


@dataclass(frozen=True)
class RejectedLine:
    """A line that is no event of the topic.

    Attributes:
        line: its number, from 1; of an Avro file that of the record, or of the first of a block.
        reason: a stable code, those of ``headrace ingest``.
        detail: a sentence that names the field, what it holds and what was expected.
        text: the line, as far as 200 characters.
    """

    event: str = field(default="rejected", init=False)
    line: int
    reason: str
    detail: str
    text: str


@dataclass(frozen=True)
class ProduceProgress:
    """How far a call of :func:`produce_lines` is.

    Attributes:
        lines: number of lines that were read, empty ones included.
        sent: number of events that all in-sync replicas have.
        rejected: number of rejected lines.
    """

    lines: int
    sent: int
    rejected: int


@dataclass(frozen=True)
class ProduceResult:
    """What became of the lines.

    Attributes:
        topic: name of the topic.
        state: what ended it.
        lines: number of lines that were read, empty ones included; the rest was not read.
        sent: number of events that all in-sync replicas have.
        rejected: number of lines that are no events of the topic; none of them was sent.
        reasons: number of rejected lines by reason.
        not_acknowledged: number of events that Kafka did not acknowledge; they may be in the topic
            or not.
        failed_lines: numbers of their lines, the first 20.
        failure: why Kafka did not acknowledge the first of them.
    """

    event: str = field(default="ended", init=False)
    topic: str
    state: ProduceState
    lines: int
    sent: int
    rejected: int
    reasons: Mapping[str, int]
    not_acknowledged: int = 0
    failed_lines: tuple[int, ...] = ()
    failure: str = ""


Lines: TypeAlias = Iterator[bytes | None] | Iterator[ContainerRecord]
ObserveProduce: TypeAlias = Callable[[ProduceProgress | RejectedLine], None]
"""Called with each rejected line, and with the progress a few times a second."""


def produce_lines(
    project: LoadedProject,
    topic: str,
    file: int,
    options: ProduceOptions,
    *,
    observe: ObserveProduce,
    stop: threading.Event,
) -> ProduceResult:
    """Sends each line of a file or stream as an event; returns when Kafka has answered for all.

    Order: events of one key arrive in the order of their lines.
    Delivery: an event counts as sent once all in-sync replicas have it. When one is not
    acknowledged, no further line is read, and the result names its line. A process that is killed
    leaves unknown which of its last lines were sent; a second run repeats their event ids.
    Bad input: a line that ``headrace ingest`` would reject is not sent. Ids that repeat are not
    looked for. Empty lines are left out.
    Line ends: of a raw topic, and with ``unchecked``, nothing but the newline (LF) is cut off, and
    lines of white space are records. Of JSON events the CR of a CR LF goes too, and a byte order
    mark before the first line; lines of white space are left out.

    Args:
        project: declares the topic.
        topic: its name.
        file: descriptor of the file.
        options: how lines become records.
        observe: called with progress and rejected lines.
        stop: once it is set, no further line is read.

    Raises:
        LinkTargetError: if a link writes the topic.
        ExtraMissingError: if what reads an Avro file is not installed.
        TopicMissingError: if the topic is not in Kafka.
        EnvelopeTopicError: if the topic's records are envelopes, and lines are not ``unchecked``.
        RecordKeyMissingError: if the topic is compacted, and lines that are checked hold no key.
        AccountMissingError: if the topic places events by account, and none is named.
        SpreadsUnknownError: if it is not known which spreads count for an event.
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    for kind, writer in project.writers(topic):
        if kind.is_sole_writer:
            raise LinkTargetError(topic, f"{kind.label} {writer.name}")
    config = broker_config(project.settings)
    # Sending to a missing topic may create it, with the defaults of the brokers.
    if not describe(config, [topic]):
        raise TopicMissingError(topic)
    declared = project.topics[topic]
    run = _Run(project, topic, options, CountingProducer(config, largest_message(declared)))
    lines = read_records(file, declared.schema, stop) if options.is_avro else read_lines(file, stop)
    return run.run(lines, observe, stop)


def read_lines(file: int, stop: threading.Event) -> Iterator[bytes | None]:
    """Reads a file descriptor to its end, or until ``stop`` is set, line by line.

    Gives ``None`` whenever nothing came for 0.2 seconds. Newlines (LF) are taken off, and nothing
    else: a CR before one may be the last byte of a payload. What follows the last newline counts
    as a line, unless ``stop`` was set. Of a line longer than 64 MiB, which no topic takes, the rest
    is dropped.
    """
    # select() takes no file descriptor above 1,023.
    poll = select.poll()
    poll.register(file, select.POLLIN)
    line = bytearray()  # appended to: joining chunks again for each would be quadratic
    while not stop.is_set():
        if not poll.poll(1_000 * _WAIT_SECONDS):
            yield None
            continue
        chunk = os.read(file, _CHUNK_BYTES)
        if not chunk:
            break
        *ends, start = chunk.split(b"\n")
        for end in ends:
            if stop.is_set():
                return
            # One byte more than any topic takes: enough to be rejected as too large.
            line += end[: MAX_MESSAGE_BYTES + 1 - len(line)]
            yield bytes(line)
            line.clear()
        line += start[: MAX_MESSAGE_BYTES + 1 - len(line)]
    if line and not stop.is_set():
        yield bytes(line)


def read_records(
    file: int, schema: EventSchema | None, stop: threading.Event
) -> Iterator[ContainerRecord]:
    """Yields the records of an Avro file to its end, or until ``stop`` is set, as lines.

    A block that can't be read is one of them, and counts as many as it says that it has.

    Raises:
        ExtraMissingError: if what reads it is not installed.
    """
    with os.fdopen(file, "rb", closefd=False) as stream:
        for record in container_records(stream, schema):
            if stop.is_set():
                return
            yield record


class _Run:
    """One call of :func:`produce_lines`."""

    def __init__(
        self, project: LoadedProject, topic: str, options: ProduceOptions, sender: CountingProducer
    ) -> None:
        self._topic, self._options, self._sender = topic, options, sender
        declared = project.topics[topic]
        self._check = (
            None if options.unchecked else TopicCheck(declared, project.settings, options.account)
        )
        # Where lines need not be JSON, white space is content.
        self._is_raw = options.unchecked or declared.event is None
        self._lines = 0
        self._reasons: Counter[str] = Counter()

    def run(self, lines: Lines, observe: ObserveProduce, stop: threading.Event) -> ProduceResult:
        try:
            state = self._send_all(lines, observe)
        except SpreadsUnknownError:
            self._answered("failed", observe, stop)  # for what came before
            raise
        return self._answered(state, observe, stop)

    def _send_all(self, lines: Lines, observe: ObserveProduce) -> ProduceState:
        shown = time.monotonic()
        for line in lines:
            if line is None:
                self._sender.poll(0)
            else:
                rejected = self._take(line)
                if rejected is not None:
                    observe(rejected)
                    if not self._options.skip_invalid:
                        return "rejected"
            if self._sender.failures:
                return "failed"
            if time.monotonic() - shown >= _PROGRESS_SECONDS:
                shown = time.monotonic()
                observe(self.progress())
        return "finished"

    def _answered(
        self, state: ProduceState, observe: ObserveProduce, stop: threading.Event
    ) -> ProduceResult:
        """Returns what became of the lines, once Kafka has answered for all."""
        while len(self._sender):
            self._sender.poll(_WAIT_SECONDS)
            observe(self.progress())
        # Whatever ended the reading: events that may be missing matter more.
        if self._sender.failures:
            state = "failed"
        elif state == "finished" and stop.is_set():
            state = "interrupted"
        return self.result(state)

    def progress(self) -> ProduceProgress:
        sent = self._sender.acknowledged[self._topic]
        return ProduceProgress(self._lines, sent, self._reasons.total())

    def result(self, state: ProduceState) -> ProduceResult:
        failures = self._sender.failures
        lines = sorted(failures)
        return ProduceResult(
            self._topic,
            state,
            self._lines,
            self._sender.acknowledged[self._topic],
            self._reasons.total(),
            dict(self._reasons.most_common()),
            len(failures),
            tuple(lines[:MAX_NAMED_LINES]),
            failures[lines[0]] if lines else "",
        )

    def _take(self, line: bytes | ContainerRecord) -> RejectedLine | None:
        if not isinstance(line, ContainerRecord):
            self._lines += 1
            return self._send_line(line)
        self._lines += line.count
        if line.rejection is None:
            return self._send(line.content)
        reason, detail = line.rejection
        self._reasons[reason] += line.count
        return RejectedLine(line.number, reason, detail, "")

    def _send_line(self, line: bytes) -> RejectedLine | None:
        if self._is_raw:
            return self._send(line) if line else None
        if self._lines == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        # JSON takes a CR as white space, so that of a CR LF is no part of the event.
        return self._send(line.removesuffix(b"\r")) if line.strip() else None

    def _send(self, line: bytes) -> RejectedLine | None:
        record = Accepted(line, b"", "", -1)
        if self._check is not None:
            verdict = self._check(line, self._options.headers)
            if isinstance(verdict, ProblemDetails):
                self._reasons[verdict.code] += 1
                text = line[: 4 * MAX_SHOWN_CHARACTERS].decode(errors="backslashreplace")
                if len(text) > MAX_SHOWN_CHARACTERS:
                    text = text[:MAX_SHOWN_CHARACTERS] + "..."
                return RejectedLine(self._lines, verdict.code, verdict.detail, text)
            record = verdict
        self._sender.send(
            self._topic,
            record.value,
            record.key or None,
            partition=record.partition,
            headers=self._options.headers,
            label=self._lines,
        )
        return None
