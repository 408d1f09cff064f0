"""Measures a worker: an instance of it, on a topic with the sample."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import uvloop

from headrace.errors import HeadraceError, MeasurementError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.subscription import Membership
from headrace.model import Start, Topic
from headrace.operations.measuring.result import (
    MeasuredDeclaration,
    Round,
    UserTime,
    machine,
    memory,
    now,
    versions,
)
from headrace.operations.measuring.rounds import MeasureOptions, OnStep
from headrace.operations.measuring.sample import sample_of, used
from headrace.operations.measuring.scratch import Filler, scratch_group, scratch_topics
from headrace.operations.measuring.user_time import UserClock, timed
from headrace.runtime.error_text import error_text
from headrace.runtime.process_tree import Watch
from headrace.settings import Settings
from headrace.workers import Skip, Worker, WorkerInstance
from headrace.workers.output import MakeOutput, WorkerOutput, output_of
from headrace.workers.run import source_config
from headrace.workers.schemas import with_schemas
from headrace.workers.tasks.function_task import FunctionFactory
from headrace.workers.tasks.sent_events import encoding
from headrace.workers.tasks.task import Headers
from headrace.workers.timing import WorkerTiming

NOT_MEASURED = (
    "failure policy: failed records are skipped, without retries and dead letters",
    "sends: they go to one topic with one partition, not to their own",
    "other instances: one instance was run, with one partition of each topic",
)
# A function that takes longer for its first record is not one to size by records a second.
_FIRST_SECONDS = 120.0
_POLL_SECONDS = 0.02
# More than a round needs at the rate so far, so that it does not run dry.
_MARGIN = 1.5
_FIRST_FILL = 20_000


@dataclass
class _Counted:
    """What tasks have sent."""

    records: int = 0
    bytes: int = 0


def _counted_output(scratch: str, counted: _Counted) -> MakeOutput:
    """Returns what makes the output of an instance: to one topic, whatever a task names."""
    counting = threading.Lock()

    def make(
        worker: Worker, config: ClientConfig, source: ClientConfig, timing: WorkerTiming
    ) -> WorkerOutput:
        output = output_of(worker, config, source, timing)

        def send(
            topic: str,  # noqa: ARG001 - the scratch topic is it for all
            value: bytes | None,
            *,
            key: bytes | None = None,
            headers: Headers = (),
            partition: int = -1,  # noqa: ARG001 - the topic has one
        ) -> Awaitable[None]:
            with counting:
                counted.records += 1
                counted.bytes += len(value or b"") + len(key or b"")
            return output.send(scratch, value, key=key, headers=headers)

        return replace(output, send=encoding(send, worker.event_topics))

    return make


@dataclass
class _Measurement:
    """One measurement, while its instance runs.

    Attributes:
        worker: as it is run.
        instance: that runs it.
        filler: of its topics.
        watch: of this process.
        options: of the command.
        counted: what its tasks have sent.
        clock: of its function.
    """

    worker: Worker
    instance: WorkerInstance
    filler: Filler
    watch: Watch
    options: MeasureOptions
    on_step: OnStep
    counted: _Counted
    clock: UserClock
    user_seconds: list[float] = field(default_factory=list)

    async def run(self) -> tuple[list[Round], UserTime | None]:
        """Runs the instance until all rounds are over."""
        running = asyncio.ensure_future(self.instance.run())
        measuring = asyncio.ensure_future(self._rounds())
        try:
            await asyncio.wait({running, measuring}, return_when=asyncio.FIRST_COMPLETED)
            if not measuring.done():  # it ended by itself, and says why
                await running
            return await measuring
        finally:
            measuring.cancel()
            self.instance.stop()
            with contextlib.suppress(BaseException):  # what it raises was raised above
                await running

    @property
    def _done(self) -> int:
        return self.instance.counts["processed"] + self.instance.counts["tombstones"]

    async def _rounds(self) -> tuple[list[Round], UserTime | None]:
        steps = self.options.rounds + 2
        self.on_step(0, steps, f"{self.worker.name} starts, and reads its references")
        await self._fill(min(self.filler.most, _FIRST_FILL))
        await self._first_record()
        self.on_step(1, steps, f"warm-up, {self.options.warm_up_seconds:g} s")
        warm_up = await self._round(self.options.warm_up_seconds)
        self._check_failures(warm_up)
        rounds, user = [], (self.clock.calls, self.clock.seconds, self.clock.cpu_seconds)
        per_second = warm_up.records_per_second
        for number in range(self.options.rounds):
            self.on_step(2 + number, steps, f"round {number + 1} of {self.options.rounds}")
            await self._refill(per_second)
            rounds.append(await self._round(self.options.round_seconds))
            per_second = rounds[-1].records_per_second
        return rounds, self._user_time(user, rounds)

    async def _first_record(self) -> None:
        deadline = time.perf_counter() + _FIRST_SECONDS
        while not self._done:
            if time.perf_counter() > deadline:
                reason = f"no record was done within {_FIRST_SECONDS:g} s"
                raise MeasurementError(self.worker.name, reason)
            await asyncio.sleep(_POLL_SECONDS)

    async def _fill(self, count: int) -> None:
        await asyncio.to_thread(self.filler.fill, count)

    async def _refill(self, per_second: float) -> None:
        """Fills its topics until a round has enough, while records are processed."""
        enough = min(self.filler.most, int(per_second * self.options.round_seconds * _MARGIN) + 1)
        while (missing := enough - (self.filler.filled - self._done)) > 0:
            await self._fill(missing)

    async def _round(self, seconds: float) -> Round:
        """Measures from now on, until the time is over or nothing is left to process.

        At least one record is done in it.
        """
        if self.filler.filled <= self._done:  # it was faster than the last round
            await self._fill(_FIRST_FILL)
        skipped, sent = self.instance.counts["skipped"], replace(self.counted)
        user_cpu, cpu = self.clock.cpu_seconds, self.watch.cpu_seconds()
        done, begin = self._done, time.perf_counter()
        while time.perf_counter() < begin + seconds or self._done == done:
            if self.filler.filled <= self._done:
                break
            await asyncio.sleep(_POLL_SECONDS)
        records, elapsed = self._done - done, time.perf_counter() - begin
        self.user_seconds.append(self.clock.cpu_seconds - user_cpu)
        return Round(
            elapsed,
            max(1, records),
            self.instance.counts["skipped"] - skipped,
            self.watch.cpu_seconds() - cpu,
            self.counted.records - sent.records,
            self.counted.bytes - sent.bytes,
        )

    def _check_failures(self, warm_up: Round) -> None:
        if warm_up.failed < warm_up.records:
            return
        error = self.clock.first_error
        reason = f"all of {warm_up.records} records failed"
        if error is not None:
            reason += f", the first one with {error_text(error)}"
        raise MeasurementError(self.worker.name, f"{reason}; the log has the traceback")

    def _user_time(self, before: tuple[int, float, float], rounds: list[Round]) -> UserTime | None:
        calls, seconds, _ = before
        if self.clock.calls == calls:
            return None
        # Of the rounds alone: between them the topics are filled.
        used = sum(self.user_seconds[-len(rounds) :])
        share = used / max(sum(a_round.cpu_seconds for a_round in rounds), used, 1e-9)
        return UserTime(
            (self.clock.seconds - seconds) / (self.clock.calls - calls), min(1.0, share)
        )


def measure_worker(
    settings: Settings, worker: Worker, options: MeasureOptions, on_step: OnStep
) -> MeasuredDeclaration:
    """Runs an instance of ``worker`` on samples of its topics, and measures it.

    Its function is called as an instance calls it: what it does other than by ``send`` is done.

    Raises:
        MeasurementError: if there is no sample, or all records fail.
        TopicMissingError: if a topic does not exist.
        BrokerUnreachableError: if the brokers do not answer.
        HeadraceError: why the instance ended.
    """
    config = source_config(settings, worker)
    samples = {
        topic.name: sample_of(config, settings, topic, options.records, options.file)
        for topic in worker.topics
    }
    with ExitStack() as stack:
        watch = stack.enter_context(Watch(os.getpid()))
        topics = stack.enter_context(scratch_topics(config, worker.topics))
        [sent_to] = stack.enter_context(scratch_topics(config, [Topic("sent")]))
        group = stack.enter_context(scratch_group(config))
        origins = dict(zip((topic.name for topic in topics), samples, strict=True))
        filler = Filler(config, [(name, samples[origin]) for name, origin in origins.items()])
        clock, counted = UserClock(), _Counted()
        isolated = _isolated(with_schemas(worker, settings), topics, group, clock, origins)
        instance = WorkerInstance(
            isolated,
            config,
            membership=Membership(group),
            make_output=_counted_output(sent_to.name, counted),
        )
        rounds, user = _run(
            _Measurement(isolated, instance, filler, watch, options, on_step, counted, clock)
        )
    return MeasuredDeclaration(
        "worker",
        worker.name,
        options.command,
        now(),
        versions(),
        machine(),
        used(samples, filler.mean_bytes),
        tuple(rounds),
        *memory(watch.usage),
        user,
        NOT_MEASURED,
    )


def _run(measurement: _Measurement) -> tuple[list[Round], UserTime | None]:
    try:
        return uvloop.run(measurement.run())
    except HeadraceError:
        raise
    except Exception as error:  # of the user's lifespan, or of `init`
        raise MeasurementError(measurement.worker.name, error_text(error)) from error


def _isolated(
    worker: Worker,
    topics: list[Topic],
    group: str,
    clock: UserClock,
    origins: Mapping[str, str],
) -> Worker:
    """Returns ``worker`` on other topics, in another group, and without writes of a policy."""
    task = worker.task
    if isinstance(task, FunctionFactory):
        task = timed(replace(task, topics=tuple(topics)), clock, origins)
    return replace(
        worker, topic=tuple(topics), task=task, group=group, on_failure=Skip(), start=Start.EARLIEST
    )
