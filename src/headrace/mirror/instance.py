"""One instance of a mirror, from its start to its end."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, MirrorRecordError, MirrorRefusedError
from headrace.kafka.broker_errors import Meaning, meaning
from headrace.kafka.group_member import GroupMember, NoMemberError
from headrace.kafka.lost_brokers import BrokersLostError
from headrace.kafka.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.mirror.copying import CopiedRecords, Copier, SourceChangedError
from headrace.mirror.link import Link, naming_site
from headrace.mirror.positions import Starts, find_starts, positions_of
from headrace.mirror.status import MirrorStatus
from headrace.mirror.writing import RejectedBatchError, Rejection
from headrace.model import TopicPartition
from headrace.runtime.instance_name import process_name

_LOG = logging.getLogger("headrace.mirror")
_TAKE_SECONDS = 0.1
_START_EVERY_SECONDS = 1.0
_WAITING_EVERY_SECONDS = 30.0
_HUNG_SECONDS = 60.0  # brokers end a transaction whose instance is gone within twenty
_RESTART_SECONDS = 1.0
_WAITED_FOR = frozenset({Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.REBALANCING})
_INTERRUPTIONS = (
    BrokersLostError,
    BrokerUnreachableError,
    NoMemberError,
    RejectedBatchError,
    SourceChangedError,
    TransactionFencedError,
    TransactionUnsettledError,
)


@dataclass
class MirrorProgress:
    """What an instance has done since its start.

    Attributes:
        copied: records that were committed.
        partitions: of the source, that are copied now.
        refused: those that can't be copied on, and why.
        restarts: how often it began anew from what is committed.
    """

    copied: CopiedRecords = field(default_factory=CopiedRecords)
    partitions: set[TopicPartition] = field(default_factory=set)
    refused: dict[TopicPartition, MirrorRefusedError] = field(default_factory=dict)
    restarts: int = 0


class MirrorInstance:
    """Copies its share of a mirror's partitions until it is stopped, or fails. Used once.

    Any number of instances share the partitions. While brokers of a site are away, it waits. What
    is in a transaction when anything goes wrong is given up, and copied again from the position
    that is committed.
    """

    def __init__(self, link: Link) -> None:
        self.progress = MirrorProgress()
        self._link = link
        self._stopping = threading.Event()
        self._id = f"{link.group}.{uuid.uuid4()}"
        self._copier: Copier | None = None
        self._rejections: dict[TopicPartition, Rejection] | None = None
        self._waiting: set[TopicPartition] = set()
        self._start_at = 0.0
        self._unknown_since: float | None = None
        self._commit_at = self._check_at = 0.0
        self._member = GroupMember(
            {"client.id": process_name()} | dict(link.target),
            link.group,
            link.copies.values(),
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )

    def stop(self) -> None:
        """Ends it; from any thread."""
        self._stopping.set()

    def status(self) -> MirrorStatus:
        """Returns how it is doing; on its thread, or after its end."""
        progress = self.progress
        lags = {} if self._copier is None else self._copier.lags()
        return MirrorStatus(
            self._link.name,
            records=progress.copied.records,
            value_bytes=progress.copied.value_bytes,
            loops_skipped=progress.copied.loops_skipped,
            restarts=progress.restarts,
            lags={_name(source): lag for source, lag in sorted(lags.items())},
            refused={_name(source): str(why) for source, why in sorted(progress.refused.items())},
        )

    def run(self, observe: Callable[[MirrorProgress], None]) -> None:
        """Copies until :meth:`stop`; calls ``observe`` some times a second.

        Raises:
            TopicMissingError: if a copy does not exist.
            MirrorRecordError: if a record can't be copied as it is. What came before it is copied.
            AuthorizationError: if an ACL is missing at a site.
            SinkError: if the target takes no records of a topic.
            KafkaException: if an error of a site is permanent.
        """
        try:
            while not self._stopping.is_set():
                try:
                    self._step()
                except _INTERRUPTIONS as error:
                    self._interrupt(error)
                observe(self.progress)
            self._commit_or_interrupt()
        finally:
            self._drop_copier()
            self._member.close()

    def _step(self) -> None:
        with naming_site(self._link.target_site):
            self._member.poll()
        self._begin_waiting()
        if self._copier is None:
            self._stopping.wait(_TAKE_SECONDS)
            return
        try:
            self._copier.copy(_TAKE_SECONDS)
        except MirrorRecordError:
            # The remedy of the error leaves out all that is not committed before the record.
            self._commit()
            raise
        if time.monotonic() >= self._commit_at or self._copier.is_full:
            self._commit()
            self._check_topics()

    def _commit(self) -> None:
        self._commit_at = time.monotonic() + self._link.commit_seconds
        if self._copier is not None:
            self.progress.copied.add(self._copier.commit(self._member.metadata()))

    def _check_topics(self) -> None:
        if self._copier is not None and time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + _WAITING_EVERY_SECONDS
            with contextlib.suppress(BrokerUnreachableError):  # the reader waits for them
                self._copier.check_topics()

    def _commit_or_interrupt(self) -> None:
        try:
            self._commit()
        except _INTERRUPTIONS as error:
            self._interrupt(error)

    def _begin_waiting(self) -> None:
        """Begins partitions whose start is not known yet; again later where no broker tells it."""
        if not self._waiting or time.monotonic() < self._start_at:
            return
        self._start_at = time.monotonic() + _START_EVERY_SECONDS
        if self._copier is None:  # first: it ends what a former one of this instance left open
            self._copier = Copier(self._link, self._id, self._rejections)
        else:  # what follows may take longer than a transaction
            self._commit()
        try:
            with naming_site(self._link.target_site):
                committed = self._member.committed(self._waiting)
        except KafkaException as error:
            if meaning(error.args[0]) not in _WAITED_FOR:
                raise
            self._note_unknown(error)
            return
        self._unknown_since = None
        starts = find_starts(self._link, positions_of(committed))
        if starts.positions:
            self._copier.add(starts.positions)
        self._waiting = {
            self._link.copy_of(source) for source in (*starts.refused, *starts.awaited)
        }
        if self._waiting:
            self._start_at = time.monotonic() + _WAITING_EVERY_SECONDS
        self._note(starts)

    def _note_unknown(self, error: KafkaException) -> None:
        now = time.monotonic()
        self._unknown_since = self._unknown_since or now
        if now - self._unknown_since < _HUNG_SECONDS:
            _LOG.info("%s: waits for committed positions: %s", self._link.name, error)
            return
        _LOG.error(
            "%s: the target has not told the positions of %d partition(s) for %.0f s: it does not "
            "respond, or a transaction does not end, and an operator has to end it with "
            "`kafka-transactions.sh find-hanging` and `abort`: %s",
            self._link.name,
            len(self._waiting),
            _HUNG_SECONDS,
            error,
        )
        self._unknown_since = now

    def _note(self, starts: Starts) -> None:
        for source, position in starts.positions.items():
            _LOG.info("%s: %s from offset %d", self._link.name, source, position.offset)
        for source, refusal in starts.refused.items():
            if type(self.progress.refused.get(source)) is not type(refusal):
                _LOG.error("%s", refusal)
        for source in starts.awaited:
            _LOG.info("%s: %s is not at the source yet", self._link.name, source)
        for source in (*starts.positions, *starts.awaited):
            self.progress.refused.pop(source, None)
        self.progress.refused.update(starts.refused)
        self.progress.partitions.update(starts.positions)

    def _assigned(self, copies: set[TopicPartition]) -> None:
        self._waiting |= copies
        self._start_at = 0.0

    def _revoked(self, copies: set[TopicPartition]) -> None:
        self._commit_or_interrupt()
        self._forget(copies)

    def _lost(self, copies: set[TopicPartition]) -> None:
        self._interrupt("another instance has its partitions")
        self._forget(copies)

    def _forget(self, copies: set[TopicPartition]) -> None:
        sources = {self._link.source_of(copy) for copy in copies}
        if self._copier is not None:
            self._copier.remove(sources)
        self._waiting -= copies
        self.progress.partitions -= sources
        for source in sources:
            self.progress.refused.pop(source, None)

    def _interrupt(self, why: object) -> None:
        """Gives up the transaction; all partitions begin again from what is committed."""
        _LOG.warning("%s: begins anew from what is committed: %s", self._link.name, why)
        self.progress.restarts += 1
        if isinstance(why, RejectedBatchError):
            self._rejections = (self._rejections or {}) | why.records
        self._waiting |= {self._link.copy_of(source) for source in self.progress.partitions}
        self._drop_copier()
        self._start_at = time.monotonic() + _RESTART_SECONDS

    def _drop_copier(self) -> None:
        if self._copier is not None:
            self._copier.close()
        self._copier = None
        self.progress.partitions.clear()


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"
