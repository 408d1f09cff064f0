import pytest

from headrace.errors import CheckpointInUseError
from headrace.spark.lock import CheckpointLock


def test_a_second_run_on_one_checkpoint_is_refused_and_told_who_holds_it(tmp_path):
    first, second = CheckpointLock(tmp_path, "p"), CheckpointLock(tmp_path, "p")
    first.acquire()
    with pytest.raises(CheckpointInUseError, match=r"process \d+.*Stop that run first"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_other_pipelines_do_not_mind(tmp_path):
    first, second = CheckpointLock(tmp_path, "p"), CheckpointLock(tmp_path, "q")
    first.acquire()
    second.acquire()
    first.release()
    second.release()
