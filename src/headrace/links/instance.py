"""The loop of an instance of a link: group, carrier, interruptions, refusals."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, LinkRecordError, RefusedError, TopicMissingError
from headrace.kafka.client.broker_errors import Meaning, meaning
from headrace.kafka.client.lost_brokers import BrokersLostError
from headrace.kafka.client.partitions import partition_of
from headrace.kafka.group.group_member import GroupMember, NoMemberError
from headrace.kafka.read.open_transactions import HangingTransactions
from headrace.kafka.read.resume import SourceChangedError
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.links.starts import RefusedRecords, Start, Starts
from headrace.links.target import LinkTarget, Rejection, naming_site
from headrace.links.timing import LinkTiming
from headrace.links.writing import RejectedBatchError, end_transaction
from headrace.model import TopicPartition
from headrace.runtime.instance_name import process_name
from headrace.service.status import State

_LOG = logging.getLogger("headrace.links")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it
_WAITED_FOR = frozenset({Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.REBALANCING})
_NO_POSITIONS = "the target does not report committed offsets"
NewStart = TypeVar("NewStart", contravariant=True)  # noqa: PLC0105 - as typing's own names


_INTERRUPTIONS = (
    BrokersLostError,
    BrokerUnreachableError,
    NoMemberError,
    RejectedBatchError,
    SourceChangedError,
    TransactionFencedError,
    TransactionUnsettledError,
)


class Carrier(Protocol[NewStart]):
    """Moves records of the partitions that an instance has. Used on one thread, until it raises.

    What it raises of the errors that :class:`LinkInstance` names is an interruption: the
    instance closes it, and starts a new one from the committed positions. Others end the instance.
    """

    @property
    def is_full(self) -> bool:
        """Returns whether the transaction must be committed before its time."""

    def add(self, starts: Mapping[TopicPartition, NewStart]) -> None:
        """Adds partitions, whose records are moved from their positions on."""

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Stops moving records of partitions. The caller has committed the transaction before."""

    def keep(self, offsets: Sequence[confluent_kafka.TopicPartition]) -> None:
        """Keeps the committed offsets of all partitions that wait from being forgotten.

        Brokers forget those of topics that no member of the group subscribes to, a week after they
        were committed.
        """

    def move(self, seconds: float) -> None:
        """Adds records to the transaction; waits ``seconds`` for the first one.

        Raises:
            SourceChangedError: if a source does not have the next record of a partition.
            LinkRecordError: if a record can't be written to the target as it is.
            RejectedBatchError: if the target has refused records.
            AuthorizationError: if an ACL is missing at a site.
            SinkError: if the target takes no records of a topic.
            TransactionFencedError, TransactionUnsettledError: if the transaction can't continue.
            BrokersLostError: if the client has lost the source's brokers.
            BrokerUnreachableError: if the brokers do not answer.
            KafkaException: if an error of a site is permanent.
        """

    def commit(self, group: Any) -> Counter[Any]:
        """Commits the transaction: its records become visible together with its positions.

        Args:
            group: metadata of the group at the target, as this instance is a member of it. Of an
                instance that is no member any more, the brokers refuse the transaction.

        Returns:
            what was in the transaction, by the names of the counters of its status.

        Raises:
            TransactionUnsettledError: if it may have been committed or not.
            TransactionFencedError: if another instance has the partitions, or the transaction took
                longer than ten seconds.
            RejectedBatchError: if the target has refused records.
            SourceChangedError: if a topic of a source was deleted or recreated since its records
                were read, or one of the target since the carrier was created.
            AuthorizationError: if an ACL is missing at a site.
            SinkError: if the target takes no records of a topic.
            BrokerUnreachableError: if the brokers of a site do not answer.
        """

    def check_topics(self) -> None:
        """Checks whether topics were deleted: the client may not notice it while a topic is idle.

        Raises:
            SourceChangedError: if one was deleted or recreated.
            AuthorizationError: if an ACL is missing at a site.
            BrokerUnreachableError: if the brokers of a site do not answer.
        """

    def close(self) -> None:
        """Aborts what is not committed."""


