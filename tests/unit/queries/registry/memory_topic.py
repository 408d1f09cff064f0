"""A registry's topic in memory, in place of Kafka's."""

from __future__ import annotations

from headrace.control import query_registry


class MemoryTopic:
    """The records of topics, in place of the functions that read and write them."""

    def __init__(self, monkeypatch):
        self.records, self.ensured = {}, []
        monkeypatch.setattr(query_registry, "broker_config", lambda settings: {})
        monkeypatch.setattr(query_registry, "ensure_registry_topic", self._ensure)
        monkeypatch.setattr(query_registry, "read_registry", self._read)
        monkeypatch.setattr(query_registry, "write_registry", self.write)

    def write(self, config, name, key, value):
        log = self.records.setdefault(name, [])
        log.append((key, value))
        return len(log) - 1

    def _ensure(self, config, queries):
        self.ensured.append(queries.name)

    def _read(self, config, name):
        for offset, (key, value) in enumerate(self.records.get(name, [])):
            yield key, value, offset
