from headrace.errors import InvalidRecordError

from .declaration import Worker, worker
from .instance import WorkerInstance
from .monitoring.metrics_server import run_with_metrics
from .tasks.partitioner import KeyHash, OneToOne, RoundRobin, WorkerPartitioner
from .tasks.policy import DeadLetters, Retry, RetryTopics, Skip, Stop
from .tasks.references import References
from .tasks.state import KeyState
from .tasks.task import (
    BatchWorkerTask,
    RecordStatusObserver,
    Send,
    WorkerRecord,
    WorkerSubpartition,
    WorkerTask,
)
from .tasks.timers import KeyTimers, Timer

__all__ = [
    "BatchWorkerTask",
    "DeadLetters",
    "InvalidRecordError",
    "KeyHash",
    "KeyState",
    "KeyTimers",
    "OneToOne",
    "RecordStatusObserver",
    "References",
    "Retry",
    "RetryTopics",
    "RoundRobin",
    "Send",
    "Skip",
    "Stop",
    "Timer",
    "Worker",
    "WorkerInstance",
    "WorkerPartitioner",
    "WorkerRecord",
    "WorkerSubpartition",
    "WorkerTask",
    "run_with_metrics",
    "worker",
]