class LinkPolicy(Protocol[Start]):
    """The policy of a link: its target, start positions and carriers."""

    @property
    def target(self) -> LinkTarget:
        """Returns where they write, and their group."""

    def carrier(
        self, transactional_id: str, rejections: Mapping[TopicPartition, Rejection] | None
    ) -> Carrier[Start]:
        """Returns a carrier without partitions.

        Args:
            transactional_id: of this carrier alone.
            rejections: by partition of the source, a record that the target refuses; not ``None``:
                it refused some, so that each record must be sent in a batch of its own.
        """

    def positions(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions whose committed offsets are the positions of ``partitions``."""

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Sequence[confluent_kafka.TopicPartition],
    ) -> Starts[Start]:
        """Returns where ``partitions`` continue, by the committed offsets of their positions."""

    def partition_for(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition of the target, which the group assigns, for one of a source."""


@dataclass
class LinkProgress:
    """What an instance has done since its start.

    Attributes:
        moved: counts of what was committed, by the names of the counters of its status.
        partitions: those of the target that it moves records to.
        refused: those that can't continue, and why.
        restarts: how often it started over from what is committed.
        unreachable: why a site did not answer the last request; empty: it did.
        hanging: offsets of the target at which transactions have been open for half a minute.
    """

    moved: Counter[str] = field(default_factory=Counter)
    partitions: set[TopicPartition] = field(default_factory=set)
    refused: dict[TopicPartition, RefusedError] = field(default_factory=dict)
    restarts: int = 0
    unreachable: str = ""
    hanging: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Returns why the instance waits, or readers of its target do; empty: none waits."""
        if not self.hanging:
            return self.unreachable
        partition, offset = min(self.hanging.items())
        return (
            f"a transaction in {partition.path} is open since offset {offset:,} and has not ended: "
            "readers of committed records wait there"
        )

    @property
    def state(self) -> State:
        """Returns the state of an instance that has not ended."""
        return State.WAITING if self.unreachable else State.RUNNING


class LinkInstance(Generic[Start]):
    """Moves its share of the partitions until it is stopped, or fails. Used once.

    Any number of instances share the partitions. While brokers are unreachable, it waits. A failure
    aborts the transaction, and its records are moved again from the committed position. A partition
    whose next record the target does not take is refused, and retried with exponential backoff; the
    others continue.
    """

    def __init__(self, policy: LinkPolicy[Start], timing: LinkTiming = LinkTiming()) -> None:
        self.progress = LinkProgress()
        self.carrier: Carrier[Start] | None = None
        self._timing = timing
        self._policy, self._target = policy, policy.target
        self._stopping = threading.Event()
        self._id = ""
        self._hanging = HangingTransactions(self._target.config)
        self._rejections: dict[TopicPartition, Rejection] | None = None
        self._refused_records = RefusedRecords(timing)
        self._waiting: set[TopicPartition] = set()
        self._start_at = 0.0
        self._unknown_since: float | None = None
        self._commit_at = self._check_at = self._look_for_hanging_at = 0.0
        # The first assignment usually comes within seconds.
        self._look_for_brokers_at = time.monotonic() + timing.check_seconds / 2
        self._member = GroupMember(
            {"client.id": process_name()} | dict(self._target.config),
            self._target.group,
            self._target.shared_topics,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )

    def stop(self) -> None:
        """Stops the instance. May be called on any thread."""
        self._stopping.set()

    def run(self, observe: Callable[[None], None]) -> None:
        """Moves records until :meth:`stop`; calls ``observe`` several times a second.

        Raises:
            TopicMissingError: if a topic of the target does not exist.
            AuthorizationError: if an ACL is missing.
            SinkError: if the target takes no records of a topic.
            KafkaException: if an error of a cluster is permanent.
        """
        try:
            while not self._stopping.is_set():
                try:
                    self._step()
                except _INTERRUPTIONS as error:
                    self._interrupt(error)
                observe(None)
            self._commit_or_interrupt()
        finally:
            # First the carrier: a member that leaves passes its partitions to others at once.
            self._drop_carrier()
            self._member.close()

    def _step(self) -> None:
        # Before records are moved: partitions that were revoked are committed and removed here.
        with naming_site(self._target.site):
            self._member.poll()
        self._start_waiting()
        if self.carrier is None:
            self._look_for_brokers()
            self._stopping.wait(self._timing.take_seconds)
            return
        try:
            self.carrier.move(self._timing.take_seconds)
        except LinkRecordError as error:
            # The remedy of the error leaves out all that is not committed before the record.
            self._commit()
            self._refuse(error)
            return
        if time.monotonic() >= self._commit_at or self.carrier.is_full:
            self._commit()
            self._check_topics()

    def _refuse(self, error: LinkRecordError) -> None:
        """Excludes the partition of a record, and restarts the others."""
        source = TopicPartition(*error.source)
        self._refused_records.add(self._policy.partition_for(source), error)
        # Records of several partitions may be known; without any, they are sent in batches again.
        known = {
            at: rejection for at, rejection in (self._rejections or {}).items() if at != source
        }
        self._interrupt(error)
        self._rejections = known or None

    def _commit(self) -> None:
        self._commit_at = time.monotonic() + self._target.commit_seconds
        if self.carrier is not None:
            self.progress.moved.update(self.carrier.commit(self._member.metadata()))

    def _check_topics(self) -> None:
        if self.carrier is not None and time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + self._timing.check_seconds
            try:
                self.carrier.check_topics()
            except BrokerUnreachableError as error:  # the reader waits for them
                self.progress.unreachable = str(error)
            else:
                if self._unknown_since is None:
                    self.progress.unreachable = ""
                self._look_for_hanging()

    def _look_for_brokers(self) -> None:
        """Records whether the group's brokers answer, while it assigns no partitions."""
        if self._waiting or time.monotonic() < self._look_for_brokers_at:
            return
        try:
            with naming_site(self._target.site):
                self._member.committed([TopicPartition(self._target.shared_topics[0], 0)])
        except KafkaException as error:
            if meaning(error.args[0]) not in _WAITED_FOR:
                raise
            self.progress.unreachable = f"{_NO_POSITIONS}: {error}"
            delay = self._timing.start_seconds
        else:
            self.progress.unreachable = ""
            delay = self._timing.check_seconds
        self._look_for_brokers_at = time.monotonic() + delay

    def _look_for_hanging(self) -> None:
        """Records transactions that stay open: readers of committed records get no error there."""
        if time.monotonic() < self._look_for_hanging_at:
            return
        self._look_for_hanging_at = time.monotonic() + self._timing.check_seconds
        # A transaction of the group's offsets that hangs keeps their positions from being reported.
        unknown = set() if self._unknown_since is None else self._waiting
        try:
            with naming_site(self._target.site):
                watched = self.progress.partitions | unknown | self._target.written_elsewhere()
                hanging = self._hanging.find(watched)
        except (BrokerUnreachableError, TopicMissingError):  # the carrier says so
            return
        except KafkaException as error:
            if meaning(error.args[0]) in _WAITED_FOR:
                return
            raise
        for partition, offset in hanging.items() - self.progress.hanging.items():
            _LOG.error(
                "%s: a transaction in %s is open since offset %d and has not ended, so that readers"
                " of committed records wait there; if `kafka-transactions.sh find-hanging` names "
                "it, an operator has to end it with `abort`",
                self._target.name,
                partition,
                offset,
            )
        self.progress.hanging = hanging

    def _commit_or_interrupt(self) -> None:
        try:
            self._commit()
        except _INTERRUPTIONS as error:
            self._interrupt(error)

    def _start_waiting(self) -> None:
        """Starts partitions whose position is not known yet; retries while no broker reports it."""
        if not self._waiting or time.monotonic() < self._start_at:
            return
        self._start_at = time.monotonic() + self._timing.start_seconds
        # The carrier is created first: it settles the previous transaction, so that committed
        # offsets are final. An open transaction is committed: requests may take longer than it may.
        if self.carrier is None:
            self.carrier = self._new_carrier()
        else:
            self._commit()
        try:
            with naming_site(self._target.site):
                committed = self._member.committed(self._policy.positions(self._waiting))
        except KafkaException as error:
            if meaning(error.args[0]) not in _WAITED_FOR:
                raise
            self._note_unknown(error)
            return
        self._unknown_since = None
        try:
            starts = self._policy.starts(self._waiting, committed)
        except TopicMissingError as error:  # deleted between two of its requests
            raise SourceChangedError(str(error)) from error
        starts = self._refused_records.left_out_of(starts)
        if starts.positions:
            self.carrier.add(starts.positions)
        self._waiting = {*starts.refused, *starts.awaited}
        if self._waiting:
            self._start_at = time.monotonic() + self._timing.check_seconds
        kept = {*self._policy.positions(self._waiting)}
        self.carrier.keep([at for at in committed if at.offset >= 0 and partition_of(at) in kept])
        self._note(starts)

    def _new_carrier(self) -> Carrier[Start]:
        """Ends the transaction of the previous carrier, and returns one with an id of its own.

        Brokers that are killed can forget to abort a transaction. The next one of the same id would
        then commit its records, too.
        """
        if self._id:
            end_transaction(self._target, self._id)
        self._id = f"{self._target.group}.{uuid.uuid4()}"
        return self._policy.carrier(self._id, self._rejections)

    def _note_unknown(self, error: KafkaException) -> None:
        now = time.monotonic()
        self._unknown_since = self._unknown_since or now
        self.progress.unreachable = f"{_NO_POSITIONS}: {error}"
        self._look_for_hanging()
        if now - self._unknown_since < self._timing.hung_seconds:
            _LOG.info("%s: cannot fetch committed offsets, retrying: %s", self._target.name, error)
            return
        _LOG.error(
            "%s: the target has not reported the positions of %d partition(s) for %.0f s: it does "
            "not respond, or a transaction does not end, and an operator has to end it with "
            "`kafka-transactions.sh find-hanging` and `abort`: %s",
            self._target.name,
            len(self._waiting),
            self._timing.hung_seconds,
            error,
        )
        self._unknown_since = now  # the next error is logged after the same time

    def _note(self, starts: Starts[Start]) -> None:
        self.progress.unreachable = ""
        for partition, position in starts.positions.items():
            of_inputs = position if isinstance(position, tuple) else (position,)
            text = ", ".join(map(str, of_inputs))
            _LOG.info("%s: %s from %s", self._target.name, partition, text)
        for partition, refusal in starts.refused.items():
            # Each check returns it again, with other offsets: one of the same type is no news.
            if type(self.progress.refused.get(partition)) is not type(refusal):
                _LOG.error("%s", refusal)
        for partition in starts.awaited:
            _LOG.info("%s: the source of %s does not exist yet", self._target.name, partition)
        for partition in (*starts.positions, *starts.awaited):
            self.progress.refused.pop(partition, None)
        self.progress.refused.update(starts.refused)
        self.progress.partitions.update(starts.positions)

    def _assigned(self, partitions: set[TopicPartition]) -> None:
        self._waiting |= partitions
        self._start_at = 0.0

    def _revoked(self, partitions: set[TopicPartition]) -> None:
        self._commit_or_interrupt()
        self._forget(partitions)

    def _lost(self, partitions: set[TopicPartition]) -> None:
        self._interrupt("the group gave its partitions to another instance")
        self._forget(partitions)

    def _forget(self, partitions: set[TopicPartition]) -> None:
        if self.carrier is not None:
            self.carrier.remove(partitions)
        self._waiting -= partitions
        self.progress.partitions -= partitions
        self._refused_records.forget(partitions)
        for partition in partitions:
            self.progress.refused.pop(partition, None)
            self.progress.hanging.pop(partition, None)
        kept = {
            source: rejection
            for source, rejection in (self._rejections or {}).items()
            if self._policy.partition_for(source) not in partitions
        }
        # Rejections that are not known yet are found by the next batch that the target refuses.
        self._rejections = kept or None
        if not self._waiting:
            self._unknown_since = None

    def _interrupt(self, why: object) -> None:
        """Aborts the transaction; all partitions restart from their committed positions."""
        _LOG.warning("%s: restarts from committed offsets: %s", self._target.name, why)
        self.progress.restarts += 1
        if isinstance(why, BrokerUnreachableError):
            self.progress.unreachable = str(why)
        if isinstance(why, TransactionUnsettledError):
            self.progress.unreachable = f"the target does not end a transaction: {why}"
        self._look_for_brokers_at = 0.0
        if isinstance(why, RejectedBatchError):
            self._rejections = (self._rejections or {}) | why.records
        self._waiting |= self.progress.partitions  # before they are cleared with the carrier
        self._drop_carrier()
        self._start_at = time.monotonic() + self._timing.restart_seconds

    def _drop_carrier(self) -> None:
        if self.carrier is not None:
            self.carrier.close()
        self.carrier = None
        self.progress.partitions.clear()
