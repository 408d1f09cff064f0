from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.control.checkpoints import parse_partition, progress
from headrace.model import TopicPartition
from headrace.pipelines.lock import CheckpointLock, lock_folder
from headrace.pipelines.progress import PipelineProgress, PipelineState, StatusFolder
from headrace.settings import Settings


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(tmp_path, "ads", ("flow",), str(tmp_path / "lake"))


def write(settings: Settings, state: PipelineState) -> None:
    StatusFolder(settings.state / "status").write(PipelineProgress("p", state, rows_in=5))


def test_a_pipeline_whose_driver_was_killed_is_shown_as_stopped(settings):
    write(settings, PipelineState.RUNNING)
    folder = lock_folder(settings.state, settings.lake)
    script = (
        "import os, pathlib\n"
        "from headrace.pipelines.lock import CheckpointLock\n"
        f"CheckpointLock(pathlib.Path({str(folder)!r}), 'p').acquire()\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    [found] = progress(settings)
    assert (found.state, found.rows_in) == (PipelineState.STOPPED, 5)
    assert "driver is gone" in found.reason


def test_a_pipeline_that_runs_is_shown_as_it_says(settings):
    write(settings, PipelineState.RUNNING)
    lock = CheckpointLock(lock_folder(settings.state, settings.lake), "p")
    lock.acquire()
    assert progress(settings)[0].state is PipelineState.RUNNING
    lock.release()


def test_how_a_pipeline_ended_stays(settings):
    write(settings, PipelineState.FAILED)
    assert progress(settings)[0].state is PipelineState.FAILED


def test_a_partition_is_topic_slash_number():
    assert parse_partition("a.b-c/12") == TopicPartition("a.b-c", 12)
    assert parse_partition("clicks") is None
    assert parse_partition("clicks/x") is None
