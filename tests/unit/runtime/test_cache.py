from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.runtime.cache import cache_folder, exclusive

HOLD = """
import sys, time
from pathlib import Path
from headrace.runtime.cache import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.cache/headrace"),
        ({"HOME": "/home/ada", "XDG_CACHE_HOME": "/var/tmp/c"}, "/var/tmp/c/headrace"),
        ({"XDG_CACHE_HOME": "/var/tmp/c", "HEADRACE_CACHE": "/srv/jars"}, "/srv/jars"),
        ({"HOME": "/home/ada", "HEADRACE_CACHE": ""}, "/home/ada/.cache/headrace"),
    ],
)
def test_the_cache_is_where_the_environment_says(environ, folder):
    assert cache_folder(environ) == Path(folder)


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
