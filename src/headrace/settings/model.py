"""What headrace.toml says, frozen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from headrace.errors import Problem, ProjectError

STATE_FOLDER = ".headrace"
ANY_ORIGIN = "*"
"""In ``ingest.cors_origins``: pages of every origin."""


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


class SecretUrl(Secret):
    """An address that prints without its user, password and options."""

    __slots__ = ()

    def __repr__(self) -> str:
        # Up to the last @: a password that was not percent-encoded may hold any character.
        return re.sub("//.*@", "//***@", self._value, flags=re.DOTALL).partition("?")[0]

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
class ClientSettings:
    """Settings of Kafka clients by librdkafka's names, as far as users may set them.

    Attributes:
        client: of all clients.
        consumer: of those that read records.
        producer: of those that write records.
        line: of headrace.toml.
    """

    client: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    line: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True)
class KafkaSettings:
    """Which cluster, and how to talk to it.

    Attributes:
        bootstrap_servers: of the user's own cluster; empty: the embedded one.
        security: librdkafka's names to plain values (``security.protocol``, ``ssl.ca.location``,
            ``sasl.mechanism``, ``sasl.username`` ...).
        secrets: librdkafka's names to secrets (``sasl.password``, ``ssl.key.password``).
        client: librdkafka's settings of all clients.
        consumer: those of clients that read records.
        producer: those of clients that write records.
        embedded: the embedded cluster, used when ``bootstrap_servers`` is empty.
    """

    bootstrap_servers: str = ""
    security: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    embedded: EmbeddedKafka = field(default_factory=EmbeddedKafka)

    def with_clients(self, clients: ClientSettings) -> KafkaSettings:
        """Returns the cluster with settings of clients that count before its own."""
        return replace(
            self,
            client={**self.client, **clients.client},
            consumer={**self.consumer, **clients.consumer},
            producer={**self.producer, **clients.producer},
        )


@dataclass(frozen=True)
class SchemaRegistrySettings:
    """The registry of the schemas of topics; picklable, as it travels to the tasks.

    Attributes:
        url: of Confluent's API.
        username: of HTTP basic authentication; empty: none.
        password: the user's.
        ca_file: of the certificates that are trusted; empty: those of certifi.
    """

    url: str
    username: str = ""
    password: Secret | None = None
    ca_file: str = ""


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
    max_delay_seconds: float = 60.0


@dataclass(frozen=True)
class LedgerSettings:
    """What pipelines count of their events.

    Attributes:
        enabled: whether they count at all.
        window_seconds: length of a window of event time; one of ``WINDOW_SECONDS``, each of which
            is a multiple of those before it, so that windows of different lengths can be added up.
    """

    WINDOW_SECONDS: ClassVar[tuple[int, ...]] = (60, 300, 900, 3600, 86_400)

    enabled: bool = True
    window_seconds: int = 3600


@dataclass(frozen=True)
class Rate:
    """Events and bytes a second; ``None`` for no limit."""

    events_per_second: float | None = None
    bytes_per_second: float | None = None


@dataclass(frozen=True)
class IngestSettings:
    """The HTTP service. Sizes are bytes; what passes a limit is refused, never cut.

    Attributes:
        host: address it listens on.
        port: port it listens on.
        workers: processes.
        deadline_seconds: from the last byte of a request to its answer: 503 after it.
        linger_seconds: an event waits so long for others, to go to Kafka in one batch.
        max_body_bytes: of a request as it is sent.
        max_decoded_bytes: of a request after gzip or zstd.
        max_ratio: decoded bytes a sent byte may become, beyond the first 64 KiB.
        max_events: in a request.
        max_header_bytes: of a request's headers.
        max_depth: nesting of objects and arrays in an event.
        max_keys: in an event, over all its objects.
        max_string_bytes: of a text or a key in an event.
        header_seconds: within which a connection must have sent its next request's headers; an
            idle connection is kept for so long, too.
        body_seconds: within which a request's body must be there.
        max_connections: open at a time, over all workers.
        max_memory_bytes: of all bodies in a worker, as sent and as decoded; beyond it, 503.
        drain_seconds: requests in flight may take so long at the end.
        token_rate: of every token without a rate of its own.
        account_rate: of all tokens of an account together.
        burst_seconds: of a rate, that may come at once.
        redis: keeps the rates of all hosts; ``None``: each host has its own.
        public_url: where clients reach the service from outside; empty: where they ask for its
            description.
        webhook_key: what the secrets of webhooks are derived from; ``None``: none are taken.
        cors_origins: web pages of these origins may send events and read the answers; ``*`` alone
            for all origins; empty: none.
        metrics_accounts: accounts that have figures of their own in ``/metrics``.
        access_log: ``json``, ``text``, or nothing.
        access_log_lines_per_second: of each kind of answer and worker; others are counted.
        spool_segment_bytes: a file of the spool grows to this.
        spool_segment_seconds: a file of the spool is written to for so long.
        spool_budget_bytes: disk that the spool of one topic may take; beyond it, 503.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    deadline_seconds: float = 5.0
    linger_seconds: float = 0.01
    max_body_bytes: int = 1_000_000
    max_decoded_bytes: int = 10_000_000
    max_ratio: int = 100
    max_events: int = 1000
    max_header_bytes: int = 16_384
    max_depth: int = 64
    max_keys: int = 1000
    max_string_bytes: int = 65_536
    header_seconds: float = 75.0
    body_seconds: float = 30.0
    max_connections: int = 4096
    max_memory_bytes: int = 256 * 1024 * 1024
    drain_seconds: float = 30.0
    token_rate: Rate = Rate()
    account_rate: Rate = Rate()
    burst_seconds: float = 1.0
    redis: SecretUrl | None = None
    public_url: str = ""
    webhook_key: Secret | None = None
    cors_origins: tuple[str, ...] = ()
    metrics_accounts: int = 100
    access_log: str = ""
    access_log_lines_per_second: int = 100
    spool_segment_bytes: int = 16 * 1024 * 1024
    spool_segment_seconds: float = 60.0
    spool_budget_bytes: int = 1024 * 1024 * 1024


