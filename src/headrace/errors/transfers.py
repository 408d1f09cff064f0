"""Why records can't be moved from topics to others: what mirrors and mergers have in common."""

from __future__ import annotations

from headrace.errors.base import RefusedError

_ANY_TIME = 2**63 - 1


class TransferRecordError(RefusedError):
    """A record can't be written as it is.

    Attributes:
        partition: of the source, as ``topic/partition``.
    """

    partition: str

    @property
    def source(self) -> tuple[str, int]:
        """Returns the topic and the number of the partition."""
        topic, _, number = self.partition.rpartition("/")
        return topic, int(number)


def way_to_keep(topic: str, setting: str) -> str:
    """Returns how a topic takes the record that it refuses now; empty: by no setting of it.

    Args:
        topic: its name.
        setting: of the topic, by which brokers refuse the record.
    """
    if setting == "max.message.bytes":
        return f"To keep it: give {topic} a larger max.message.bytes than its sources have."
    if setting == "cleanup.policy":
        return f"To keep it: let {topic} not be compacted, or no record would be without a key."
    if setting:
        return f'To keep it: give {topic} config={{"{setting}": "{_ANY_TIME}"}}.'
    return ""
