"""The services that are compared: built once, then run as processes on one port each."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.driver import SystemFailedError
from bench.environment import python_of
from bench.usage import end_tree
from headrace.ingest.tokens.operations import TokenSpec, create_token
from headrace.runtime.servers.ports import free_ports
from headrace.settings import load_settings

HERE = Path(__file__).resolve().parent
RIVALS = HERE / "rivals"
TOPIC = "page-views"
PARTITIONS = 4
SEGMENTS = {"retention.bytes": "536870912", "segment.bytes": "134217728"}
"""Of the topic: the broker keeps little of what is sent."""
WORKERS = 2
NODE = "node_modules/node/bin/node"
PATH = f"/v1/topics/{TOPIC}/events"
_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 20.0

FLOW = f"""
from datetime import datetime, timedelta

from headrace import Topic


class PageView:
    event_id: str
    event_time: datetime
    visitor: str
    page: str
    referrer: str
    user_agent: str
    country: str
    duration_ms: int


page_views = Topic(
    "{TOPIC}",
    event=PageView,
    key="visitor",
    event_id="event_id",
    event_time="event_time",
    latest_ahead=timedelta(hours=1),
    partitions={PARTITIONS},
    config={SEGMENTS},
)
"""
SETTINGS = """
[project]
name = "bench"
modules = ["flow"]

[kafka]
bootstrap_servers = "{bootstrap}"

[ingest]
port = {port}
workers = {workers}
"""


@dataclass(frozen=True)
class Running:
    """A service that answers: its process, port and access token."""

    pid: int
    port: int
    token: str


Command = tuple[list[str], Mapping[str, str], Path]
"""Arguments, what is added to the environment, folder to run in."""


def headrace(built: Path, bootstrap: str, port: int) -> tuple[Command, str]:
    """A project with one topic; its command and a token."""
    project = built / "project"
    project.mkdir(exist_ok=True)
    (project / "flow.py").write_text(FLOW)
    text = SETTINGS.format(bootstrap=bootstrap, port=port, workers=WORKERS)
    (project / "headrace.toml").write_text(text)
    program = str(Path(sys.executable).with_name("headrace"))
    _call([program, "apply"], project)
    _, token = create_token(load_settings(project, {}), TokenSpec("bench", "shop", "acme"))
    return ([program, "ingest"], {}, project), token


def node(built: Path, bootstrap: str, port: int) -> tuple[Command, str]:
    """Two processes of one cluster."""
    folder = built / "node"
    return _rival([str(folder / NODE), "service.js"], folder, bootstrap, port)


def fastapi(built: Path, bootstrap: str, port: int) -> tuple[Command, str]:
    """Two workers of uvicorn, on uvloop and httptools."""
    program = str(built / "fastapi-env/bin/uvicorn")
    chosen = f"service:app --workers {WORKERS} --no-access-log --log-level warning --port {port}"
    return _rival([program, *chosen.split()], RIVALS / "fastapi", bootstrap, port)


def go(built: Path, bootstrap: str, port: int) -> tuple[Command, str]:
    """One process on all cores."""
    return _rival([str(built / "go-rival")], built, bootstrap, port)


def _rival(arguments: list[str], folder: Path, bootstrap: str, port: int) -> tuple[Command, str]:
    token = hashlib.sha256(os.urandom(32)).hexdigest()
    environment = {
        "BOOTSTRAP": bootstrap,
        "TOPIC": TOPIC,
        "ACCOUNT": "acme",
        "TOKEN": token,
        "PORT": str(port),
        "WORKERS": str(WORKERS),
    }
    return (arguments, environment, folder), token


Service = Callable[[Path, str, int], tuple[Command, str]]
SERVICES: dict[str, Service] = {
    "headrace": headrace,
    "node-fastify": node,
    "fastapi": fastapi,
    "go-franz": go,
}


def build(built: Path, say: Callable[[str], object]) -> None:
    """Makes the load generator and the rivals in ``built``; quick when nothing changed.

    Raises:
        SystemFailedError: a tool is not there, or failed.
    """
    for tool in ("go", "npm"):
        if shutil.which(tool) is None:
            raise SystemFailedError(f"{tool} is needed for the rivals, and is not on the PATH")
    built.mkdir(parents=True, exist_ok=True)
    say("building the load generator and the rivals")
    _call(["go", "build", "-o", str(built / "load"), "."], HERE / "load")
    _call(["go", "build", "-o", str(built / "go-rival"), "."], RIVALS / "go")
    _build_node(built / "node")
    python_of(built / "fastapi-env", RIVALS / "fastapi/requirements.txt")


def _build_node(folder: Path) -> None:
    shutil.copytree(RIVALS / "node", folder, dirs_exist_ok=True)
    if not (folder / "node_modules").exists():
        _call(["npm", "ci", "--no-fund", "--no-audit"], folder)


def _call(arguments: list[str], folder: Path) -> None:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemFailedError(f"{' '.join(arguments)} failed: {done.stderr.strip()[-2000:]}")


@contextlib.contextmanager
def running(name: str, built: Path, bootstrap: str) -> Iterator[Running]:
    """The service, from its first 202 until the block ends."""
    port = free_ports(1)[0]
    (arguments, environment, folder), token = SERVICES[name](built, bootstrap, port)
    with (built / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=os.environ | dict(environment),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await_answer(name, process, port, token)
            yield Running(process.pid, port, token)
        finally:
            end_tree(process.pid, _GRACE_SECONDS)
            process.wait()


def _await_answer(name: str, process: subprocess.Popen[bytes], port: int, token: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if _status(port, token) == http.HTTPStatus.ACCEPTED:
                return
        time.sleep(_LOOK_SECONDS)
    raise SystemFailedError(f"{name} did not accept an event in {_READY_SECONDS:g} s")


def _status(port: int, token: str) -> int:
    event = {
        "event_id": f"ready-{time.time_ns()}",
        "event_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "visitor": "nobody",
        "page": "/",
        "referrer": "",
        "user_agent": "",
        "country": "DE",
        "duration_ms": 0,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", PATH, json.dumps(event), headers)
    status = connection.getresponse().status
    connection.close()
    return status
