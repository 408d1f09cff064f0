"""Workers, as a kind of declarations."""

from __future__ import annotations

from headrace.project.kind import Kind, StatusKind
from headrace.workers.declaration import Worker
from headrace.workers.rules import sends_dead_letters, worker_faults, worker_type_faults


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.workers.status import WorkerStatus

    return (StatusKind(name="workers", type=WorkerStatus, view="headrace.workers.progress_view"),)


KIND = Kind(
    type=Worker,
    label="worker",
    plural="workers",
    hint="`headrace workers` has its commands",
    type_faults=worker_type_faults,
    faults=lambda worker, _: worker_faults(worker),
    run_command="headrace workers run",
    consumer_group=lambda worker: worker.consumer_group,
    reads=lambda worker: worker.topics,
    looks_up=lambda worker: worker.references.values(),
    dead_lettered=lambda worker: worker.topics if sends_dead_letters(worker) else (),
    statuses=_statuses,
)
