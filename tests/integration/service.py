"""A project's HTTP service as a process, and what is in its topics."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
from tests.drills.run import DrillRun
from tests.in_process import answer
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.ingest.tokens import operations as tokens
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import consumer
from headrace.runtime.servers.ports import free_ports
from headrace.settings import Settings, load_settings

HEADRACE = Path(sys.executable).with_name("headrace")
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of the service, which speaks plain HTTP: to load httpx's own takes long."""

FLOW = """
from datetime import datetime, timedelta
from headrace import ByField, Topic


class Occurrence:
    event_id: str
    at: datetime
    message: str
    n: int | None


class Push:
    x_github_delivery: str
    x_github_event: str
    action: str | None


occurrences = Topic("occurrences{suffix}", event=Occurrence, event_id="event_id", event_time="at",
                    partitions=4, latest_ahead=timedelta(minutes=5))
kept = Topic("kept{suffix}", event=Occurrence, event_id="event_id", event_time="at",
             partitions=4, spool=True)
derived = Topic("derived{suffix}", event=Occurrence, event_id="event_id", derive_event_id=True)
small = Topic("small{suffix}", event=Occurrence, config={{"max.message.bytes": "4096"}})
keyed = Topic("keyed{suffix}", event=Occurrence, key="message", partitions=7)
placed = Topic("placed{suffix}", event=Occurrence, partitions=7, partitioning=ByField("message"))
pushes = Topic("pushes{suffix}", event=Push, event_id="x_github_delivery")
raw = Topic("raw{suffix}")
"""

SETTINGS = """
[project]
name = "service"
modules = ["flow"]

[kafka]
bootstrap_servers = "{bootstrap}"

[ingest]
port = {port}
workers = {workers}
{settings}
"""


class Service:
    """Every topic of FLOW is served but ``raw``."""

    headrace = HEADRACE

    def __init__(
        self, folder: Path, bootstrap: str, suffix: str, settings: str = "", *, workers: int = 2
    ) -> None:
        self.folder, self.suffix = folder, suffix
        (self.port,) = free_ports(1)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "flow.py").write_text(FLOW.format(suffix=suffix))
        (folder / "headrace.toml").write_text(
            SETTINGS.format(bootstrap=bootstrap, port=self.port, workers=workers, settings=settings)
        )
        self.settings: Settings = load_settings(folder, {})
        self.client = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
        self.url = f"http://127.0.0.1:{self.port}"
        self.output = folder / "output.txt"

    def command(self, *arguments: str) -> dict:
        """What a headrace command answers."""
        command = [self.headrace, *arguments, "--json", "--project", self.folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def apply(self) -> None:
        """Creates the topics, from this process."""
        answer("apply", "--project", self.folder)

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen]:
        """The service, ready; ended at the end, by SIGTERM and with exit code 0."""
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [self.headrace, "ingest", "--project", self.folder], stdout=output, stderr=output
            )
        try:
            self.wait_ready(process)
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_SECONDS) == 0, self.output.read_text()
        finally:
            process.kill()
            process.wait()

    def wait_ready(self, process: subprocess.Popen) -> None:
        def is_ready() -> bool:
            assert process.poll() is None, self.output.read_text()
            return self.is_ready()

        wait_for(is_ready, self.output.read_text)

    def is_ready(self) -> bool:
        try:
            return http("GET", f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def token(self, **wanted) -> str:
        """The text of a new token of account ``acme``, known to every worker."""
        scopes = ("write", "metrics", "describe")
        facts = {"name": "test", "project": "shop", "account": "acme", "scopes": scopes} | wanted
        _, text = tokens.create_token(self.settings, tokens.TokenSpec(**facts))
        self.wait_known(text)
        return text

    def credential(self, topic: str, **facts) -> tuple[str, str]:
        """The id and the text of a new credential for one topic, known to every worker."""
        facts = {"name": "test", "project": "shop", "account": "acme"} | facts
        spec = tokens.TokenSpec(topics=[topic + self.suffix], **facts)
        token, text = tokens.create_token(self.settings, spec)
        tokens.wait_until_known(self.settings, token, text)
        return token.public_id, text

    def wait_known(self, text: str, *, known: bool = True) -> None:
        """Until both workers agree; a new connection goes to either."""

        def is_known() -> bool:
            found = http("GET", f"{self.url}/metrics", headers=bearer(text))
            return found.status_code == 200

        wait_for(lambda: all(is_known() == known for _ in range(20)))

    def post(self, topic: str, token: str, body: bytes | str, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return http(
            "POST",
            f"{self.url}/v1/topics/{topic}{self.suffix}/events",
            content=body,
            headers={"content-type": "application/json"} | bearer(token) | named,
        )

    def records(self, topic: str) -> list[confluent_kafka.Message]:
        """Every record of a topic, in the order of each partition."""
        name = topic + self.suffix
        partitions = describe(self.client, [name])[name].all_partitions
        reader = consumer(self.client, "test")
        beginning = confluent_kafka.OFFSET_BEGINNING
        reader.assign(
            [confluent_kafka.TopicPartition(p.topic, p.partition, beginning) for p in partitions]
        )
        found, ends = [], 0
        while ends < len(partitions):
            for message in reader.consume(10_000, timeout=1):
                if message.error() is None:
                    found.append(message)
                else:
                    ends += message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
        reader.close()
        return found

    def ids(self, topic: str) -> list[str]:
        """Event ids of a topic."""
        return [json.loads(message.value())["event_id"] for message in self.records(topic)]


def http(method: str, url: str, **options: Any) -> httpx.Response:
    """A request on a connection of its own."""
    options.setdefault("timeout", LIMIT_SECONDS)
    return httpx.request(method, url, verify=NO_AUTHORITIES, **options)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def assert_as_described(
    service: Service, token: str, run: DrillRun, *options: str, examples: int
) -> None:
    """What schemathesis sends gets the answers that the service's description names.

    Args:
        examples: requests for each operation, in a short drill.
    """
    command = [HEADRACE.with_name("schemathesis"), "run", f"{service.url}/openapi.json"]
    command += ["-H", f"Authorization: Bearer {token}", *options]
    # A schema can't say that event times follow the clock, that ids differ within a batch, which
    # texts are queries, and which ids are registered.
    command += ["--exclude-checks", "positive_data_acceptance", "--generation-database", "none"]
    command += ["--max-examples", str(run.size(short=examples, long=10 * examples))]
    command += ["--seed", str(run.seed), "--no-color"]
    done = subprocess.run(command, cwd=service.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
