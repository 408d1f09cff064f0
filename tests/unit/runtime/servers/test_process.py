"""Servers as processes, with small shell commands as servers."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.errors import ServerStartError
from headrace.runtime.servers.process import ProcessIdentity, ServerProcess, stopped_on_failure

SOON = timedelta(seconds=30)


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


SLEEP = shell("echo up; exec sleep 1000")


@pytest.fixture
def server(tmp_path) -> Iterator[ServerProcess]:
    server = ServerProcess("sleeper", tmp_path / "server")
    yield server
    server.kill()


def prints(server: ServerProcess, word: str) -> None:
    server.wait_until(lambda: word in server.last_lines(), SOON)


def test_a_started_server_runs_in_a_session_of_its_own_and_logs_to_a_file(server):
    server.start(shell("echo out; echo err >&2; exec sleep 1000"))
    prints(server, "err")
    assert server.alive()
    assert os.getsid(server.pid) == server.pid
    assert server.last_lines() == "out\nerr"


def test_starting_twice_is_one_server(server):
    server.start(SLEEP)
    pid = server.pid
    server.start(SLEEP)
    assert server.pid == pid


def test_any_other_object_for_the_folder_knows_and_stops_it(server):
    server.start(SLEEP)
    other = ServerProcess("sleeper", server.folder)
    assert other.pid == server.pid
    other.stop(SOON)
    assert not server.alive()


def test_a_server_that_ignores_sigterm_is_killed(server):
    server.start(shell("trap '' TERM; echo up; while true; do sleep 0.1; done"))
    prints(server, "up")
    server.stop(timedelta(seconds=0.2))
    assert not server.alive()


def test_a_server_that_can_end_by_itself_is_not_killed(server):
    server.start(shell("trap 'echo bye; exit 0' TERM; echo up; while true; do sleep 0.1; done"))
    prints(server, "up")
    server.stop(SOON)
    assert server.last_lines() == "up\nbye"


def test_a_paused_server_is_alive_and_can_be_stopped(server):
    server.start(SLEEP)
    server.pause()
    assert server.alive()
    server.stop(SOON)
    assert not server.alive()


BUSY = """
import hashlib, threading
def work():
    while True:
        hashlib.sha256(bytes(3_000_000))
for _ in range(6):
    threading.Thread(target=work).start()
print("busy", flush=True)
"""


def test_each_thread_of_a_paused_server_stands_still(server):
    """Else a drill goes on beside a broker that answers for a while."""
    server.start([sys.executable, "-c", BUSY])
    prints(server, "busy")
    server.pause()
    stats = Path(f"/proc/{server.pid}/task").glob("*/stat")
    assert {stat.read_text().rpartition(")")[2].split()[0] for stat in stats} == {"T"}


def test_a_recycled_pid_is_left_alone(server, tmp_path):
    server.start(SLEEP)
    stranger = ServerProcess("stranger", tmp_path / "stranger")
    stranger.folder.mkdir()
    state = json.loads((server.folder / "process.json").read_text())
    state["started"] = state["started"].rpartition(":")[0] + ":1"
    (stranger.folder / "process.json").write_text(json.dumps(state))
    assert stranger.pid is None
    stranger.kill()
    stranger.stop(SOON)
    assert server.alive()


@pytest.mark.parametrize("state", ["", "{", "{}", '{"pid": 1}', "[]"])
def test_a_state_file_that_says_nothing_means_nothing_runs(server, state):
    server.folder.mkdir()
    (server.folder / "process.json").write_text(state)
    assert not server.alive()
    server.stop(SOON)


def test_a_process_that_ended_is_not_alive_although_nobody_waited_for_it(server):
    server.start(SLEEP)
    identity = server.identity
    os.kill(identity.pid, signal.SIGKILL)
    os.waitid(os.P_PID, identity.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessIdentity.of(identity.pid) is None
    assert not server.alive()


def test_waiting_ends_early_when_the_server_does_and_quotes_its_last_lines(server):
    server.start(shell("echo 'the port is taken'; exit 3"))
    with pytest.raises(ServerStartError, match="it ended") as caught:
        server.wait_until(lambda: False, SOON)
    assert "the port is taken" in caught.value.reason
    assert caught.value.log == str(server.folder / "server.log")


def test_waiting_ends_at_its_deadline(server):
    server.start(SLEEP)
    with pytest.raises(ServerStartError, match="it was not ready after 0 s"):
        server.wait_until(lambda: False, timedelta(seconds=0.1))


def test_a_command_that_does_not_exist_is_a_start_error(server):
    with pytest.raises(ServerStartError, match="No such file"):
        server.start(["/nonexistent/java"])


def test_each_run_has_its_own_log_and_the_one_before_is_kept(server):
    for run in ("first", "second"):
        server.start(shell(f"echo {run}; exec sleep 1000"))
        prints(server, run)
        server.kill()
    assert server.last_lines() == "second"
    assert Path(f"{server.log}.1").read_text() == "first\n"


def test_a_start_that_fails_leaves_nothing_running(server):
    def fail() -> None:
        with stopped_on_failure([server]):
            server.start(SLEEP)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert server.identity is not None
    assert not server.alive()
