"""From which event on a partition's events are matched with the queries of now.

It is committed in a consumer group of its own, so that others can tell which matches there must be:
whatever was matched with other queries is before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import confluent_kafka

from headrace.kafka.client import commit, committed
from headrace.model import TopicPartition
from headrace.queries.matched_events.positions import MatchedTopic, MatchStart
from headrace.queries.matched_events.rules import EmittingRules

_PARTS = 5


@dataclass(frozen=True, slots=True)
class RulesStart:
    """Says where the queries of now begin in a partition of events.

    Attributes:
        offset: of the first event that is matched with all of them.
        topic_id: of the topic of events.
        scan_from: offset in the topic of matched events; what these events have sent is from there
            on.
        registry_id: id of the topic of queries.
        registry_offset: the queries are those before it.
        rules: hash of what tells the queries from others.
    """

    offset: int
    topic_id: str
    scan_from: int
    registry_id: str
    registry_offset: int
    rules: str

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        registry = f"{self.registry_id} {self.registry_offset}"
        return f"{self.topic_id} {self.scan_from} {registry} {self.rules}"

    @classmethod
    def of(cls, committed_at: confluent_kafka.TopicPartition) -> RulesStart | None:
        """Returns what an offset and its metadata say; None: they are of another program."""
        parts = (committed_at.metadata or "").split(" ")
        if len(parts) != _PARTS or not (parts[1].isdecimal() and parts[3].isdecimal()):
            return None
        topic_id, scan_from, registry_id, registry_offset, rules = parts
        offsets = int(scan_from), registry_id, int(registry_offset)
        return cls(committed_at.offset, topic_id, *offsets, rules)


def rules_starts(
    rules: EmittingRules,
    registry_id: str,
    start: MatchStart,
    before: Mapping[TopicPartition, RulesStart],
) -> dict[TopicPartition, RulesStart]:
    """Returns where queries begin that are matched from a start on, by partition.

    Args:
        rules: of the queries.
        registry_id: id of the topic of queries.
        start: where the partitions go on.
        before: where the queries began that were matched until then.
    """
    rules_hash = rules.identities_hash
    starts: dict[TopicPartition, RulesStart] = {}
    for source, at in start.positions.items():
        # Of the event that it goes on with, something was sent: perhaps for other queries.
        begins = [each.get(source.partition, 0) for each in rules.begins.values()]
        offset = max([at.offset + (source in start.sent), *begins])
        scan_from, known = at.scan_from, before.get(source)
        goes_on = known is not None and known.topic_id == at.topic_id
        if known is not None and goes_on and (not rules.has_new or known.rules == rules_hash):
            offset, scan_from = known.offset, known.scan_from
        registry = registry_id, rules.registry_offset
        starts[source] = RulesStart(offset, at.topic_id, scan_from, *registry, rules_hash)
    return starts


def committed_rules_starts(
    matched: MatchedTopic, sources: Collection[TopicPartition]
) -> dict[TopicPartition, RulesStart]:
    """Returns what is committed for partitions of the topic; those without are left out."""
    offsets = committed(matched.config, _group(matched), sources)
    starts = {TopicPartition(each.topic, each.partition): RulesStart.of(each) for each in offsets}
    return {source: start for source, start in starts.items() if start is not None}


def commit_rules_starts(matched: MatchedTopic, starts: Mapping[TopicPartition, RulesStart]) -> None:
    """Commits where the queries begin."""
    offsets = [
        confluent_kafka.TopicPartition(source.topic, source.partition, at.offset, at.metadata)
        for source, at in starts.items()
    ]
    commit(matched.config, _group(matched), offsets)


def _group(matched: MatchedTopic) -> str:
    return f"{matched.group}.rules"
