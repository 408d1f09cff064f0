"""What headrace.toml says, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

STATE_FOLDER = ".headrace"


class Secret:
    """A value that prints as stars. ``reveal`` is called where a client is configured."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__


@dataclass(frozen=True)
class EmbeddedKafka:
    """The broker that ``headrace up`` starts.

    Attributes:
        brokers: 1 to 3 processes on loopback.
        ports: one port for clients a broker; empty: free ones.
        heap_mb: ``-Xmx`` of each broker.
    """

    brokers: int = 1
    ports: tuple[int, ...] = ()
    heap_mb: int = 1024


@dataclass(frozen=True)
class KafkaSettings:
    """Which cluster, and how to talk to it.

    Attributes:
        bootstrap_servers: of the user's own cluster; empty: the embedded one.
        security: librdkafka's names to plain values (``security.protocol``, ``ssl.ca.location``,
            ``sasl.mechanism``, ``sasl.username`` ...).
        secrets: librdkafka's names to secrets (``sasl.password``, ``ssl.key.password``).
        embedded: the embedded cluster, used when ``bootstrap_servers`` is empty.
    """

    bootstrap_servers: str = ""
    security: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    embedded: EmbeddedKafka = field(default_factory=EmbeddedKafka)


@dataclass(frozen=True)
class SparkSettings:
    """Spark's master and settings by Spark's own names."""

    master: str = "local[*]"
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RestartSettings:
    """How a pipeline that failed is restarted: ``budget`` times an hour, back-off doubling."""

    budget: int = 5
    first_delay_seconds: float = 1.0
    longest_delay_seconds: float = 60.0


@dataclass(frozen=True)
class Settings:
    """A project's deployment.

    Attributes:
        root: the project's folder.
        name: the project's name.
        modules: Python modules (importable from ``root``) that declare topics and pipelines.
        lake: root URI of the lake: an absolute local path, ``hdfs://...``; the word
            ``embedded-hdfs`` is resolved to the embedded NameNode's URI when it is up.
        embedded_hdfs: ``headrace up`` starts a NameNode and a DataNode.
    """

    root: Path
    name: str
    modules: tuple[str, ...]
    lake: str
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    embedded_hdfs: bool = False

    @property
    def state(self) -> Path:
        """Folder of everything headrace keeps on this machine for the project."""
        return self.root / STATE_FOLDER
