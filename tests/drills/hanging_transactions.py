"""Ends transactions that brokers have forgotten, as docs/mirror.md tells an operator to.

``python -m tests.drills.hanging_transactions`` locks the jars of Kafka's own tool in ``ROOTS``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from headrace.runtime.files.cache import cache_folder
from headrace.runtime.java.installation import find_java
from headrace.runtime.java.jars import fetch, fetch_jars, locked
from headrace.runtime.java.relock import Roots, write_lock

LOCK = Path(__file__).with_name("kafka-tools.lock.toml")
ROOTS = Roots(
    (
        ("org.apache.kafka", "kafka-tools", "4.3.1"),
        ("net.sourceforge.argparse4j", "argparse4j", "0.7.0"),
    ),
    closure=False,
)
_TOOL = "org.apache.kafka.tools.TransactionsCommand"
_OFFSETS = "__consumer_offsets"


def end_hanging_transactions(bootstrap_servers: str, broker: int = 1) -> list[tuple[str, ...]]:
    """Gives up the transactions in a broker's partitions of which no coordinator knows.

    Returns:
        topic, partition and first offset of each.
    """
    first = ("find-hanging", "--broker-id", str(broker), "--max-transaction-timeout", "0")
    rows = [line.split() for line in _run(bootstrap_servers, *first).splitlines()]
    header = next(row for row in rows if "StartOffset" in row)
    places = [header.index(name) for name in ("Topic", "Partition", "StartOffset")]
    found = [tuple(row[at] for at in places) for row in rows[rows.index(header) + 1 :] if row]
    for topic, partition, offset in sorted(found, key=lambda row: row[0] != _OFFSETS):
        where = ("--topic", topic, "--partition", partition, "--start-offset", offset)
        _run(bootstrap_servers, "abort", *where)
    return found


def _run(bootstrap_servers: str, *words: str) -> str:
    java, cache = find_java(os.environ), cache_folder(os.environ)
    tools = fetch_jars(locked("kafka-tools", LOCK), java, cache=cache, on_progress=lambda *_: None)
    jars = [*fetch("kafka", java, cache=cache, on_progress=lambda *_: None), *tools]
    command = [java.executable, "-XX:TieredStopAtLevel=1", "-Xmx128m"]
    command += ["-cp", os.pathsep.join(map(str, jars)), _TOOL]
    command += ["--bootstrap-server", bootstrap_servers, *words]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


if __name__ == "__main__":
    write_lock(find_java(os.environ), LOCK, {"kafka-tools": ROOTS})
