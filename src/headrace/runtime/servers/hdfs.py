"""A real HDFS on this machine: one NameNode, one DataNode, the Hadoop version inside pyspark.

Everything is under ``<folder>/hdfs``: ``hdfs.json`` (the ports, chosen once), ``conf``, and for
each of the two servers its data and its log. Spark's default of three replicas only makes
"under-replicated" warnings here: set ``spark.hadoop.dfs.replication`` to 1.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import msgspec

from headrace.runtime.files.file_locks import exclusive
from headrace.runtime.files.json_files import read_json, write_json
from headrace.runtime.java.installation import Java
from headrace.runtime.java.jvm import Jvm, run_tools
from headrace.runtime.java.spark_jars import spark_jar
from headrace.runtime.servers.ports import LOOPBACK, free_ports, require_free
from headrace.runtime.servers.process import ServerProcess, stopped_on_failure

START_TIMEOUT = timedelta(seconds=120)
STOP_TIMEOUT = timedelta(seconds=30)
HEAP_MB = 256

NAMENODE = "NameNode"
DATANODE = "DataNode"
_MAIN_CLASSES = {
    NAMENODE: "org.apache.hadoop.hdfs.server.namenode.NameNode",
    DATANODE: "org.apache.hadoop.hdfs.server.datanode.DataNode",
}
_STATE = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
# Hadoop's client lacks commons-logging, so jcl-over-slf4j replaces it.
_PYSPARK_JARS = (
    *("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j"),
    *("log4j-api", "log4j-core", "log4j-1.2-api", "log4j-slf4j2-impl"),
)


@dataclass(frozen=True)
class HdfsPorts:
    """Ports that stay the same for a folder's HDFS."""

    namenode: int
    namenode_http: int
    datanode: int
    datanode_ipc: int
    datanode_http: int

    def of(self, server: str) -> tuple[int, ...]:
        """The ports that one of the two servers listens on."""
        if server == NAMENODE:
            return self.namenode, self.namenode_http
        return self.datanode, self.datanode_ipc, self.datanode_http

    @property
    def uri(self) -> str:
        """``hdfs://host:port`` of the NameNode."""
        return f"hdfs://{LOOPBACK}:{self.namenode}"


@dataclass(frozen=True)
class HdfsStatus:
    """The HDFS of a folder: ``uri`` is empty when there never was one, a pid ``None`` when down."""

    uri: str
    namenode_pid: int | None
    datanode_pid: int | None

    @property
    def running(self) -> bool:
        """Returns whether both servers run."""
        return self.namenode_pid is not None and self.datanode_pid is not None


class EmbeddedHdfs:
    """The HDFS of one folder. Starting it again brings back what is down, with its files.

    Args:
        folder: the project's state folder; HDFS lives in ``folder/hdfs``.
        java: runs both servers.
        jars: group ``hdfs`` of :func:`headrace.runtime.java.jars.fetch`.
    """

    def __init__(self, folder: Path, java: Java, jars: Sequence[Path]) -> None:
        self._folder = folder / "hdfs"
        self._state = folder
        pyspark_jars = tuple(spark_jar(name) for name in _PYSPARK_JARS)
        class_path = (self._folder / "conf", *jars, *pyspark_jars)
        self._jvm = Jvm(java, self._folder, class_path)

    def start(self) -> str:
        """Starts what is down and returns the URI once files can be written.

        Raises:
            ServerStartError: if a port is taken, a server ended or was not ready in time.
        """
        with exclusive(self._folder / "start.lock"):
            ports = _read_ports(self._state) or HdfsPorts(*free_ports(5))
            write_json(self._folder / "hdfs.json", asdict(ports))
            self._write_config(ports)
            namenode, datanode = _processes(self._state)
            down = [process for process in (namenode, datanode) if not process.alive()]
            with stopped_on_failure(down):
                for process in down:
                    require_free(process.name, ports.of(process.name))
                self._format()
                for process in down:
                    process.start(self._jvm.quick(_MAIN_CLASSES[process.name], heap_mb=HEAP_MB))
                namenode.wait_until(lambda: takes_files(ports) is not None, START_TIMEOUT)
                datanode.wait_until(lambda: takes_files(ports) is True, START_TIMEOUT)
        return ports.uri

    def stop(self) -> None:
        """Stops both servers, files kept; no-op when they are down."""
        stop_hdfs(self._state)

    def status(self) -> HdfsStatus:
        """What runs, and where."""
        return hdfs_status(self._state)

    def _write_config(self, ports: HdfsPorts) -> None:
        conf = self._folder / "conf"
        for pages in ("hdfs", "datanode", "static"):
            # The servers' web pages are of no use here; unpacking them takes seconds at each start.
            (conf / "webapps" / pages).mkdir(parents=True, exist_ok=True)
        core = {"fs.defaultFS": ports.uri, "hadoop.tmp.dir": str(self._folder / "tmp")}
        (conf / "core-site.xml").write_text(_xml(core), encoding="utf-8")
        site = _xml(hdfs_config(ports, self._folder))
        (conf / "hdfs-site.xml").write_text(site, encoding="utf-8")

    def _format(self) -> None:
        marker = self._folder / "formatted"
        if marker.exists():
            return
        # A format that was cut short may look complete; nothing was ever written to this one.
        shutil.rmtree(self._folder / "namenode" / "name", ignore_errors=True)
        arguments = ("-format", "-force", "-nonInteractive")
        run_tools(NAMENODE, [self._jvm.quick(_MAIN_CLASSES[NAMENODE], *arguments)])
        marker.touch()


