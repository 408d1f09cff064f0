"""Workers, as a kind of declarations."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model import Topic
from headrace.project.kind import Kind, StatusKind
from headrace.workers.declaration import Worker
from headrace.workers.rules import (
    sends_dead_letters,
    site_faults,
    worker_faults,
    worker_type_faults,
)
from headrace.workers.state.rules import state_topic


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.workers.status import WorkerStatus

    return (StatusKind(name="workers", type=WorkerStatus, view="headrace.workers.progress_view"),)


def _dead_lettered(worker: Worker) -> Iterable[Topic]:
    """The topics at the project's own cluster: at another site they are its own project's."""
    return worker.topics if sends_dead_letters(worker) and not worker.site else ()


def _keeps(worker: Worker) -> Iterable[Topic]:
    return () if worker.state is None else (state_topic(worker),)


KIND = Kind(
    type=Worker,
    label="worker",
    plural="workers",
    hint="`headrace workers` has its commands",
    type_faults=worker_type_faults,
    faults=lambda worker, settings: [*worker_faults(worker), *site_faults(worker, settings)],
    run_command="headrace workers run",
    consumer_group=lambda worker: worker.consumer_group,
    reads=lambda worker: worker.topics,
    looks_up=lambda worker: worker.references.values(),
    dead_lettered=_dead_lettered,
    keeps=_keeps,
    statuses=_statuses,
)
