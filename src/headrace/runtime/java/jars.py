"""The jars that headrace starts servers with: pinned by SHA-256, fetched once per user.

``jars.lock.toml`` names every jar of every group; :mod:`headrace.runtime.java.relock` writes it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as cached
from pathlib import Path
from typing import Any

from headrace.errors import JarError
from headrace.runtime.files.file_locks import exclusive
from headrace.runtime.java import ivy
from headrace.runtime.java.installation import Java

LOCK = Path(__file__).with_name("jars.lock.toml")
Progress = Callable[[int, int, str], None]
"""Called with (bytes so far, bytes in all, name of the jar that grew)."""

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Jar:
    """One locked jar; ``size`` in bytes."""

    organisation: str
    name: str
    revision: str
    sha256: str
    size: int

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"

    @property
    def coordinates(self) -> ivy.Coordinates:
        """(organisation, name, revision)."""
        return self.organisation, self.name, self.revision

    def path(self, cache: Path) -> Path:
        """Returns its place in the per-user cache; another content has another place."""
        return cache / "jars" / self.sha256[:16] / f"{self.name}-{self.revision}.jar"

    def matches(self, file: Path) -> bool:
        """The file is there and is what was locked."""
        return (
            file.is_file() and file.stat().st_size == self.size and sha256_of(file) == self.sha256
        )


def sha256_of(file: Path) -> str:
    """Hex digest of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def locked(group: str, lock: Path = LOCK) -> tuple[Jar, ...]:
    """The jars of a group (``kafka``, ``hdfs``, ``spark-kafka``), in class-path order."""
    return tuple(Jar(**entry) for entry in _read(lock)[group])


@cached
def _read(lock: Path) -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(lock.read_text())


def fetch(group: str, java: Java, *, cache: Path, on_progress: Progress) -> list[Path]:
    """Paths of a group's jars, downloading those that are not in ``cache`` or were damaged.

    With all of them in place, nothing is started. Any number of processes may call it at once.

    Raises:
        JarError: if a jar could not be downloaded, or is not the one that was locked.
    """
    return fetch_jars(locked(group), java, cache=cache, on_progress=on_progress)


def fetch_jars(
    jars: Sequence[Jar],
    java: Java,
    *,
    cache: Path,
    on_progress: Progress,
    max_stall_seconds: float = 180.0,
) -> list[Path]:
    """:func:`fetch` for any list of jars; a download that stalls for longer is ended."""
    if _missing(jars, cache):
        try:
            with exclusive(cache / "jars.lock"):
                # Another process may have fetched them meanwhile.
                if missing := _missing(jars, cache):
                    _download(missing, java, cache, on_progress, max_stall_seconds)
        except OSError as error:
            raise JarError(str(jars[0]), f"the cache can't be written: {error}") from error
    return [jar.path(cache) for jar in jars]


def download_notice(group: str, what: str, cache: Path) -> str:
    """Returns what :func:`fetch` downloads, in words; empty: all jars of the group are there.

    Args:
        group: of the jars.
        what: they are, for users.
        cache: the per-user folder.
    """
    missing = _missing(locked(group), cache)
    if not missing:
        return ""
    size = f"{sum(jar.size for jar in missing) / 1e6:.1f} MB"
    return (
        f"Fetching {what} from Maven Central ({len(missing)} jars, {size}). "
        f"This is done once: they are kept in {cache}"
    )


def _missing(jars: Sequence[Jar], cache: Path) -> list[Jar]:
    return [jar for jar in jars if not jar.matches(jar.path(cache))]


def _download(
    missing: Sequence[Jar],
    java: Java,
    cache: Path,
    on_progress: Progress,
    max_stall_seconds: float,
) -> None:
    """Moves complete jars into place even if one failed, so that a retry has less to do."""
    for abandoned in cache.glob("fetch-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache))
    try:
        process = ivy.start([jar.coordinates for jar in missing], java, work)
        try:
            _watch(process, missing, work, on_progress, max_stall_seconds)
        finally:
            process.kill()
            process.wait()
        results = [_take(jar, work, cache) for jar in missing]
        failures = [failure for failure in results if failure is not None]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if failures:
        raise failures[0]


def _watch(
    process: subprocess.Popen[bytes],
    missing: Sequence[Jar],
    work: Path,
    on_progress: Progress,
    max_stall_seconds: float,
) -> None:
    """Reports progress until Ivy ends, or until the download stalls."""
    total = sum(jar.size for jar in missing)
    seen: dict[Jar, int] = {}
    running, last_growth = True, time.monotonic()
    while running and time.monotonic() - last_growth < max_stall_seconds:
        running = process.poll() is None
        sizes = {jar: _bytes_so_far(jar, work) for jar in missing}
        grown = [jar for jar in missing if sizes[jar] != seen.get(jar, 0)]
        for jar in grown:
            on_progress(sum(sizes.values()), total, jar.name)
            last_growth = time.monotonic()
        seen = sizes
        if running:
            time.sleep(_POLL_SECONDS)


def _bytes_so_far(jar: Jar, work: Path) -> int:
    done = ivy.jar_in(work, jar.coordinates)
    for file in (done, done.with_name(done.name + ".part")):
        try:
            return file.stat().st_size
        except FileNotFoundError:
            continue
    return 0


def _take(jar: Jar, work: Path, cache: Path) -> JarError | None:
    """Moves a downloaded jar into the cache; says why when that can't be done."""
    downloaded, place = ivy.jar_in(work, jar.coordinates), jar.path(cache)
    if not downloaded.is_file():
        return JarError(str(jar), ivy.why_missing(work, jar.coordinates))
    if not jar.matches(downloaded):
        return JarError(
            str(jar), f"its SHA-256 is {sha256_of(downloaded)}, the lock says {jar.sha256}"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    downloaded.replace(place)
    return None
