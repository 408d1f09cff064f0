"""Drivers of one pipeline that wait for each other, and events that come meanwhile."""

import itertools
import json
import os
import signal
import subprocess
import threading

from tests.acceptance.project import Project, kill_session
from tests.waiting import LIMIT_SECONDS, wait_for_drill

WARM_SECONDS = 120.0


class Traffic:
    """Sends a hundred events every tenth of a second on a thread, until the block ends."""

    def __init__(self, project: Project):
        self._project = project
        self.events = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.1):
            self._project.send(self.events, 100)
            self.events += 100


class Drivers:
    """Starts drivers with ``--standby``, and knows which one is active.

    Args:
        project: has one pipeline, ``fused``.
    """

    def __init__(self, project: Project):
        self._project = project
        self._running: dict[int, subprocess.Popen] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._running.values():
            kill_session(process)

    def start(self) -> subprocess.Popen:
        """Starts a driver, and returns once it is active, or warm."""
        process = self._project.start("run", "fused", "--standby")
        self._running[process.pid] = process
        what = f"driver {process.pid} to be active or warm"
        wait_for_drill(lambda: self.is_active(process) or self.is_warm(process), what)
        return process

    def status(self, process: subprocess.Popen) -> dict:
        folder = self._project.folder / ".headrace" / "status" / "drivers"
        for path in folder.glob(f"fused.*{process.pid}*.json"):
            try:
                return json.loads(path.read_text())
            except (OSError, ValueError):
                return {}
        assert process.poll() is None, self._project.output()
        return {}

    def is_active(self, process: subprocess.Popen) -> bool:
        return self.status(process).get("state") == "running"

    def is_warm(self, process: subprocess.Popen) -> bool:
        status = self.status(process)
        age = status.get("warm_age_seconds")
        return status.get("state") == "waiting" and age is not None and age < WARM_SECONDS

    def kill(self, process: subprocess.Popen) -> None:
        """SIGKILL to a driver and all that it started."""
        kill_session(self._running.pop(process.pid))

    def signal(self, process: subprocess.Popen, number: int) -> None:
        """A signal to the driver and all that it started, as a machine freezes."""
        os.killpg(process.pid, number)

    def end(self, process: subprocess.Popen) -> None:
        """SIGTERM to the driver alone; returns at once."""
        os.kill(process.pid, signal.SIGTERM)

    def ended(self, process: subprocess.Popen) -> int:
        """Returns the exit code of a driver that got SIGTERM."""
        self._running.pop(process.pid)
        return process.wait(LIMIT_SECONDS)

    def commits(self) -> list[float]:
        """When the batches were committed, in seconds since 1970."""
        times = []
        log = self._project.folder / ".headrace" / "lake" / "fused" / "_delta_log"
        for path in sorted(log.glob("*.json")):
            for line in path.read_text().splitlines():
                info = json.loads(line).get("commitInfo", {})
                if "headrace" in info:
                    times.append(info["timestamp"] / 1000)
        return times

    def committed_after(self, at: float) -> float:
        """Returns the time of the first commit after ``at``, once there is one."""
        what = f"a commit after {at}; output:\n{self._project.output()}"
        return wait_for_drill(lambda: next((t for t in self.commits() if t > at), None), what)

    def longest_gap(self, since: float) -> float:
        """Returns the longest time between two commits since ``since``, in seconds."""
        times = sorted(at for at in self.commits() if at >= since)
        return max(later - earlier for earlier, later in itertools.pairwise(times))
