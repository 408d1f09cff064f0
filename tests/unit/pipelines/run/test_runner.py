"""Which pipelines a run with `--once` starts, and which wait for others."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from headrace import Join, Kafka, Lake, Pipeline, Topic, enrich
from headrace.pipelines.run import runner
from headrace.pipelines.run.pipeline_run import POLL_INTERVAL_SECONDS, Deployment
from headrace.pipelines.run.runner import Driver, due, run_pipelines
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State
from headrace.settings.model import Settings


class Event:
    event_id: str


def topic(name: str) -> Topic:
    return Topic(name, event=Event, key="event_id")


def run(pipeline: Pipeline, *, ended: bool = False) -> SimpleNamespace:
    return SimpleNamespace(pipeline=pipeline, progress=SimpleNamespace(has_ended=ended))


A, B, C = topic("a"), topic("b"), topic("c")
A_TO_B = Pipeline("a-to-b", A, Kafka(B))
B_TO_LAKE = Pipeline("b-to-lake", B, Lake("b"))


def test_what_reads_a_topic_waits_until_its_writer_has_ended() -> None:
    writer, reader = run(A_TO_B), run(B_TO_LAKE)
    beside = run(Pipeline("a-to-lake", A, Lake("a")))
    assert due([reader, writer, beside]) == [writer, beside]
    ended = run(A_TO_B, ended=True)
    assert due([reader, ended, beside]) == [reader, beside]


def test_what_joins_a_topic_or_looks_values_up_in_it_waits_too() -> None:
    join = Join(C, B, on=("event_id", "event_id"), column="b", within=None, wait=None)
    lookup = enrich(B, by="event_id", columns=["event_id"])
    for reader in (
        Pipeline("join", join, Lake("joined")),
        Pipeline("lookup", C, Lake("looked_up"), steps=[lookup]),
    ):
        writer = run(A_TO_B)
        assert due([run(reader), writer]) == [writer]


def test_what_writes_to_a_side_table_is_waited_for() -> None:
    writer = run(Pipeline("late", A, Lake("a"), late_data=Kafka(B)))
    assert due([run(B_TO_LAKE), writer]) == [writer]


def test_pipelines_that_wait_for_each_other_all_start() -> None:
    ring = [run(A_TO_B), run(Pipeline("b-to-a", B, Kafka(A)))]
    assert due(ring) == ring


class Waits(threading.Event):
    """Notes how long it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return False


class EndsAtTheSecondPoll:
    """Stands for a pipeline."""

    def __init__(self, _spark: object, _settings: Settings, pipeline: Pipeline, *_: object, **__):
        self.pipeline, self.polls = pipeline, 0

    @property
    def progress(self) -> SimpleNamespace:
        return SimpleNamespace(has_ended=self.polls == 2, state=State.RUNNING)

    def poll(self) -> None:
        self.polls += 1

    def stop(self) -> None:
        pass


def test_a_run_ends_without_a_wait_once_its_pipelines_have_ended(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(runner, "PipelineRun", EndsAtTheSecondPoll)
    settings = Settings(root=tmp_path, name="p", modules=(), lake=str(tmp_path))
    driver = Driver(None, settings, Deployment("127.0.0.1:1", str(tmp_path), "local[1]", {}))
    stop = Waits()
    outcomes = driver.run([A_TO_B], once=True, observe=lambda _: None, stop=stop)
    assert [progress.has_ended for progress in outcomes.values()] == [True]
    assert stop.seconds == [POLL_INTERVAL_SECONDS, 0.0]


def test_a_run_says_that_spark_is_starting_before_it_waits_for_it(tmp_path, monkeypatch) -> None:
    shown: list[Mapping[str, PipelineStatus]] = []

    def started(*_: object, **__: object) -> None:
        [progress] = shown[0].values()
        assert (progress.state, progress.reason) == (State.STARTING, "Spark is starting")
        raise InterruptedError

    monkeypatch.setattr("headrace.pipelines.run.runner.start_session", started)
    settings = Settings(root=tmp_path, name="p", modules=(), lake=str(tmp_path))
    with pytest.raises(InterruptedError):
        run_pipelines(
            settings,
            [A_TO_B],
            deployment=Deployment("127.0.0.1:1", str(tmp_path), "local[1]", {}),
            once=True,
            observe=shown.append,
            stop=threading.Event(),
        )
    assert list(shown[0]) == ["a-to-b"]
