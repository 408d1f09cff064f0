"""Programs of peers as processes, whatever they are written in."""

from __future__ import annotations

import atexit
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.runtime.servers.process import child_environ

BUILT = Path(__file__).resolve().parents[1] / ".built/peers"


class PeerMissingError(RuntimeError):
    """A peer can't be measured on this machine; the message says what is missing."""


def started(
    command: Sequence[str],
    pipe: int | None = None,
    folder: Path | None = None,
    log: Path | None = None,
) -> subprocess.Popen[str]:
    """Starts a program that ends when this process ends, or is asked to.

    Args:
        command: its command line.
        pipe: what its input and output are; ``None``: this process's own.
        folder: its working directory; ``None``: this process's own.
        log: where its output goes instead.
    """
    with ExitStack() as files:
        output = pipe if log is None else files.enter_context(log.open("a"))
        process = subprocess.Popen(
            command, stdin=pipe, stdout=output, env=child_environ(), text=True, cwd=folder
        )
    atexit.register(end, process)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return process


def end(process: subprocess.Popen[str], max_wait_seconds: float = 10.0) -> None:
    """It has ended when this returns, asked to or killed: an orphan would belong to nobody."""
    process.terminate()
    try:
        process.wait(max_wait_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check_running(process: subprocess.Popen[str]) -> None:
    """Raises RuntimeError when it has ended."""
    if (code := process.poll()) is not None:
        raise RuntimeError(f"the program ended with code {code}; see the log")


@contextmanager
def running(commands: Iterable[Sequence[str]], folder: Path) -> Iterator[Callable[[], None]]:
    """Runs programs beside the block; gives what raises RuntimeError when one has ended."""
    programs = [started(command, folder=folder) for command in commands]

    def check() -> None:
        for program in programs:
            check_running(program)

    try:
        yield check
    finally:
        for program in programs:
            end(program)


class Conversation:
    """A running program that takes a command a line and answers each with a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, line: str, answer: str) -> None:
        """Sends a command.

        Raises:
            RuntimeError: the answer was another one, or the program ended.
        """
        print(line, file=self._process.stdin, flush=True)
        said = self._process.stdout.readline().strip() if self._process.stdout else ""
        if said != answer:
            raise RuntimeError(f"{line!r} was answered by {said!r}, not {answer!r}")

    def check(self) -> None:
        """Raises RuntimeError when the program has ended."""
        check_running(self._process)
