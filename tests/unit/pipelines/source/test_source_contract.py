import uuid

import pytest
from tests.contracts.source import SourceContract

from headrace.testing import MemoryCluster


class MemoryLab:
    def __init__(self):
        self.cluster = MemoryCluster()
        self.create = self.cluster.create
        self.recreate = self.cluster.create
        self.add_partitions = self.cluster.add_partitions
        self.delete_before = self.cluster.delete_before
        self.commit = self.cluster.commit
        self.replay = self.cluster.replay

    def append(self, topic, partition, values, headers=()):
        for value in values:
            self.cluster.append(topic, partition, value, headers=headers)


@pytest.fixture
def topic_name():
    return f"numbers-{uuid.uuid4().hex[:8]}"


class TestMemory(SourceContract):
    @pytest.fixture
    def lab(self):
        return MemoryLab()
