"""The status of an instance of a mirror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from headrace.links.copying.status import CopyStatus
from headrace.service.figures import counter

MirrorCounter = Literal["records", "value_bytes", "loops_skipped"]
"""A counter of :class:`MirrorStatus` that copying increases."""


@dataclass(frozen=True)
class MirrorStatus(CopyStatus):
    """The status of an instance of a mirror. Its partitions are those of the source."""

    loops_skipped: int = counter(
        "records",
        "records that have been at the target, or have left the source and come back: not sent",
        "rising between sites that do not mirror each other: look for a way back through others, "
        "or a site of the same name",
    )

    kind: ClassVar[str] = "mirror"
    folder: ClassVar[str] = "mirrors"
    not_copied: ClassVar = {"loops_skipped": "records of a loop skipped"}
