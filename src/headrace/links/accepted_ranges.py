"""Keeps in the lake which records were accepted to be left out of mirrors, mergers, dispatchers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from headrace.errors import LinkRunningError, SinkError
from headrace.kafka.client.client import ClientConfig
from headrace.kafka.group.groups import describe_group
from headrace.links.accepted import AcceptedFolder, AcceptedRange
from headrace.model import TopicPartition
from headrace.project.services import lake_uri
from headrace.runtime.extras import require_extra
from headrace.settings import Settings
from headrace.storage.files import is_local
from headrace.storage.s3 import is_s3


def accepted_folder(settings: Settings, group: str) -> AcceptedFolder:
    """Returns the folder of a link, which its consumer group names.

    Raises:
        ExtraMissingError: if an extra is not installed that the lake's storage needs.
        ServerStartError: if the lake is on the embedded HDFS, which is down.
    """
    lake = lake_uri(settings)
    if not is_local(lake) and not is_s3(lake):
        require_extra("spark")  # brings the client of HDFS
    return AcceptedFolder(lake, group, settings.storage)


@dataclass(frozen=True)
class AcceptedLoss:
    """A partition of a link that continues after records that are lost.

    Attributes:
        kind: of the link: ``mirror``, ``merger`` or ``dispatcher``.
        partition: of the source, as ``topic/partition``.
        next_offset: the next one, before.
        accepted_offset: the next one now.
        reason: what had happened; empty for mirrors.
        lost: of mirrors, offsets that are left out; ``None``: not known, since offsets of the
            source mean other records now.
        site: the target of a dispatcher; empty for others.
    """

    kind: str
    partition: str
    next_offset: int
    accepted_offset: int
    reason: str = ""
    lost: int | None = None
    site: str = ""

    def to_json(self) -> dict[str, object]:
        """Returns the fields that the kind of link has."""
        left_out = {"kind", "reason" if self.kind == "mirror" else "lost"}
        left_out |= set() if self.site else {"site"}
        return {name: value for name, value in asdict(self).items() if name not in left_out}


def refuse_running(kind: str, link: str, config: ClientConfig, group: str) -> None:
    """Refuses to change positions of a link while members of its group would overwrite them.

    Raises:
        LinkRunningError: if an instance runs.
        BrokerUnreachableError: if the brokers do not answer.
    """
    members = describe_group(config, group).members
    if members:
        raise LinkRunningError(kind, link, len(members))


@contextmanager
def keep_accepted(  # noqa: PLR0913 - what an entry holds
    settings: Settings,
    group: str,
    source: TopicPartition,
    topic_ids: tuple[str, str],
    offsets: tuple[int, int],
    reason: str,
    *,
    target_end: int | None = None,
    time_ms: int | None = None,
) -> Iterator[None]:
    """Writes that records of a link are left out; the block commits the position after them.

    What was written is removed where the block fails.

    Args:
        settings: the project's deployment.
        group: of the link.
        source: the partition.
        topic_ids: of the source and of the target.
        offsets: the next one before, and since.
        reason: what had happened, as a sentence.
        target_end: the end of the target's partition, where offsets of the source are used again.
        time_ms: the time up to which a merger's target is written.

    Raises:
        SinkError: if the lake can't be written.
        ServerStartError: if the lake is on the embedded HDFS, which is down.
    """
    range_ = AcceptedRange(
        source.topic,
        *topic_ids,
        source.partition,
        *offsets,
        datetime.now(UTC),
        reason,
        target_end,
        time_ms,
    )
    folder = accepted_folder(settings, group)
    try:
        folder.write(range_)
    except OSError as error:
        raise SinkError(folder.uri, str(error)) from error
    try:
        yield
    except BaseException:
        folder.remove(range_)
        raise
