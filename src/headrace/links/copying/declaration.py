"""What each declaration of a link has that copies a partition to a partition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from headrace.model import Topic
from headrace.model.declared import DeclaredValue


class CopyLink(DeclaredValue):
    """A link whose kind is a :class:`headrace.links.copying.kind.CopyKind`.

    Attributes:
        topics: names of topics of the source, each with the topic here that it is copied to.
        commit_every: interval of transactions.
    """

    topics: Mapping[str, Topic]
    commit_every: timedelta

    @property
    def consumer_group(self) -> str:
        """The group, at this site, in which instances share the partitions."""
        raise NotImplementedError
