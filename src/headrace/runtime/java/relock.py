"""Writes ``jars.lock.toml``: for maintainers, who review the result like code.

To move to new versions, edit ``ROOTS`` and run ``python -m headrace.runtime.java.relock``. It
resolves the closures with Ivy, checks what came against the repository's SHA-1, and locks its
SHA-256.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.errors import JarError
from headrace.runtime.java import ivy
from headrace.runtime.java.installation import Java, find_java
from headrace.runtime.java.jars import LOCK, Jar, sha256_of


@dataclass(frozen=True)
class Roots:
    """What a group is made from; ``closure`` adds all that they depend on."""

    jars: tuple[ivy.Coordinates, ...]
    closure: bool


ROOTS = {
    "kafka": Roots(
        (
            ("org.apache.kafka", "kafka_2.13", "4.3.1"),
            # The broker's closure holds slf4j 1.7 and log4j 2, but nothing that joins them.
            ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        ),
        closure=True,
    ),
    # The NameNode and DataNode; Hadoop's client is among pyspark's own jars.
    "hdfs": Roots((("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),), closure=False),
    "spark-kafka": Roots(
        (
            ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
            # No released version can be had; the preview is loaded and works.
            ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
            ("org.apache.kafka", "kafka-clients", "3.9.2"),
            ("org.apache.commons", "commons-pool2", "2.13.1"),
        ),
        closure=False,
    ),
}


def write_lock(java: Java, lock: Path = LOCK, roots: Mapping[str, Roots] = ROOTS) -> None:
    """Resolves every group of ``roots`` again and replaces the lock.

    Raises:
        JarError: if a root or something it depends on could not be had.
    """
    groups = {group: resolve(coordinates, java) for group, coordinates in roots.items()}
    lock.write_text("\n".join(_entry(group, jar) for group, jars in groups.items() for jar in jars))


def resolve(roots: Roots, java: Java) -> list[Jar]:
    """The jars of a group, downloaded into a scratch folder and hashed, sorted by name."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        if ivy.start(roots.jars, java, work, transitive=roots.closure).wait() != 0:
            raise JarError(str(roots.jars), (work / "ivy.log").read_text())
        return sorted(_downloaded(work), key=str)


def _downloaded(work: Path) -> Iterator[Jar]:
    # organisation/name/<type>s/name-revision.jar; the type is "bundle" for some.
    for file in (work / "cache").glob("*/*/*/*.jar"):
        organisation, name = file.parts[-4:-2]
        revision = file.stem.removeprefix(f"{name}-")
        yield Jar(organisation, name, revision, sha256_of(file), file.stat().st_size)


def _entry(group: str, jar: Jar) -> str:
    return "\n".join((f"[[{group}]]", *_lines(asdict(jar).items()), ""))


def _lines(facts: Iterable[tuple[str, str | int]]) -> Iterator[str]:
    for name, value in facts:
        yield f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"'


if __name__ == "__main__":
    write_lock(find_java(os.environ))
