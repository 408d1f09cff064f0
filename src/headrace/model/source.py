"""How a pipeline reads its topics: from where, how much at a time, and what bad records do."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from headrace.model.fault import Fault, at_least, is_a
from headrace.model.topic import Topic


class Start(enum.StrEnum):
    """The place at which a pipeline without a checkpoint starts.

    COMMITTED: the consumer group's committed offsets, the earliest where there are none.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


class Metadata(enum.StrEnum):
    """Columns of the Kafka record itself, added beside the event's fields on request.

    ``_topic`` string, ``_partition`` int, ``_offset`` bigint, ``_timestamp`` timestamp (UTC),
    ``_key`` binary, ``_headers`` array<struct<key: string, value: binary>>, ``_event_index`` int,
    ``_topic_id`` string. All but ``_event_index`` are of the record, so those of an envelope repeat
    with each of its events; ``_event_index`` is the place of the event in its envelope, from 0,
    null where there is none. ``_topic_id`` is what Kafka calls the topic, which gets another one
    when it is deleted and created again: with partition and offset it names a record for ever.
    ``_timestamp`` is null where the record has none or one beyond the calendar, ``_headers`` where
    the name of a header is not UTF-8.
    """

    TOPIC = "_topic"
    PARTITION = "_partition"
    OFFSET = "_offset"
    TIMESTAMP = "_timestamp"
    KEY = "_key"
    HEADERS = "_headers"
    EVENT_INDEX = "_event_index"
    TOPIC_ID = "_topic_id"


SUBPARTITION = "_subpartition"
RECORD_COLUMNS = frozenset({*Metadata, SUBPARTITION})
"""Names of the columns that a source may add; no field of an event has one of them."""


@dataclass(frozen=True)
class Source:
    """How a pipeline reads one topic.

    Attributes:
        topic: the declared topic.
        start: where to start when there is no checkpoint.
        metadata: columns of the Kafka record to add, see :class:`Metadata`.
        min_tasks: split ranges until a batch has at least this many tasks (0: one per partition);
            order inside a partition is then kept inside each sub-range only. Not together with
            ``subpartitions``, which promise order.
        subpartitions: spread each partition over this many lanes by key (1: none). Records of
            one key keep their order; a null key takes lane ``offset % subpartitions``. Adds the
            column ``_subpartition`` int.
        watermark: how far event times may lie behind the newest, in steps that keep state; rows
            beyond are dropped there. ``None``: the pipeline's ``allowed_lateness`` for several
            sources, whose watermarks headrace sets, and for a single one what its steps set.
    """

    topic: Topic
    start: Start = Start.EARLIEST
    metadata: tuple[Metadata, ...] = ()
    min_tasks: int = 0
    subpartitions: int = 1
    watermark: timedelta | None = None


@dataclass(frozen=True)
class BatchLimits:
    """A batch closes at whichever comes first.

    Attributes:
        max_records: records over all partitions of all sources, which share it equally.
        max_bytes: bytes of record values over all sources, shared equally, estimated from the
            last batches of each partition; until there are any, a record is taken for 50 kB.
        max_wait: wall clock since the first unread record was seen; a full batch does not wait.
    """

    max_records: int = 1_000_000
    # Half a gigabyte: what a crash makes a pipeline read and write a second time.
    max_bytes: int = 512 * 1024 * 1024
    max_wait: timedelta = timedelta(seconds=1)

    def shared_by(self, sources: int) -> BatchLimits:
        """One source's share where ``sources`` are read together."""
        return replace(
            self,
            # At least one record of each: a limit of 0 would stop the source.
            max_records=max(1, self.max_records // sources),
            max_bytes=max(1, self.max_bytes // sources),
        )


@dataclass(frozen=True)
class DeadLetterLimit:
    """When bad records stop a pipeline or a worker instead of filling the dead-letter topic.

    Attributes:
        max_ratio: share of bad records among ``min_records`` that were read one after the other. A
            pipeline counts whole batches: one that is larger, or several that are smaller.
        max_consecutive: bad records in a row within one partition.
        min_records: of how many records the share is taken.
    """

    max_ratio: float = 0.1
    max_consecutive: int = 1_000
    min_records: int = 1_000


def dead_letter_limit_faults(limit: DeadLetterLimit) -> Iterator[Fault]:
    """Yields the faults of numbers that no limit can have."""
    yield from at_least(limit, "max_consecutive", 1)
    yield from at_least(limit, "min_records", 1)
    if not is_a(limit.max_ratio, int | float) or not 0 <= limit.max_ratio <= 1:
        yield Fault(f"DeadLetterLimit.max_ratio is {limit.max_ratio!r}; it must be from 0 to 1")