@dataclass(frozen=True)
class S3Settings:
    """The server of a lake at ``s3://``. What is left out comes from AWS's environment variables.

    Attributes:
        endpoint: URL of a server that is not AWS; empty: AWS's own of the region.
        region: of the bucket; empty: ``us-east-1``.
        allow_http: requests may go unencrypted.
        access_key_id: empty: AWS's environment variables, a web identity or the machine's role.
        secret_access_key: belongs to it.
        session_token: of temporary keys, belongs to both; None: the keys last.
    """

    endpoint: str = ""
    region: str = ""
    allow_http: bool = False
    access_key_id: str = ""
    secret_access_key: Secret | None = None
    session_token: Secret | None = None

    @property
    def options(self) -> dict[str, str]:
        """What is set, by the names of ``object_store``, secrets in plain text."""
        secret, token = self.secret_access_key, self.session_token
        options = {
            "endpoint": self.endpoint,
            "region": self.region,
            "allow_http": "true" if self.allow_http else "",
            "access_key_id": self.access_key_id,
            "secret_access_key": secret.reveal() if secret else "",
            "session_token": token.reveal() if token else "",
        }
        return {name: value for name, value in options.items() if value}


@dataclass(frozen=True)
class Settings:
    """A project's deployment.

    Attributes:
        root: the project's folder.
        name: the project's name.
        modules: Python modules (importable from ``root``) that declare topics and pipelines.
        lake: root URI of the lake: an absolute local path, ``hdfs://...``, ``s3://...``; the word
            ``embedded-hdfs`` is resolved to the embedded NameNode's URI when it is up.
        embedded_hdfs: ``headrace up`` starts a NameNode and a DataNode.
        site: name of the site that the project's own cluster (``kafka``) is at.
        sites: clusters of other sites, by name.
        longest_cuts: hours that the link to a site may be cut and nothing is lost, by its name;
            sites without one have no such wish.
        checkpoints: root URI of the checkpoints, which Spark must reach; empty: the lake, and for
            a lake on S3 this machine's folder of the project.
        sinks: settings of sinks, by kind and name; that of a table ``[sinks.KIND.TABLE]`` is
            ``TABLE.NAME``.
        s3: the server of a lake on S3.
        ingest: the HTTP service, which ``headrace up`` starts; ``None``: the project has none.
        schema_registry: of the schemas of topics; ``None``: the project has none.
        ledger: of all pipelines.
        clients: of declarations that have Kafka clients of their own settings, by kind and name.
        unset: what ``[ingest]`` takes from the environment or a file, and is not there: only what
            :meth:`require_ingest` guards needs it.
    """

    root: Path
    name: str
    modules: tuple[str, ...]
    lake: str
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    embedded_hdfs: bool = False
    site: str = "central"
    sites: Mapping[str, KafkaSettings] = field(default_factory=dict)
    longest_cuts: Mapping[str, float] = field(default_factory=dict)
    checkpoints: str = ""
    sinks: Mapping[str, Mapping[str, Secret]] = field(default_factory=dict)
    s3: S3Settings = field(default_factory=S3Settings)
    ingest: IngestSettings | None = None
    schema_registry: SchemaRegistrySettings | None = None
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    clients: Mapping[tuple[str, str], ClientSettings] = field(default_factory=dict)
    unset: tuple[Problem, ...] = ()

    def of(self, kind: str, name: str) -> Settings:
        """Returns the settings with which a declaration runs: clients of all sites have its own.

        Args:
            kind: of the declaration, as JSON calls it: ``workers``.
            name: the declaration's.
        """
        own = self.clients.get((kind, name))
        if own is None:
            return self
        sites = {site: kafka.with_clients(own) for site, kafka in self.sites.items()}
        return replace(self, kafka=self.kafka.with_clients(own), sites=sites)

    def require_ingest(self) -> IngestSettings:
        """Returns the settings of the HTTP service, whole; the defaults where there are none.

        Raises:
            ProjectError: if an environment variable or a file of a secret is not there.
        """
        if self.unset:
            raise ProjectError(list(self.unset))
        return self.ingest or IngestSettings()

    @property
    def storage(self) -> Mapping[str, str]:
        """Options of the lake's storage, secrets in plain text."""
        return self.s3.options if self.lake.startswith("s3://") else {}

    @property
    def state(self) -> Path:
        """Folder of everything headrace keeps on this machine for the project."""
        return self.root / STATE_FOLDER

    def state_of_site(self, site: str) -> Path:
        """Folder of what headrace keeps on this machine of another site."""
        return self.state / "sites" / site

    @property
    def log(self) -> Path:
        """File of what headrace logs on this machine for the project."""
        return self.state / "headrace.log"
