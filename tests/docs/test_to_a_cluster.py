"""From one machine to a cluster: its files and commands, with brokers, Spark and S3 that run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.acceptance.project import HEADRACE, kill_session
from tests.acceptance.test_spark_cluster import StandaloneCluster
from tests.docs import test_first_project
from tests.docs.terminal import Step, run
from tests.docs.test_first_project import commands, lasting
from tests.integration.certificates import STORE_PASSWORD, make_certificate
from tests.integration.s3_server import ACCESS_KEY, SECRET_KEY
from tests.waiting import DRILL_LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.admin_requests import admin as admin_client
from headrace.kafka.client.clients import client_config
from headrace.kafka.embedded import cluster as embedded
from headrace.runtime.servers.ports import free_ports
from headrace.settings import KafkaSettings

PAGE = "docs/to-a-cluster.md"
PASSWORD = "correct horse"
_TOPIC = re.compile(r"^orders = Topic\(.*?\)$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: str, language: str) -> list[str]:
    return [text for name, text in _BLOCK.findall(page) if name == language]


@pytest.fixture
def project(pages: dict[str, str], tmp_path: Path) -> Path:
    """The project as the tutorial before leaves it, with the files and the topic of this page."""
    folder = tmp_path / "shop"
    folder.mkdir()
    page, first = pages[PAGE], pages[test_first_project.PAGE]
    made = [line for line in commands(first) if line.startswith(("cat >", "sed "))]
    subprocess.run(["bash", "-ec", "\n".join(made)], cwd=folder, check=True)
    topic, charge = blocks_of(page, "python")
    flow = folder / "flow.py"
    flow.write_text(_TOPIC.sub(topic.rstrip(), flow.read_text()))
    (folder / "charge.py").write_text(charge)
    (folder / "headrace.toml").write_text(*blocks_of(page, "toml"))
    return folder


def test_its_files_are_a_project_that_checks(project: Path) -> None:
    (project / "ca.pem").touch()
    names = ("BROKERS", "SPARK_MASTER")
    environ = os.environ | dict.fromkeys(names, "a:1") | {"CHECKPOINTS": "c", "KAFKA_PASSWORD": "p"}
    environ["SPARK_MASTER"] = "spark://a:7077"
    checked = subprocess.run(
        [HEADRACE, "check"], cwd=project, env=environ, capture_output=True, text=True, check=True
    )
    assert checked.stdout == "Valid: 2 topic(s), 2 pipeline(s), 1 worker(s).\n"


@pytest.fixture
def cluster(start_cluster: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three brokers, each with a listener that wants TLS and SCRAM, and knows the user shop."""
    make_certificate(project)
    monkeypatch.setattr(embedded, "broker_config", with_login(project, embedded.broker_config))
    running = start_cluster(brokers=3)
    admin = admin_client(client_config(KafkaSettings(), running.bootstrap_servers))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users = [UserScramCredentialUpsertion("shop", info, PASSWORD.encode())]
    for requested in (admin.alter_user_scram_credentials(users), admin.create_acls(acls())):
        for future in requested.values():
            future.result()
    return running


def with_login(certificates: Path, plain: Any) -> Any:
    def config(broker: Any, layout: Any, data: Path) -> dict[str, str]:
        known = plain(broker, layout, data)
        [port] = free_ports(1)
        safe, protocols = f",SAFE://127.0.0.1:{port}", "listener.security.protocol.map"
        return known | {
            "listeners": known["listeners"] + safe,
            "advertised.listeners": known["advertised.listeners"] + safe,
            protocols: known[protocols] + ",SAFE:SASL_SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.safe.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.location": str(certificates / "server.p12"),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": STORE_PASSWORD,
        }

    return config


def acls() -> list[AclBinding]:
    """What docs/reference/permissions.md gives one user for everything, for these topics."""
    own = "READ WRITE DESCRIBE CREATE ALTER ALTER_CONFIGS DESCRIBE_CONFIGS"
    rights = (
        (ResourceType.TOPIC, "orders", own),
        (ResourceType.TOPIC, "receipts", own),
        (ResourceType.TOPIC, "_headrace.", "CREATE READ WRITE"),
        (ResourceType.GROUP, "headrace.", "READ DELETE"),
        (ResourceType.TRANSACTIONAL_ID, "headrace.", "WRITE DESCRIBE"),
    )
    return [
        AclBinding(
            kind, name, ResourcePatternType.PREFIXED, "User:shop", "*", AclOperation[right],
            AclPermissionType.ALLOW,
        )
        for kind, name, allowed in rights
        for right in allowed.split()
    ]  # fmt: skip


@pytest.fixture
def spark_cluster(java: Any, tmp_path: Path) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path / "spark", java)
    yield cluster
    cluster.stop()


