"""The declaration of a mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from headrace.links.copying.declaration import CopyLink
from headrace.model import Topic


@dataclass(frozen=True)
class Mirror(CopyLink):
    """Topics of another site, copied to the project's own. Declaring it runs nothing.

    Partition, key, value, headers and timestamp are kept; the header ``headrace-origin`` is added,
    with ``site/topic/partition/offset``. Order is that of each partition. For readers of committed
    records (``isolation.level = read_committed``) each record is there exactly once, also after
    crashes: records, and the position that the mirror has reached, are written in one transaction.
    What has been at this site before, as its headers say, is not brought back.

    Attributes:
        name: in commands and logs.
        source: the site that the records come from.
        topics: names of topics there, each with the topic here that it is copied to. Both have the
            same number of partitions.
        commit_every: interval of transactions; readers see records after the end of theirs.
    """

    name: str
    source: str
    topics: Mapping[str, Topic]
    commit_every: timedelta = timedelta(milliseconds=200)

    @property
    def consumer_group(self) -> str:
        """The group, at this site, in which instances share the partitions."""
        return f"headrace.mirror.{self.name}"
