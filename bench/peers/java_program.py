"""Peers on the JVM: their jars, our small programs for them, and those as processes."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.runtime.cache import cache_folder
from headrace.runtime.jars import fetch_jars, locked
from headrace.runtime.java import Java
from headrace.runtime.jvm import Jvm
from headrace.runtime.process import child_environ

HERE = Path(__file__).resolve().parent
LOCK = HERE / "jars.lock.toml"
BUILT = HERE.parent / ".built/peers"
LOG_JARS = ("log4j-api", "log4j-core", "log4j-slf4j2-impl", "slf4j-api")
"""Those of pyspark with which a program's libraries can say something."""
_STOP_SECONDS = 10.0
_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"


class PeerMissingError(RuntimeError):
    """A peer can't be measured on this machine; the message says what is missing."""


def peer_jars(group: str, java: Java) -> list[Path]:
    """A group of ``jars.lock.toml``, from the per-user cache."""
    wanted = locked(group, LOCK)
    cache = cache_folder(os.environ)
    return fetch_jars(wanted, java, cache=cache, on_progress=lambda *_: None)


def locked_version(group: str, name: str) -> str:
    """The revision of one of them."""
    return next(jar.revision for jar in locked(group, LOCK) if jar.name == name)


def compiled(name: str, class_path: Sequence[Path], java: Java) -> Path:
    """The classes of ``java/<name>``, compiled anew.

    Raises:
        PeerMissingError: there is no compiler, or the sources do not fit the class path.
    """
    classes = BUILT / name
    sources = sorted((HERE / "java" / name).glob("*.java"))
    done = subprocess.run(
        [
            *(str(java.executable), "-Xmx256m", "-m", _COMPILER, "-nowarn", "-d", str(classes)),
            *("-cp", os.pathsep.join(map(str, class_path)), *map(str, sources)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if "jdk.compiler not found" in done.stdout + done.stderr:
        way_out = "install a JDK (Debian: apt-get install openjdk-17-jdk-headless)"
        raise PeerMissingError(f"the Java at {java.home} has no compiler; {way_out}")
    if done.returncode:
        raise PeerMissingError(f"java/{name} does not compile: {done.stderr.strip()[-2000:]}")
    return classes


@dataclass(frozen=True)
class Program:
    """A Java program, ready to start: picklable, so that a driver's process can start it.

    Attributes:
        java: the runtime.
        class_path: jars and folders of classes.
        main: its main class.
        options: of the JVM; the heap is the setup's.
    """

    java: Java
    class_path: tuple[Path, ...]
    main: str
    options: tuple[str, ...] = ()

    def command(self, home: Path, heap_mb: int, *arguments: str) -> list[str]:
        """Its command line; what it writes by itself goes to ``home``."""
        jvm = Jvm(self.java, home, self.class_path)
        executable, *rest = jvm.server(self.main, *arguments, heap_mb=heap_mb)
        # The small servers' choice, not one for programs whose speed is measured.
        others = [one for one in rest if one != "-XX:+UseSerialGC"]
        return [executable, *self.options, *others]


def started(command: Sequence[str], pipe: int | None = None) -> subprocess.Popen[str]:
    """Starts a program that ends when this process ends, or is asked to.

    ``pipe`` is what its input and output are; ``None``: this process's own.
    """
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=child_environ(), text=True)
    atexit.register(end, process)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return process


def end(process: subprocess.Popen[str]) -> None:
    """It has ended when this returns, asked to or killed: an orphan would belong to nobody."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check_running(process: subprocess.Popen[str]) -> None:
    """Raises RuntimeError when it has ended."""
    if (code := process.poll()) is not None:
        raise RuntimeError(f"the program ended with code {code}; see the log")


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


def write_properties(path: Path, *parts: Mapping[str, str]) -> Path:
    """A properties file; later parts win."""
    merged = {name: value for part in parts for name, value in part.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
    return path
