"""How instances of mirrors are doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.links.status import TransferStatus
from headrace.metrics import MIRROR_METRICS, MIRROR_PARTITION_METRICS


@dataclass(frozen=True)
class MirrorStatus(TransferStatus):
    """The status of an instance of a mirror. Its partitions are those of the source.

    Attributes:
        loops_skipped: records that have been at one of the two sites before, and were not sent.
    """

    loops_skipped: int = 0

    kind: ClassVar[str] = "mirror"
    folder: ClassVar[str] = "mirrors"
    metrics = MIRROR_METRICS
    part_metrics: ClassVar = {"partition": MIRROR_PARTITION_METRICS}
