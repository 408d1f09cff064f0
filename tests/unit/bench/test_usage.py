"""A tree of processes is ended."""

import subprocess
import sys

import pytest
from bench.usage import end_tree

from headrace.runtime.process_tree import processes

SPIN = "while True: pass"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize("first", ["", DEAF])
def test_nothing_of_an_ended_tree_is_left(first):
    """Not even when its root does not hear the signal."""
    start = f"import subprocess; child = subprocess.Popen({[sys.executable, '-c', SPIN]!r})"
    program = f"{first}\n{start}\nprint(child.pid, flush=True)\nchild.wait()"
    root = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with root.stdout:
        child = int(root.stdout.readline())
        end_tree(root.pid, grace_seconds=0.5)
    root.wait()
    assert all(one.ended for one in processes([root.pid, child]).values())
