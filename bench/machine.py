"""Where a benchmark ran: without this, its figures mean nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headrace.runtime.java.installation import Java
from headrace.runtime.java.jars import locked

PACKAGES = (
    "headrace",
    "pyspark",
    "confluent-kafka",
    "pyarrow",
    "polars",
    "msgspec",
    "deltalake",
)


def machine() -> dict[str, Any]:
    """Processor, cores, memory, kernel."""
    return {
        "processor": _first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
    }


def versions(java: Java) -> dict[str, str]:
    """Everything whose version moves the figures."""
    brokers = {jar.name: jar.revision for jar in locked("kafka")}
    connector = {jar.name: jar.revision for jar in locked("spark-kafka")}
    return {
        "python": platform.python_version(),
        "java": str(java.version),
        "kafka broker": brokers["kafka_2.13"],
        "kafka-clients (Spark's connector)": connector["kafka-clients"],
    } | {name: version(name) for name in PACKAGES}


def _first(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return platform.machine()
