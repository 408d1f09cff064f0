from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from headrace.runtime.files.file_locks import FileLock, ProcessLock, exclusive, open_lock_file
from headrace.runtime.servers.process import ProcessIdentity

HOLD = """
import sys, time
from pathlib import Path
from headrace.runtime.files.file_locks import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""
HOLD_WITH_NAME = """
import sys, time
from pathlib import Path
from headrace.runtime.files.file_locks import ProcessLock
print(ProcessLock(Path(sys.argv[1])).try_acquire(address="here"), flush=True)
time.sleep(1000)
"""


def test_a_lock_is_free_again_when_its_holder_was_killed(tmp_path):
    lock = tmp_path / "folder" / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        with exclusive(lock):
            assert lock.exists()


def test_a_held_lock_makes_others_wait(tmp_path):
    lock = tmp_path / "lock"
    with exclusive(lock):
        other = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=1)
    with other:
        assert other.stdout.readline() == b"held\n"
        other.kill()


def test_two_open_files_exclude_each_other_in_one_process_too(tmp_path):
    first, second = (open_lock_file(tmp_path / "lock") for _ in range(2))
    assert FileLock(first).try_acquire()
    assert not FileLock(second).try_acquire()
    os.close(first)
    assert FileLock(second).try_acquire()
    os.close(second)


def test_a_process_lock_names_its_holder_while_that_lives(tmp_path):
    lock = ProcessLock(tmp_path / "lock")
    assert lock.holder() is None
    command = [sys.executable, "-c", HOLD_WITH_NAME, tmp_path / "lock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"True\n"
        assert not lock.try_acquire(address="there")
        holder = lock.holder()
        assert (holder.process.pid, holder.facts) == (other.pid, {"address": "here"})
        other.kill()
        other.wait()
        assert lock.holder() is None
    assert lock.try_acquire(address="a shorter text than before")
    assert lock.try_acquire()
    assert lock.holder().process.pid == os.getpid()
    lock.release()


def test_another_life_of_the_holders_process_id_is_not_the_holder(tmp_path):
    me = ProcessIdentity.of(os.getpid())
    known = {"pid": me.pid, "started": "of another boot:1", "facts": {}}
    (tmp_path / "lock").write_text(json.dumps(known))
    assert ProcessLock(tmp_path / "lock").holder() is None


@pytest.mark.parametrize("text", ["", "process 12", "[1]", "{}", '{"pid": 1, "started": "x"}'])
def test_a_lock_file_that_cannot_be_read_names_nobody(tmp_path, text):
    (tmp_path / "lock").write_text(text)
    assert ProcessLock(tmp_path / "lock").holder() is None
