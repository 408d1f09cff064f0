"""A server as a process of its own, which outlives the command that started it."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from headrace.errors import ServerStartError
from headrace.runtime.files.json_files import read_json, write_json

_POLL_SECONDS = 0.05
_LOG_LINES = 15
# Places in /proc/<pid>/stat after the state, see proc_pid_stat(5).
_THREADS = 16
_START_TIME = 18
_MAX_PID = 2**31 - 1
# In the C locale, Java 17 takes no file name that isn't ASCII.
FILE_NAMES_LOCALE = "C.UTF-8"


def child_environ() -> dict[str, str]:
    """What a Java process inherits: everything, and a locale in which it can open any file."""
    return {**os.environ, "LC_ALL": FILE_NAMES_LOCALE}


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One life of a process id: a recycled pid has another ``started``.

    Attributes:
        pid: the process id.
        started: boot id and start time in clock ticks since boot.
    """

    pid: Annotated[int, msgspec.Meta(ge=1, le=_MAX_PID)]
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The identity of a running process; ``None`` when there is none or it has ended."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The command's name, in parentheses, may hold spaces and parentheses itself.
        state, *others = stat.rpartition(")")[2].split()
        # A killed JVM is a zombie at once, but holds its ports until its other threads ended.
        if state in "ZXx" and int(others[_THREADS]) <= 1:
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(pid, f"{boot}:{others[_START_TIME]}")

    @property
    def boot(self) -> str:
        """Returns the id of the boot of the machine."""
        return self.started.partition(":")[0]

    def alive(self) -> bool:
        """This very process still runs (or is stopped by a signal)."""
        # A child that ended keeps its entry in /proc until its parent has asked for its exit code.
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return ProcessIdentity.of(self.pid) == self


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process that wrote a file, for readers that may be on another machine or in a container.

    Attributes:
        process: which process.
        namespace: of its pid: containers of a machine have one each.
    """

    process: ProcessIdentity
    namespace: str

    @classmethod
    def current(cls) -> SeenProcess | None:
        """Returns this process; ``None`` where the system does not say, as macOS."""
        return _seen(os.getpid())

    def has_ended(self) -> bool:
        """Returns whether it has certainly ended: ``False`` also where that can't be seen."""
        reader = SeenProcess.current()
        if reader is None or (reader.namespace, reader.process.boot) != (
            self.namespace,
            self.process.boot,
        ):
            return False
        now = ProcessIdentity.of(self.process.pid)
        if now is not None:
            return now != self.process
        try:
            os.kill(self.process.pid, 0)
        except PermissionError:  # of another user, whose entry in /proc may be hidden
            return False
        except ProcessLookupError:
            return True
        return True  # a zombie


@functools.lru_cache(maxsize=1)  # a fork has another pid
def _seen(pid: int) -> SeenProcess | None:
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
        process = ProcessIdentity.of(pid)
        return None if process is None else SeenProcess(process, namespace)
    return None


# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(ProcessIdentity)
msgspec.json.Decoder(SeenProcess)


def _stands_still(pid: int) -> bool:
    """Whether each thread of a process is stopped, or has ended."""
    threads = Path(f"/proc/{pid}/task")
    with suppress(FileNotFoundError, ProcessLookupError):  # they end meanwhile
        stats = [(thread / "stat").read_text() for thread in threads.iterdir()]
        return all(stat.rpartition(")")[2].split()[0] in "TZXx" for stat in stats)
    return False


class ServerProcess:
    """One server: its folder has ``process.json``, with its identity, and ``server.log``.

    Any process may make one for the same folder and stop or watch what another one started.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / "server.log"
        self._state = folder / "process.json"

    def start(self, command: Sequence[str]) -> None:
        """Starts it in a session of its own, unless it runs already. The last log is kept as .1.

        Raises:
            ServerStartError: if the command can't be executed.
        """
        if self.alive():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.log.exists():
            # The previous log is kept: people read why a server ended after they have restarted it.
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        try:
            pid = self._spawn(command)
        except OSError as error:
            raise ServerStartError(self.name, str(error), str(self.log)) from error
        if identity := ProcessIdentity.of(pid):
            write_json(self._state, asdict(identity))

    def _spawn(self, command: Sequence[str]) -> int:
        # Not subprocess: its Popen warns when it is dropped while the child lives on.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        return os.posix_spawn(
            # In a session of its own, Ctrl-C in the terminal ends the command and not the server.
            command[0],
            list(command),
            child_environ(),
            file_actions=actions,
            setsid=True,
        )

    @property
    def identity(self) -> ProcessIdentity | None:
        """The process that was started last, if the folder knows of one."""
        return read_json(self._state, partial(msgspec.convert, type=ProcessIdentity))

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        identity = self.identity
        return identity.pid if identity and identity.alive() else None

    def alive(self) -> bool:
        """It runs, or is paused."""
        return self.pid is not None

    def ask_to_end(self) -> None:
        """SIGTERM, also to a paused process; does not wait."""
        # First the signal, then the wake-up: a paused process gets it when it is resumed.
        self._signal(signal.SIGTERM)
        self.resume()

    def stop(self, timeout: timedelta) -> None:
        """Asks it to end, and kills it when it has not after ``timeout``; no-op when it is down."""
        self.ask_to_end()
        if not self._wait_gone(timeout):
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and waits until it has ended."""
        self._signal(signal.SIGKILL)
        # A killed JVM gives its memory back first, which takes seconds under load.
        self._wait_gone(timedelta(seconds=60))

    def pause(self) -> None:
        """SIGSTOP, and waits until its threads stop: it keeps connections and answers nothing.

        On a busy machine its threads run for a while after the signal.
        """
        self._signal(signal.SIGSTOP)
        while (pid := self.pid) is not None and not _stands_still(pid):
            time.sleep(_POLL_SECONDS)

    def resume(self) -> None:
        """SIGCONT, the end of :meth:`pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            os.kill(pid, number)

    def _wait_gone(self, timeout: timedelta) -> bool:
        deadline = time.monotonic() + timeout.total_seconds()
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def last_lines(self, count: int = _LOG_LINES) -> str:
        """The end of this run's log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except FileNotFoundError:
            return ""

    def wait_until(self, ready: Callable[[], bool], timeout: timedelta) -> None:
        """Returns once ``ready()`` is true.

        Raises:
            ServerStartError: if the process ended, or was not ready in time; quotes its last lines.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while not ready():
            if not self.alive():
                raise self._failure("it ended")
            if time.monotonic() > deadline:
                raise self._failure(f"it was not ready after {timeout.total_seconds():.0f} s")
            time.sleep(_POLL_SECONDS)

    def _failure(self, what: str) -> ServerStartError:
        return ServerStartError(
            self.name, f"{what}; its last lines:\n{self.last_lines()}", str(self.log)
        )


@contextmanager
def stopped_on_failure(processes: Iterable[ServerProcess]) -> Iterator[None]:
    """A start that fails, or is interrupted, leaves nothing running that it started."""
    try:
        yield
    except BaseException:
        for process in processes:
            process.kill()
        raise
