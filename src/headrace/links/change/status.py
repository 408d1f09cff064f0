"""The status of what copies a topic into another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.links.copying.status import CopyStatus


@dataclass(frozen=True)
class ChangeStatus(CopyStatus, is_exported=False):
    """The status of a copy. Its partitions are those of the topic that is copied.

    A copy serves no metrics: the line of its run has the figures.
    """

    kind: ClassVar[str] = "change"
