"""What all systems of a benchmark are given alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Setup:
    """One topic on one broker, and the means to read it.

    Attributes:
        bootstrap: the broker.
        topic: the topic that every run reads from its start.
        messages: in the topic.
        partitions: of the topic.
        threads: that process, in each system.
        batch_records: most records of a micro-batch, or of another commit.
        heap_mb: ``-Xmx`` of each system's driver.
        java: JAVA_HOME and PATH of the Java to use.
        connector: jars of Spark's own Kafka connector.
        logs: folder of what the systems say.
        commit_every_ms: of systems that commit by time; 0 where there are none.
        cluster: URL of a Spark cluster that processes instead of threads of the driver.
    """

    bootstrap: str
    topic: str
    messages: int
    partitions: int
    threads: int
    batch_records: int
    heap_mb: int
    java: Mapping[str, str]
    connector: tuple[Path, ...]
    logs: Path
    commit_every_ms: int = 0
    cluster: str = ""

    @property
    def master(self) -> str:
        """Spark's: the cluster's, or one with that many threads."""
        return self.cluster or f"local[{self.threads}]"