def hdfs_status(folder: Path) -> HdfsStatus:
    """The HDFS of a state folder; needs neither Java nor jars."""
    ports = _read_ports(folder)
    namenode, datanode = _processes(folder)
    return HdfsStatus(ports.uri if ports else "", namenode.pid, datanode.pid)


def stop_hdfs(folder: Path) -> None:
    """Stops the HDFS of a state folder, its files kept; needs neither Java nor jars."""
    processes = _processes(folder)
    for process in processes:
        process.ask_to_end()
    for process in processes:
        process.stop(STOP_TIMEOUT)


def hdfs_config(ports: HdfsPorts, folder: Path) -> dict[str, str]:
    """``hdfs-site.xml``: loopback only, one replica, out of safe mode at once."""
    return {
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.name.dir": (folder / "namenode" / "name").as_uri(),
        "dfs.namenode.http-address": f"{LOOPBACK}:{ports.namenode_http}",
        # Ready means that every block can be read, as the DataNode reported it.
        "dfs.namenode.safemode.threshold-pct": "1.0",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.datanode.data.dir": (folder / "datanode" / "data").as_uri(),
        "dfs.datanode.hostname": LOOPBACK,
        "dfs.datanode.address": f"{LOOPBACK}:{ports.datanode}",
        "dfs.datanode.ipc.address": f"{LOOPBACK}:{ports.datanode_ipc}",
        "dfs.datanode.http.address": f"{LOOPBACK}:{ports.datanode_http}",
    }


def takes_files(ports: HdfsPorts) -> bool | None:
    """Whether files can be read and written; ``None`` while the NameNode does not answer.

    A DataNode that has joined is alive, and has no capacity until it reports its storages.
    """
    url = f"http://{LOOPBACK}:{ports.namenode_http}{_STATE}"
    try:
        with urlopen(url, timeout=5) as answer:
            [state] = json.load(answer)["beans"] or [{}]
    except (URLError, OSError, ValueError):
        return None
    return bool(state.get("FSState") == "Operational" and state["CapacityTotal"])


def _processes(folder: Path) -> tuple[ServerProcess, ServerProcess]:
    """NameNode and DataNode."""
    home = folder / "hdfs"
    return (
        ServerProcess(NAMENODE, home / "namenode"),
        ServerProcess(DATANODE, home / "datanode"),
    )


def _read_ports(folder: Path) -> HdfsPorts | None:
    return read_json(folder / "hdfs" / "hdfs.json", partial(msgspec.convert, type=HdfsPorts))


def _xml(config: Mapping[str, str]) -> str:
    from xml.sax.saxutils import escape

    properties = (
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in config.items()
    )
    return f"<configuration>{''.join(properties)}</configuration>\n"
