"""For tests of your own pipelines: topics in memory that behave as the broker's do."""

from headrace.testing.memory import MemoryCluster, MemoryRecord

__all__ = ["MemoryCluster", "MemoryRecord"]
