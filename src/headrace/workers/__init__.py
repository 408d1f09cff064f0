"""Workers: records processed one at a time, in lanes that share a consumer."""

from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRecordError
from headrace.workers.partitioner import KeyHash, OneToOne, RoundRobin, WorkerPartitioner
from headrace.workers.policy import DeadLetters, Retry, RetryTopics, Skip, Stop
from headrace.workers.task import (
    BatchWorkerTask,
    RecordStatusObserver,
    Send,
    WorkerRecord,
    WorkerSubpartition,
    WorkerTask,
)
from headrace.workers.worker import Worker, worker

if TYPE_CHECKING:
    from headrace.workers.instance import WorkerInstance

__all__ = [
    "BatchWorkerTask",
    "DeadLetters",
    "InvalidRecordError",
    "KeyHash",
    "OneToOne",
    "RecordStatusObserver",
    "Retry",
    "RetryTopics",
    "RoundRobin",
    "Send",
    "Skip",
    "Stop",
    "Worker",
    "WorkerInstance",
    "WorkerPartitioner",
    "WorkerRecord",
    "WorkerSubpartition",
    "WorkerTask",
    "worker",
]


def __getattr__(name: str) -> Any:
    """What runs a worker, when it is asked for: declaring one needs no Kafka client."""
    if name != "WorkerInstance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace.workers.instance import WorkerInstance

    return WorkerInstance