@pytest.fixture
def environ(
    cluster: Any, spark_cluster: StandaloneCluster, s3: Any, project: Path, tmp_path: Path
) -> dict[str, str]:
    """The variables of the page, of what runs here; the lake is on a server that is not AWS."""
    s3.create_bucket("shop-lake")
    settings = project / "headrace.toml"
    region = 'region = "eu-central-1"'
    assert region in settings.read_text()
    here = f'endpoint = "{s3.settings.endpoint}"\nallow_http = true\naccess_key_id = "{ACCESS_KEY}"'
    here += '\nsecret_access_key = { env = "S3_SECRET" }'
    settings.write_text(settings.read_text().replace(region, here))
    brokers = cluster.folder / "kafka"
    listeners = "".join(path.read_text() for path in sorted(brokers.glob("*/server.properties")))
    return os.environ | {
        "BROKERS": ",".join(re.findall(r"^advertised.*SAFE://(\S+)$", listeners, re.MULTILINE)),
        "KAFKA_PASSWORD": PASSWORD,
        "S3_SECRET": SECRET_KEY,
        "SPARK_MASTER": spark_cluster.url,
        "CHECKPOINTS": str(tmp_path / "checkpoints"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


class Service:
    """A command of the page that stays, on a port of its own for figures."""

    def __init__(self, command: str, folder: Path, environ: Mapping[str, str]) -> None:
        [self._port] = free_ports(1)
        command = re.sub(r"(?<=--metrics-port )\d+", str(self._port), command)
        self._process = subprocess.Popen(
            command.split(), cwd=folder, env=environ, start_new_session=True
        )

    def figures(self) -> str:
        """What it serves to Prometheus; nothing before it does."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(DRILL_LIMIT_SECONDS) == 0

    def kill(self) -> None:
        kill_session(self._process)


@pytest.mark.drill
@pytest.mark.timeout(1800)
def test_its_commands_move_the_project_release_it_and_lose_machines(
    pages: dict[str, str],
    project: Path,
    cluster: Any,
    environ: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    sections = dict(
        re.findall(r"^## \d\. (.+?)\n(.*?)(?=^## )", pages[PAGE], re.MULTILINE | re.DOTALL)
    )
    shown: list[Step] = []

    def follow(title: str, block: int, folder: Path = project) -> None:
        shown.extend(run(blocks_of(sections[title], "sh")[block].splitlines(), folder, environ))

    def start(number: int) -> Service:
        [services] = blocks_of(sections["Start"], "bash")
        service = Service(services.splitlines()[number], project, environ)
        request.addfinalizer(service.kill)
        return service

    follow("Look before you start", 0)
    follow("Start", 0)
    driver, worker = start(0), start(1)
    wait_for_drill(lambda: counted(worker, "processed") == 6, "all orders, charged or dead")
    wait_for_drill(lambda: running(driver) == 2, "both pipelines")
    follow("Start", 1)
    [rules] = blocks_of(sections["Metrics and alerts"], "yaml")
    served = driver.figures() + worker.figures()
    assert set(re.findall(r"headrace_\w+", rules)) <= set(re.findall(r"headrace_\w+", served))
    follow("A release", 0)
    driver.stop()
    successor = start(1)
    wait_for_drill(lambda: "headrace_worker_partition" in successor.figures(), "its partitions")
    worker.stop()
    follow("A release", 1)
    cluster.cluster.kill(2)
    elsewhere = shutil.copytree(
        project, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".headrace")
    )
    follow("A machine is lost", 0, elsewhere)
    wait_for_drill(lambda: counted(successor, "processed") == 6, "all orders that came again")
    successor.stop()
    everything = "\n".join(line for step in shown for line in step.texts)
    rest = iter(without_hosts(lasting(everything.splitlines())))
    for text in blocks_of(pages[PAGE], "text"):
        for line in without_hosts(lasting(text.splitlines())):
            assert line in rest, f"no {line!r} after the line before in\n{everything}"
    ids = "import headrace; print(*headrace.Project.open().read('orders')['order_id'].to_pylist())"
    [read] = run([f'python -c "{ids}"'], elsewhere, environ)
    assert Counter(read.texts[0].split()) == {"A-1": 1, "A-2": 1, "A-5": 1}


def without_hosts(lines: list[str]) -> list[str]:
    """Lines without the host and the process of a worker's instance."""
    return [re.sub(r"\b\w+-\d+\b", "instance", line) for line in lines]


def running(service: Service) -> int:
    """How many pipelines run."""
    return len(
        re.findall(
            r'^headrace_pipeline_state{.*state="running"} 1', service.figures(), re.MULTILINE
        )
    )


def counted(service: Service, figure: str) -> int:
    """A count of a worker, of all its processes."""
    pattern = rf"^headrace_worker_{figure}_total{{.*}} (\d+)"
    return sum(map(int, re.findall(pattern, service.figures(), re.MULTILINE)))
