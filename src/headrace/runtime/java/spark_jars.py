"""The jars that pyspark brings along: Spark's own, Hadoop's client, Ivy."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

from headrace.runtime.extras import require_extra


def spark_jar(name: str) -> Path:
    """The jar of this name, whatever its version; pyspark is not imported.

    Raises:
        ExtraMissingError: if pyspark is not installed.
        FileNotFoundError: if this pyspark has no such jar.
    """
    require_extra("spark")
    folder = Path(str(distribution("pyspark").locate_file("pyspark/jars")))
    for jar in sorted(folder.glob(f"{name}-[0-9]*.jar")):
        return jar
    raise FileNotFoundError(folder / f"{name}-*.jar")
