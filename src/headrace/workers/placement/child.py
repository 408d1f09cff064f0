"""Runs a process of ``workers run --processes``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from headrace.project.check import load_project
from headrace.runtime.instance_name import process_name
from headrace.runtime.logs import Subject, log_to
from headrace.settings import environment, load_settings
from headrace.workers import Worker
from headrace.workers.output import with_project_topics
from headrace.workers.placement.distributed_run import is_permanent
from headrace.workers.placement.processes import ChildFailure
from headrace.workers.run import WorkerRunOptions, worker_run


def start_child(
    folder: Path, worker: str, options: WorkerRunOptions, log_format: str | None, number: int
) -> tuple[SpawnProcess, Connection]:
    """Starts instance ``number`` of ``worker`` in a process; returns the parent's connection.

    The process is spawned, since librdkafka does not survive a fork.
    """
    instance_id = f"{options.instance_id}-{number}" if options.instance_id else ""
    own = replace(options, instance_id=instance_id, metrics_port=None)
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(
        target=run_child,
        args=(folder, worker, own, log_format, child_end),
        name=f"{worker}-{number}",
    )
    process.start()
    # Else the parent would hold this end open, and never notice that the child has ended.
    child_end.close()
    return process, parent_end


def run_child(
    folder: Path,
    name: str,
    options: WorkerRunOptions,
    log_format: str | None,
    connection: Connection,
) -> None:
    """Runs an instance until the parent stops it, and sends the parent its progress."""
    # A terminal sends Ctrl-C to the whole process group; the parent decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker: Worker | None = None
    try:
        settings = load_settings(folder, environment())
        log_to(
            settings.log,
            stderr=log_format is not None,
            log_format=log_format or "text",
            subject=Subject("worker", name),
        )
        project = load_project(settings)
        worker = with_project_topics(project.declared(Worker)[name], project)
        run = worker_run(settings, worker, options)
        # A supervisor may send SIGTERM to every process of the service, not to the parent alone.
        signal.signal(signal.SIGTERM, lambda *_: run.stop())
        threading.Thread(target=_await_stop, args=(connection, run.stop), daemon=True).start()
        run.run(connection.send)
    except Exception as error:
        instance = options.instance_id or process_name()
        reason = f"{instance}: {str(error) or type(error).__name__}"
        # Without a worker, the error is of the project's files: another start would meet it.
        connection.send(ChildFailure(reason, worker is None or is_permanent(worker, error)))
        raise


def _await_stop(connection: Connection, stop: Callable[[], None]) -> None:
    """Stops the instance at a message of the parent; ends at once if the parent has ended."""
    while True:
        try:
            connection.recv()
        except (EOFError, OSError):
            # Not sys.exit: this is a thread, and the instance would continue without its parent.
            os._exit(1)
        stop()
