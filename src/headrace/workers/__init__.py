"""Workers: records processed one at a time, in lanes that share a consumer."""

from headrace.errors import InvalidRecordError
from headrace.workers.instance import WorkerInstance
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
