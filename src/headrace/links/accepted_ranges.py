"""Keeps in the lake which records were accepted to be left out of mirrors, mergers, dispatchers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import LinkRunningError, SinkError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.groups import describe_group
from headrace.links.accepted import AcceptedFolder, AcceptedRange
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
        range_: which records.
        site: the target of a dispatcher; empty for others.
    """

    kind: str
    range_: AcceptedRange
    site: str = ""

    def to_json(self) -> dict[str, object]:
        """Returns what the kind of link has."""
        range_ = self.range_
        return {
            "partition": range_.source.path,
            "next_offset": range_.start,
            "accepted_offset": range_.end,
            **({"lost": range_.offsets} if self.kind == "mirror" else {"reason": range_.reason}),
            **({"site": self.site} if self.site else {}),
        }


def refuse_running(kind: str, link: str, config: ClientConfig, group: str) -> None:
    """Refuses to change positions of a link while members of its group would overwrite them.

    Raises:
        LinkRunningError: if an instance runs.
        BrokerUnreachableError: if the brokers do not answer.
    """
    members = describe_group(config, group).members
    if members:
        raise LinkRunningError(kind, link, len(members))


def accept(
    kind: str,
    folder: AcceptedFolder,
    range_: AcceptedRange,
    commit: Callable[[], None],
    site: str = "",
) -> AcceptedLoss:
    """Leaves records of a link out: writes which, then commits the position after them.

    What was written is removed if the commit fails.

    Args:
        kind: of the link.
        folder: of the link.
        range_: the records.
        commit: commits the position after them.
        site: the target of a dispatcher.

    Raises:
        SinkError: if the lake can't be written; nothing is committed then.
    """
    try:
        folder.write(range_)
    except OSError as error:
        raise SinkError(folder.uri, str(error)) from error
    try:
        commit()
    except BaseException:
        folder.remove(range_)
        raise
    return AcceptedLoss(kind, range_, site)
