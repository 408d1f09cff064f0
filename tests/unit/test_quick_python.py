"""The server of forked Python processes outlives whoever asks it."""

import os
import socket
import subprocess
import sys

import pytest
from tests.quick_python import quick_python


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with quick_python(tmp_path_factory.mktemp("quick") / "server") as path:
        yield path


def said(python, *arguments):
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("sent", [b"", b"\0\0", (100).to_bytes(4), (100).to_bytes(4) + b"half"])
def test_one_that_ends_while_it_asks_stops_no_other(python, sent):
    before = said(python, "-m", "this")
    assert before.returncode == 0
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(python.removesuffix("python") + "socket"))
        if sent:
            socket.send_fds(asking, [sent], (0, 1, 2))
    assert said(python, "-m", "this").stdout == before.stdout


def test_a_process_whose_asker_was_killed_keeps_no_other_waiting(python, tmp_path):
    (tmp_path / "slow.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    asking = subprocess.Popen([python, "-m", "slow"], env=environ, stdout=subprocess.PIPE)
    with asking:
        assert asking.stdout.readline() == b"here\n"
        asking.kill()
    for status in (0, 3):
        (tmp_path / f"ends_{status}.py").write_text(f"import sys\nsys.exit({status})\n")
        ended = subprocess.run([python, "-m", f"ends_{status}"], env=environ, check=False)
        assert ended.returncode == status


def test_what_is_no_module_runs_in_a_python_of_its_own(python):
    version = said(python, "-c", "import sys; print(sys.version)")
    assert version.stdout.strip() == sys.version
