"""How far a stage has taken the records of its topic."""

from __future__ import annotations

from headrace.kafka.read.log_cuts import Seen


class Stage:
    """Takes the records of one partition of a topic, in their order.

    Attributes:
        offset: the offset of the next record.
        topic_id: the id of the topic that the offset belongs to; empty if it is not known.
        seen: the offset after the last record, and the epoch of the leader that wrote it.
    """

    def __init__(self, offset: int, topic_id: str, seen: Seen) -> None:
        self.offset, self.topic_id, self.seen = offset, topic_id, seen

    def skip_to(self, offset: int) -> None:
        """Continues at this offset, unless it has passed it: no record is before it."""
        self.offset = max(self.offset, offset)

    def note_seen(self, seen: Seen) -> None:
        """Notes the epoch of a record; records of before may be read again after a start."""
        self.seen = max(self.seen, seen)

    def note_topic(self, topic_id: str, first: int) -> None:
        """Notes the id of the topic, and the offset of the first record that it has."""
        self.topic_id = topic_id
        if self.seen.offset < first:
            self.seen = Seen(0)  # a log is not compared at a record that is deleted
