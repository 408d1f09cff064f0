"""Records of several topics into one, sorted, a transaction at a time."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import confluent_kafka

from headrace.errors import LinkRecordError, TopicMissingError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.client.partitions import partition_of
from headrace.kafka.read.log_cuts import epoch_of
from headrace.kafka.read.resume import SourceChangedError
from headrace.links.instance import Carrier
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.merger.positions.position import OutputPosition, committed_offset
from headrace.links.merger.sorting.clock import InputClock
from headrace.links.merger.sorting.order import Pending
from headrace.links.merger.sorting.target_partition import (
    SourcePartition,
    TargetPartition,
    Written,
    value_bytes,
)
from headrace.links.merger.status import MergerCounter
from headrace.links.site_times import NOT_KNOWN_MS, SiteTime
from headrace.links.source_reader import SourceReader
from headrace.links.target import Rejection
from headrace.links.writing import NO_TIMESTAMP_MS, LinkWriter
from headrace.model import TopicPartition
from headrace.runtime.clock import now_in_ms

LATE_HEADER = "headrace-late"
"""Header of a record that is not in order, with the reason."""

UNREADABLE_HEADERS, NO_TIMESTAMP = "headers", "no-timestamp"
"""The reasons beside those of :mod:`headrace.links.merger.sorting.target_partition`."""

SiteTimes = Mapping[TopicPartition, SiteTime]
"""By partition of a copy, the time up to which its mirror has copied all."""

_LOG = logging.getLogger("headrace.merger")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it
_FULL_BYTES = 16 * 1024 * 1024  # a transaction is to end in time
_FULL_RECORDS = 200_000
_WRITE_RECORDS = 500  # at once, so that a transaction that is full ends
_FULL_RECORDS_ALONE = 1_000  # each of them is a request of its own
_ASK_SECONDS = 0.2  # as commits by default: a silent source delays others by about this
_COMMIT_ALL_SECONDS = 3600.0  # so that brokers do not forget offsets that do not change
_WARN_SECONDS = 60.0
_READING = {"queued.max.messages.kbytes": "32768", "fetch.wait.max.ms": "50"}


class MergerCarrier(Carrier[OutputPosition]):
    """Merges into the partitions it was given. Used on one thread, until it raises.

    Args:
        plan: the merger and its cluster.
        transactional_id: of this one alone.
        site_times: what mirrors say; it changes while it is read.
        rejections: records that the target refuses; not ``None``: it refused some, so that each
            record is sent in a batch of its own.

    Attributes:
        take_records: the records of one read.
        waiting_records: those that wait, of all inputs together. An input that is ahead of the
            others is read no further beyond its share.
        min_waiting_records: the share of an input is at least this.
        waiting_bytes: of the values of all inputs together, as ``waiting_records``.

    Raises:
        TransactionUnsettledError, BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """

    take_records = 5_000
    waiting_records = 400_000
    min_waiting_records = 1_000
    waiting_bytes = 128 * 1024 * 1024

    def __init__(
        self,
        plan: MergerPlan,
        transactional_id: str,
        site_times: SiteTimes,
        rejections: Mapping[TopicPartition, Rejection] | None = None,
    ) -> None:
        self._plan, self._site_times = plan, site_times
        self._alone, self._rejections = rejections is not None, rejections or {}
        self._writer = LinkWriter(plan.link_target, transactional_id, one_by_one=self._alone)
        self._reader = SourceReader(
            plan.names,
            plan.group,
            plan.config,
            _READING,
            lambda source: self._inputs[source.topic, source.partition][1].next,
        )
        self._outputs: dict[TopicPartition, TargetPartition] = {}
        self._inputs: dict[tuple[str, int], tuple[TargetPartition, SourcePartition]] = {}
        self._uncommitted: Counter[MergerCounter] = Counter()
        self._ask_at = 0.0
        self._is_partial = False
        self._ready: set[TopicPartition] = set()
        self._commit_all_at = 0.0
        self._kept: Sequence[confluent_kafka.TopicPartition] = ()
        self._late_since_warning = 0
        self._warn_at = 0.0

    @property
    def is_full(self) -> bool:
        counts = self._uncommitted
        most = _FULL_RECORDS_ALONE if self._alone else _FULL_RECORDS
        return counts["records"] + counts["late"] >= most or counts["value_bytes"] >= _FULL_BYTES

    def add(self, starts: Mapping[TopicPartition, OutputPosition]) -> None:
        for target, positions in starts.items():
            sources = zip(self._plan.inputs_of(target), positions, strict=True)
            inputs = [
                SourcePartition.at(
                    source,
                    self._plan.sources[source.topic],
                    start,
                    InputClock(place, self._plan.allowed_lateness_ms, start.time_ms),
                )
                for place, (source, start) in enumerate(sources)
            ]
            output = self._outputs[target] = TargetPartition(target, inputs)
            for input_ in inputs:
                self._inputs[input_.source.topic, input_.source.partition] = (output, input_)
        # What waits is kept, and each input continues after the last record that was read.
        self._reader.assign({input_.source: input_.seen for _, input_ in self._inputs.values()})
        paused = [input_.source for _, input_ in self._inputs.values() if input_.is_paused]
        if paused:
            self._reader.pause(paused)

    def keep(self, offsets: Sequence[confluent_kafka.TopicPartition]) -> None:
        self._kept = offsets

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        numbers = {partition.partition for partition in partitions}
        self._kept = [at for at in self._kept if at.partition not in numbers]
        outputs = [self._outputs.pop(p) for p in partitions if p in self._outputs]
        self._ready -= set(partitions)
        removed = [input_ for output in outputs for input_ in output.inputs]
        for input_ in removed:
            del self._inputs[input_.source.topic, input_.source.partition]
        self._reader.remove([input_.source for input_ in removed])

    def lags(self) -> dict[TopicPartition, int | None]:
        """Returns, by partition of a source, the offsets from the first record that is not written.

        The end is that of the last fetch; ``None``: nothing was fetched yet.
        """
        return {
            input_.source: self._reader.lag(input_.source, output.position(input_).offset)
            for output, input_ in self._inputs.values()
        }

    def sorted_to_ms(self) -> dict[TopicPartition, int | None]:
        """Returns, by partition of the target, the time up to which it is written."""
        times = {target: output.reached.time_ms for target, output in self._outputs.items()}
        return {target: None if time_ms < 0 else time_ms for target, time_ms in times.items()}

    def waits_for(self) -> dict[TopicPartition, list[TopicPartition]]:
        """Returns, by partition of the target, the sources that records wait for."""
        now_ms = now_in_ms()
        blocking = {target: output.blocking(now_ms) for target, output in self._outputs.items()}
        return {target: [input_.source for input_ in inputs] for target, inputs in blocking.items()}

    def idle(self) -> list[TopicPartition]:
        """Returns the partitions of sources that are not waited for."""
        return [input_.source for output in self._outputs.values() for input_ in output.idle]

    def move(self, seconds: float) -> None:
        """Reads up to 5,000 records, and writes those whose turn has come into the transaction."""
        limit = _FULL_RECORDS_ALONE if self._alone else self.take_records
        records, ends = self._reader.read(limit, 0 if self._ready else seconds)
        try:
            self._merge(records, ends)
        except LinkRecordError:
            self._is_partial = True
            raise
        self._hold_back()
        self._writer.poll()

    def commit(self, group: Any) -> Counter[MergerCounter]:
        """Ends the transaction.

        After a record that the target does not take, nothing is committed: positions would be
        those of records after it, too.
        """
        positions = [(input_, output.position(input_)) for output, input_ in self._inputs.values()]
        is_due = time.monotonic() >= self._commit_all_at
        moved = [(input_, at) for input_, at in positions if is_due or at != input_.committed]
        kept = self._still_there(self._kept) if is_due else []
        if not (moved or kept) or self._is_partial:
            return Counter()
        self._writer.begin()  # also for offsets alone
        self._writer.flush()
        # As in a mirror: offsets of a topic that was recreated since must not be committed.
        self._check_topics([input_ for input_, _ in moved])
        offsets = [committed_offset(input_.source, at) for input_, at in moved]
        self._writer.commit([*offsets, *kept], group)
        for input_, at in moved:
            input_.committed = at
        if is_due:
            self._commit_all_at = time.monotonic() + _COMMIT_ALL_SECONDS
        counts, self._uncommitted = self._uncommitted, Counter()
        self._warn_of_late(counts["late"])
        return counts

    def check_topics(self) -> None:
        self._check_topics([input_ for _, input_ in self._inputs.values()])

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    def _warn_of_late(self, records: int) -> None:
        """Logs, at most once a minute, how many records are in the topic of late ones."""
        self._late_since_warning += records
        if self._late_since_warning and time.monotonic() >= self._warn_at:
            _LOG.warning(
                "%s: %d records were late, and went to %s: what is sent later than %g s after "
                "its time is late, as after an outage of the Kafka of a site",
                self._plan.name,
                self._late_since_warning,
                self._plan.late,
                self._plan.allowed_lateness_ms / 1000,
            )
            self._late_since_warning, self._warn_at = 0, time.monotonic() + _WARN_SECONDS

    def _merge(self, records: list[Any], ends: Mapping[tuple[str, int], int]) -> None:
        self._ready |= self._sort_in(records)
        for source in ends.keys() & self._inputs.keys():
            _, input_ = self._inputs[source]
            input_.next = max(input_.next, ends[source])
        if time.monotonic() >= self._ask_at:
            self._ask()
            self._ready |= {t for t, output in self._outputs.items() if output.first is not None}
            self._ask_at = time.monotonic() + _ASK_SECONDS
        for target in list(self._ready):
            self._write_ready(self._outputs[target])
            if self.is_full:  # the others are for the next transaction
                return

    def _write_ready(self, output: TargetPartition) -> None:
        limit = _FULL_RECORDS_ALONE if self._alone else _WRITE_RECORDS
        while not self.is_full:
            written = output.take(now_in_ms(), limit)
            for record in written:
                self._write(output, record)
            if len(written) < limit:
                self._ready.discard(output.target)
                return

    def _sort_in(self, messages: list[Any]) -> set[TopicPartition]:
        """Puts records where they wait; returns the outputs that they may move."""
        taken: dict[tuple[str, int], list[Pending]] = {}
        for message in messages:
            source = (message.topic(), message.partition())
            if (known := self._inputs.get(source)) is not None:
                place = known[1].clock.place
                record = (message.timestamp()[1], place, message.offset(), message)
                taken.setdefault(source, []).append(record)
        for source, records in taken.items():
            self._put(*self._inputs[source], records)
        return {self._inputs[source][0].target for source in taken}

    def _put(
        self, output: TargetPartition, input_: SourcePartition, records: list[Pending]
    ) -> None:
        first, last = records[0][2], records[-1][3]
        if first < input_.next:
            raise SourceChangedError(f"offset {first} of {input_.source} was fetched twice")
        if last.offset() >= input_.read_to - 1:  # else it is not that of the last record
            input_.epoch = epoch_of(last)
        for written in output.put(input_.clock.place, records, now_in_ms()):
            self._write(output, written)

    def _ask(self) -> None:
        """Asks how far silent inputs are."""
        now_ms = now_in_ms()  # before the ends: what comes later is not among them
        silent = [
            (output, input_)
            for output in self._outputs.values()
            for input_ in (*output.blocking(now_ms), *output.idle)
        ]
        if not silent:
            return
        site_times = [self._site_time(input_, now_ms) for _, input_ in silent]
        try:  # open transactions included: their records will come
            ends = high_watermarks(self._plan.config, [input_.source for _, input_ in silent])
        except TopicMissingError as error:
            raise SourceChangedError(str(error)) from error
        now = time.monotonic()
        for (output, input_), time_ms in zip(silent, site_times, strict=True):
            if time_ms >= 0:
                output.note_end(input_, time_ms, ends[input_.source], now_ms)
            if input_.note_blocking(self._plan.idle_seconds, now):
                _LOG.warning(
                    "%s: %s is idle, no records for %.0f s: merging continues without it",
                    self._plan.name,
                    input_.source,
                    self._plan.idle_seconds,
                )

    def _site_time(self, input_: SourcePartition, now_ms: int) -> int:
        """Returns the time up to which its site had sent nothing more; -1: it is not known."""
        if input_.clock_source is ClockSource.MIRROR:
            site_time = self._site_times.get(input_.source, SiteTime(NOT_KNOWN_MS))
            return site_time.of(input_.start.topics.get(input_.source.topic, ""))
        return now_ms if input_.clock_source is ClockSource.WALL else NOT_KNOWN_MS

    def _write(self, output: TargetPartition, written: Written) -> None:
        """Puts a record into the transaction.

        Brokers take names of headers that the client library can't give, and records without a
        timestamp: these go to those that are not in order, the former without headers.
        """
        (time_ms, place, offset, message), reason = written
        input_, headers = output.inputs[place], headers_of(message)
        if headers is None:
            reason = UNREADABLE_HEADERS
        elif time_ms == NO_TIMESTAMP_MS:
            reason = NO_TIMESTAMP
        rejection = self._rejections.get(input_.source)
        if rejection is not None and rejection.offset == offset:
            topic = self._plan.late if reason else self._plan.target
            raise self._plan.record_error(input_.source, rejection, topic)
        if headers is not None and not reason:
            self._writer.send(input_.source, output.target, message, list(headers))
            self._uncommitted["records"] += 1
        else:
            late = TopicPartition(self._plan.late, output.target.partition)
            marked = [*(headers or ()), (LATE_HEADER, reason.encode())]
            self._writer.send(input_.source, late, message, marked)
            self._uncommitted["late"] += 1
        self._uncommitted["value_bytes"] += value_bytes(written.record)

    def _hold_back(self) -> None:
        """Pauses inputs that are ahead with much that waits; resumes the others."""
        now_ms = now_in_ms()
        pause: list[TopicPartition] = []
        resume: list[TopicPartition] = []
        for output, input_ in self._inputs.values():
            if input_.is_paused:
                # At half of the share, so that it is not paused again by its next read.
                if not self._fills(output, input_, share=2) or not self._waits_for_others(
                    output, input_, now_ms
                ):
                    input_.is_paused = False
                    resume.append(input_.source)
            elif self._fills(output, input_) and self._waits_for_others(output, input_, now_ms):
                input_.is_paused = True
                pause.append(input_.source)
        if pause:
            self._reader.pause(pause)
        if resume:
            self._reader.resume(resume)

    def _fills(self, output: TargetPartition, input_: SourcePartition, share: int = 1) -> bool:
        """Returns whether what waits of an input is more than its share, or a part of that."""
        inputs = max(len(self._inputs), 1)
        most_records = max(self.waiting_records // inputs, self.min_waiting_records) // share
        most_bytes = self.waiting_bytes // inputs // share
        return output.waiting(input_) > most_records or input_.bytes > most_bytes

    def _waits_for_others(
        self, output: TargetPartition, input_: SourcePartition, now_ms: int
    ) -> bool:
        """Returns whether an input's records wait for others, or most of them for the clock.

        Otherwise the others wait for it, and its next records may be those that they wait for.
        """
        if output.is_ahead(input_, now_ms):
            return True
        future = output.future(input_, now_ms)
        is_most = 2 * len(future) > output.waiting(input_)
        return is_most or 2 * sum(map(value_bytes, future)) > input_.bytes

    def _still_there(
        self, offsets: Sequence[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        """Returns the offsets of partitions that exist: brokers take no others."""
        live = describe(self._plan.config, {at.topic for at in offsets})
        existing = {at for topic in live.values() for at in topic.all_partitions}
        return [at for at in offsets if partition_of(at) in existing]

    def _check_topics(self, inputs: Collection[SourcePartition]) -> None:
        # Also those that are written: positions name them, as a start compares them.
        known = {known for at in inputs for known in at.start.topics.items()}
        self._reader.check_topics(known | self._writer.known_ids([self._plan.target]))
