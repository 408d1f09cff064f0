"""For tests of your own pipelines, workers and sinks.

:class:`MemoryCluster` is topics in memory that behave as the broker's do. :class:`WorkerBench` runs
a worker on records that the test gives it, without Kafka. :class:`SinkContract` is the suite that
every sink must pass.
"""

import sys

# Before the suite is imported: pytest shows the values in a failed assertion only in modules that
# it has rewritten, which it does unasked for tests alone.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(
        "headrace.testing.sink_contract", "headrace.testing.sink_lab"
    )

from headrace.testing.bench_instance import FedRecord, Outcome, SentRecord
from headrace.testing.memory import MemoryCluster, MemoryRecord
from headrace.testing.sink_contract import SinkContract
from headrace.testing.sink_lab import SinkLab
from headrace.testing.worker_bench import WorkerBench

__all__ = [
    "FedRecord",
    "MemoryCluster",
    "MemoryRecord",
    "Outcome",
    "SentRecord",
    "SinkContract",
    "SinkLab",
    "WorkerBench",
]
