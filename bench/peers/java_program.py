"""Peers on the JVM: their jars, and our small programs for them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.programs import BUILT, PeerMissingError
from headrace.runtime.files.cache import cache_folder
from headrace.runtime.java.installation import Java
from headrace.runtime.java.jars import fetch_jars, locked
from headrace.runtime.java.jvm import Jvm

HERE = Path(__file__).resolve().parent
LOCK = HERE / "jars.lock.toml"
LOG_JARS = ("log4j-api", "log4j-core", "log4j-slf4j2-impl", "slf4j-api")
"""Those of pyspark with which a program's libraries can say something."""
_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"


def peer_jars(group: str, java: Java) -> list[Path]:
    """A group of ``jars.lock.toml``, from the per-user cache."""
    wanted = locked(group, LOCK)
    cache = cache_folder(os.environ)
    return fetch_jars(wanted, java, cache=cache, on_progress=lambda *_: None)


def locked_version(group: str, name: str) -> str:
    """The revision of one of them."""
    return next(jar.revision for jar in locked(group, LOCK) if jar.name == name)


def compiled(name: str, class_path: Sequence[Path], java: Java) -> Path:
    """The classes of ``java/<name>``, compiled again.

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
        remedy = "install a JDK (Debian: apt-get install openjdk-17-jdk-headless)"
        raise PeerMissingError(f"the Java at {java.home} has no compiler; {remedy}")
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


def write_properties(path: Path, *parts: Mapping[str, str]) -> Path:
    """A properties file; later parts win."""
    merged = {name: value for part in parts for name, value in part.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
    return path
