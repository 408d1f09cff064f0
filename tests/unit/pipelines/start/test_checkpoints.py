from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace import Lake, Pipeline
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.model import Topic, TopicPartition
from headrace.pipelines.run.last_status import pipeline_progress
from headrace.pipelines.start import checkpoints
from headrace.pipelines.start.checkpoints import parse_partition, standing
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State, StatusFolder
from headrace.settings import Settings
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.table import LakeTable
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.layout import TableLayout
from headrace.spark.lock import CheckpointLock, lock_folder


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(tmp_path, "ads", ("flow",), str(tmp_path / "lake"))


def write(settings: Settings, state: State) -> None:
    folder = StatusFolder(settings.state, PipelineStatus)
    folder.write(PipelineStatus("p", state, rows_in=5))


def test_a_pipeline_whose_driver_was_killed_has_failed(settings):
    write(settings, State.RUNNING)
    folder = lock_folder(settings.state, settings.lake)
    script = (
        "import os, pathlib\n"
        "from headrace.spark.lock import CheckpointLock\n"
        f"CheckpointLock(pathlib.Path({str(folder)!r}), 'p').acquire()\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    [found] = pipeline_progress(settings)
    assert (found.state, found.rows_in) == (State.FAILED, 5)
    assert "driver has died" in found.reason


def test_a_pipeline_that_runs_is_shown_as_it_says(settings):
    write(settings, State.RUNNING)
    lock = CheckpointLock(lock_folder(settings.state, settings.lake), "p")
    lock.acquire()
    assert pipeline_progress(settings)[0].state is State.RUNNING
    lock.release()


def test_how_a_pipeline_ended_stays(settings):
    write(settings, State.FAILED)
    assert pipeline_progress(settings)[0].state is State.FAILED


def test_a_partition_is_topic_slash_number():
    assert parse_partition("a.b-c/12") == TopicPartition("a.b-c", 12)
    assert parse_partition("clicks") is None
    assert parse_partition("clicks/x") is None


@pytest.fixture
def live(monkeypatch):
    topic = LiveTopic("clicks", "iI2m", 2, 1)
    partitions = topic.all_partitions
    monkeypatch.setattr(checkpoints, "broker_config", lambda _: {})
    monkeypatch.setattr(checkpoints, "describe", lambda *_: {"clicks": topic})
    monkeypatch.setattr(checkpoints, "group_offsets", lambda *_: {partitions[0]: 38})
    monkeypatch.setattr(checkpoints, "watermarks", lambda *_: dict.fromkeys(partitions, (5, 50)))


def test_a_standing_shows_where_the_table_is_beside_the_group(settings, live):
    recorded = {"headrace.p": 3, "headrace.p/3": 7, "headrace.p/3/clicks/iI2m/0": 40}
    columns = pa.schema([("n", pa.int64())])
    spec = WriteSpec(f"{settings.lake}/clicks", columns, TableLayout())
    LakeTable(spec).commit([], Transaction(recorded, {}))
    found = standing(settings, Pipeline("p", Topic("clicks"), Lake("clicks")))
    assert [(one.table, one.committed, one.latest) for one in found.positions] == [
        (40, 38, 50),
        (None, None, 50),
    ]


def test_a_standing_after_a_restore_is_where_a_reset_to_the_table_begins(settings, live):
    spec = WriteSpec(f"{settings.lake}/clicks", pa.schema([("n", pa.int64())]), TableLayout())
    for at, before in ((40, None), (50, 40)):
        versions = {"headrace.p": 1, "headrace.p/1": at, "headrace.p/1/clicks/iI2m/0": at}
        metadata = {"pipeline": "p"}
        LakeTable(spec).commit([], Transaction(versions, {"headrace.p/1": before}, metadata))
    DeltaTable(f"{settings.lake}/clicks").restore(0)
    found = standing(settings, Pipeline("p", Topic("clicks"), Lake("clicks")))
    assert [each.table for each in found.positions] == [40, None]
