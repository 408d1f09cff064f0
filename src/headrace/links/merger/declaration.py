"""The declaration of a merger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.model import Topic
from headrace.model.declared import DeclaredValue


@dataclass(frozen=True)
class Merger(DeclaredValue):
    """Related topics of several sites, merged into one that is sorted by time.

    Declaring it runs nothing. The same partition of all sources is merged into that partition of
    the target; each partition waits for itself alone. Key, value, headers and timestamp are kept.

    Order: by the record's timestamp, then by the place of its topic in ``sources``, then by offset.
    A record is written once no other that sorts before it can come. How far each source is, is
    known by its records, and where it is silent by its site: a source that a declared ``Mirror``
    copies is as far as the mirror says; one that is of this site is as far as the clock, once it is
    read to its end. A record that is not later than ``allowed_lateness`` is put in order. One that
    sorts before the last record of the output goes to ``late``, with the header ``headrace-late``;
    so does one that is more than an hour ahead of the clock.

    Delivery: exactly once for readers of committed records (``isolation.level = read_committed``):
    what is written and the positions of the sources are one transaction. A crash repeats nothing.

    Attributes:
        name: in commands and logs.
        sources: topics of one partition count; their order decides between equal timestamps.
        target: the sorted topic, with that partition count, too.
        late: what could not be put in order, in the partition that it came from.
        allowed_lateness: how far a record may be behind the newest one of its partition, and how
            long it may take from its timestamp into its topic.
        idle_timeout: a source that has been silent for so long is not waited for; what it sends
            later, and the output has passed, is late.
        mirrored_elsewhere: those of the sources that anything but a ``Mirror`` of this project
            copies. Whether their site is silent or cut off is unknown, so only their records,
            and ``idle_timeout``, move them.
        commit_every: interval of transactions; readers see records after the end of theirs.
    """

    name: str
    sources: Sequence[Topic]
    target: Topic
    late: Topic
    allowed_lateness: timedelta = timedelta(seconds=1)
    idle_timeout: timedelta = timedelta(minutes=5)
    mirrored_elsewhere: Sequence[Topic] = ()
    commit_every: timedelta = timedelta(milliseconds=200)

    @property
    def consumer_group(self) -> str:
        """The group in which instances share the partitions."""
        return f"headrace.merger.{self.name}"
