"""A registry's topic in memory, in place of Kafka's."""

from __future__ import annotations

from headrace.queries.registry import registrations as query_registry
from headrace.queries.registry import writer
from headrace.queries.registry.record import decode_query
from headrace.queries.registry.table import QueryTable


class MemoryTopic:
    """The records of topics, in place of what reads and writes them.

    Attributes:
        records: key and value of each, by topic.
        ensured: names of standing queries whose topic was created unless it existed.
        taken: offsets of the records that were read, in order.
    """

    def __init__(self, monkeypatch):
        self.records, self.ensured, self.taken = {}, [], []
        monkeypatch.setattr(query_registry, "broker_config", lambda settings: {})
        monkeypatch.setattr(writer, "ensure_registry_topic", self._ensure)
        monkeypatch.setattr(query_registry, "FollowedRegistry", self._followed)
        monkeypatch.setattr(writer, "write_registry", self.write)
        monkeypatch.setattr(writer, "query_records", self._read)

    def write(self, config, name, key, value):
        log = self.records.setdefault(name, [])
        log.append((key, value))
        return len(log) - 1

    def _read(self, config, name, query_id, offsets):
        records = self.records[name][offsets.start : offsets.stop]
        return [
            None if value is None else decode_query(key, value)
            for key, value in records
            if key == query_id.encode()
        ]

    def _ensure(self, config, queries):
        self.ensured.append(queries.name)

    def _followed(self, name, parse):
        return MemoryRegistry(self, name, QueryTable(parse))


class MemoryRegistry:
    """Reads a topic in memory as a followed registry does."""

    def __init__(self, topic, name, table):
        self._topic, self._name, self._table = topic, name, table

    def table(self, config):
        records = self._topic.records.get(self._name, [])
        for offset in range(self._table.next_offset, len(records)):
            self._topic.taken.append(offset)
            self._table.apply(*records[offset], offset)
        return self._table
