"""The status of links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.service.figures import counter
from headrace.service.reader_status import ReaderStatus
from headrace.service.status import StatusFolder

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample


@dataclass(frozen=True)
class LinkStatus(ReaderStatus):
    """The figures of a link since the start of the instance. Names are those of the metrics.

    Attributes:
        reason: why it waits for a site, its readers wait, or it has failed.
    """

    restarts: int = counter(
        "restarts",
        "times that the instance gave its transaction up and started over from what is committed",
        "rising: the log says why; a few with each deploy or election are normal",
    )

    def partition_figures(self) -> dict[str, Mapping[str, int | None]]:
        """Returns the values of each metric of partitions, by ``topic/partition``."""
        refused = dict.fromkeys(self.lags, 0) | dict.fromkeys(self.refused, 1)
        return {"lag_records": self.lags, "refused": refused}

    def samples(self, part: str, metric: str) -> Iterator[Sample]:  # noqa: ARG002
        """Returns the values of a metric of partitions, without lags that are not known."""
        for path, value in sorted(self.partition_figures()[metric].items()):
            if value is not None:
                *site, topic, number = path.split("/")
                place = {"topic": topic, "partition": number}
                yield place | {"site": site[0]} if site else place, value


Status = TypeVar("Status", bound=LinkStatus)


def refused_now(folder: StatusFolder[Status], name: str) -> dict[str, str]:
    """Returns which partitions can't continue in instances that run on this machine, and why.

    Only they know of a record that their target does not take.

    Args:
        folder: of their statuses.
        name: of the link.

    Returns:
        the reasons by ``topic/partition``, of a dispatcher by ``site/topic/partition``.
    """
    running = (status for status in folder.read() if status.name == name and not status.has_ended)
    return {partition: why for status in running for partition, why in status.refused.items()}
