"""A real Cassandra as a process, that tests may kill, freeze and start again on its data.

``python -m tests.integration.cassandra_server`` locks the jars of the version in ``ROOTS``.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from cassandra.cluster import Cluster, NoHostAvailable
from tests.integration.certificates import STORE_PASSWORD
from tests.waiting import LIMIT_SECONDS

from headrace.runtime.files.cache import cache_folder
from headrace.runtime.files.json_files import read_json, write_json
from headrace.runtime.java.installation import find_java
from headrace.runtime.java.jars import fetch_jars, locked
from headrace.runtime.java.jvm import Jvm
from headrace.runtime.java.relock import Roots, resolve, write_lock
from headrace.runtime.servers.ports import free_ports
from headrace.runtime.servers.process import ServerProcess
from headrace.settings import Secret

LOCK = Path(__file__).with_name("cassandra.lock.toml")
ROOTS = Roots((("org.apache.cassandra", "cassandra-all", "5.0.6"),), closure=True)
# Jars of one system, and one that the server does not load: Ivy finds them by a classifier alone.
_WITH_CLASSIFIER = re.compile(r".*-(linux|osx|windows|native|shaded)\b.*")
SERVER = "Cassandra"
KEYSPACE = "site"
CREATE_KEYSPACE = """
CREATE KEYSPACE IF NOT EXISTS {} WITH replication =
{{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}
"""
_LOGBACK = """
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %level %logger %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
# A thread without work wakes up each 60 microseconds to look for some, which takes a processor for
# itself; with a coarser timer it rests. See prctl(2).
_SET_TIMER_SLACK, _TIMER_SLACK_NANOSECONDS = 29, 500_000
_PERIODIC = "commitlog_sync: periodic\ncommitlog_sync_period: 10s"
_YAML = """\
cluster_name: tests
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: {cql}
storage_port: {storage}
{sync}
commitlog_segment_size: 32MiB
roles_validity: 1h
credentials_validity: 1h
authenticator: {authenticator}
authorizer: {authorizer}
role_manager: CassandraRoleManager
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:{storage}"
"""
_TLS = """\
client_encryption_options:
  enabled: true
  optional: true
  require_client_auth: true
  store_type: PKCS12
  keystore: {store}
  keystore_password: {password}
  truststore: {store}
  truststore_password: {password}
"""
# What Cassandra's own jvm17-server.options opens to it.
_EXPORTS = """
java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.sql/java.sql
java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry
java.rmi/sun.rmi.server
"""
_OPENS = """
java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect
java.base/java.math java.base/java.net java.base/java.nio java.base/java.util
java.base/java.util.concurrent java.base/java.util.concurrent.atomic
java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.misc
java.base/jdk.internal.module java.base/jdk.internal.ref java.base/jdk.internal.reflect
java.base/jdk.internal.util.jar java.base/sun.nio.ch java.rmi/sun.rmi.transport.tcp
jdk.management/com.sun.management.internal
"""


class CassandraServer(ServerProcess):
    """One node, with one token and a heap of 512 MB; a folder has the same ports for ever.

    Args:
        folder: for its settings and data; a server that is started again has its data.
        password: of the role ``cassandra``; empty: the server asks for none.
        keeps_all: what it has acknowledged is on disk; or else, as by default, after a while.
        certificates: folder of a certificate that its clients may, and those on TLS must, show.
    """

    def __init__(
        self,
        folder: Path,
        password: str = "",
        *,
        keeps_all: bool = False,
        certificates: Path | None = None,
    ) -> None:
        super().__init__(SERVER, folder)
        ports = read_json(folder / "ports.json", list) or free_ports(3)
        write_json(folder / "ports.json", ports)
        self.port, self._storage, self._jmx = ports
        self._password = password
        self._sync = "commitlog_sync: batch" if keeps_all else _PERIODIC
        self._certificates = certificates

    def url(self, keyspace: str = KEYSPACE, options: str = "") -> Secret:
        login = f"cassandra:{self._password}@" if self._password else ""
        return Secret(f"cassandra://{login}127.0.0.1:{self.port}/{keyspace}{options}")

    def run(self) -> None:
        """Starts it unless it runs, whichever process started it, and waits until it answers."""
        prctl = ctypes.CDLL(None).prctl
        prctl(_SET_TIMER_SLACK, _TIMER_SLACK_NANOSECONDS)  # of this thread, and of what it starts
        self.start(self._command())
        prctl(_SET_TIMER_SLACK, 0)  # as it was
        self.wait_until(self._answers, timedelta(seconds=LIMIT_SECONDS))

    def query(self, *statements: str, parameters: Sequence[object] | None = None) -> list[Any]:
        """Rows of the last of the statements."""
        with self._cluster() as cluster, cluster.connect() as session:
            results = [
                list(session.execute(each, parameters, timeout=LIMIT_SECONDS))
                for each in statements
            ]
        return results[-1]

    def nodetool(self, *words: str) -> str:
        command = [find_java(os.environ).executable, *_options(), "-cp", self._class_path()]
        command += ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dcassandra.storagedir={self.folder}"]
        command += ["org.apache.cassandra.tools.NodeTool", "-p", str(self._jmx), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _cluster(self) -> Cluster:
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
        from cassandra.policies import RoundRobinPolicy

        profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy())
        login = PlainTextAuthProvider("cassandra", self._password) if self._password else None
        return Cluster(
            [("127.0.0.1", self.port)],
            auth_provider=login,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            protocol_version=5,
        )

    def _answers(self) -> bool:
        try:
            return bool(self.query("SELECT key FROM system.local"))
        except NoHostAvailable:
            return False

    def _class_path(self) -> str:
        return os.pathsep.join(map(str, _jars()))

    def _command(self) -> list[str]:
        settings = self.folder / "cassandra.yaml"
        prefix = "Password" if self._password else "AllowAll"
        authorizer = "CassandraAuthorizer" if self._password else "AllowAllAuthorizer"
        settings.write_text(
            _YAML.format(
                cql=self.port,
                sync=self._sync,
                storage=self._storage,
                authenticator=f"{prefix}Authenticator",
                authorizer=authorizer,
            )
            + self._tls()
        )
        log_settings = self.folder / "logback.xml"
        log_settings.write_text(_LOGBACK)
        jvm = Jvm(find_java(os.environ), self.folder, tuple(_jars()))
        main = "org.apache.cassandra.service.CassandraDaemon"
        executable, *rest = jvm.quick(main, heap_mb=512)
        properties = {
            "cassandra.config": settings.as_uri(),
            "cassandra.storagedir": self.folder,
            "cassandra.jmx.local.port": self._jmx,
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.superuser_setup_delay_ms": 0,
            # Each login hashes a password 2**4 times; by default 2**10.
            "cassandra.auth_bcrypt_gensalt_log2_rounds": 4,
            # Rows of which it estimates at its start how much memory they take; by default 100,000.
            "cassandra.memtable_row_overhead_computation_step": 1_000,
            "logback.configurationFile": log_settings.as_uri(),
            "java.security.manager": "allow",
        }
        own = [f"-D{name}={value}" for name, value in properties.items()]
        return [str(executable), *_options(), *own, *rest]

    def _tls(self) -> str:
        if self._certificates is None:
            return ""
        return _TLS.format(store=self._certificates / "server.p12", password=STORE_PASSWORD)


def _options() -> list[str]:
    exports = [f"--add-exports={each}=ALL-UNNAMED" for each in _EXPORTS.split()]
    return exports + [f"--add-opens={each}=ALL-UNNAMED" for each in _OPENS.split()]


def _jars() -> list[Path]:
    cache = cache_folder(os.environ)
    wanted = locked("cassandra", LOCK)
    return fetch_jars(wanted, find_java(os.environ), cache=cache, on_progress=lambda *_: None)


if __name__ == "__main__":
    java = find_java(os.environ)
    jars = [jar.coordinates for jar in resolve(ROOTS, java)]
    kept = tuple(each for each in jars if not _WITH_CLASSIFIER.fullmatch(each[2]))
    write_lock(java, LOCK, {"cassandra": Roots(kept, closure=False)})
