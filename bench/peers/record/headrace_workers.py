"""One instance of a headrace worker, ended with SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from functools import partial

import uvloop

from bench.peers.record.job import COMMIT_SECONDS, SEND, Job, this
from headrace.model import Guarantee, Topic
from headrace.workers import RoundRobin, Send, Worker, WorkerInstance, WorkerRecord
from headrace.workers.tasks.function_task import FunctionFactory


async def call(job: Job, _: WorkerRecord) -> None:
    await asyncio.sleep(job.work_seconds)


def burn(job: Job, _: WorkerRecord) -> None:
    job.work()


async def copy(job: Job, record: WorkerRecord, send: Send) -> None:
    send(job.out, record.value)


def worker(job: Job) -> Worker:
    function = {"call": call, "cpu": burn, SEND: copy}[job.kind]
    return Worker(
        job.group,
        Topic(job.topic),
        FunctionFactory(partial(function, job)),
        partitioner=RoundRobin(job.subpartitions),
        commit_every=timedelta(seconds=COMMIT_SECONDS),
        parallelism=job.threads,
        guarantee=Guarantee.EXACTLY_ONCE if job.is_exactly_once else Guarantee.AT_LEAST_ONCE,
    )


async def main(job: Job) -> None:
    instance = WorkerInstance(worker(job), {"bootstrap.servers": job.bootstrap})
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, instance.stop)
    await instance.run()


if __name__ == "__main__":
    uvloop.run(main(this()))  # as `headrace workers run` does
