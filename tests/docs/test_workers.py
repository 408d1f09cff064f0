"""What the page about workers shows is a project that checks, and a program that runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, until, wait_for

from headrace import Worker
from headrace.kafka.admin.topics import Action
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.dead_letters.letters import scan
from headrace.kafka.table.topic_table import read_table
from headrace.operations.planning.plan import apply_plan, make_plan
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
from headrace.runtime.servers.ports import free_ports
from headrace.settings import load_settings
from headrace.testing import WorkerBench
from headrace.workers import WorkerInstance
from headrace.workers.rules import worker_faults

_PAGE = "docs/workers.md"


@pytest.fixture
def shown(blocks: Callable[[str], list]) -> list[str]:
    """The Python blocks, in their order: see where each is used."""
    return [one.text for one in blocks("python") if one.page == _PAGE]


@pytest.fixture
def loaded(
    broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], LoadedProject]:
    """Loads a block as the module of a project on the shared broker."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def load(module: str, block: str) -> LoadedProject:
        (tmp_path / "headrace.toml").write_text(
            f'[project]\nname = "site"\nmodules = ["{module}"]\n'
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
        )
        (tmp_path / f"{module}.py").write_text(block)
        return load_project(load_settings(tmp_path, {}))

    return load


@pytest.fixture
def project(shown: list[str], broker, loaded: Callable[[str, str], LoadedProject]) -> LoadedProject:
    """The first block, and its program beside it."""
    project = loaded("flow", shown[0])
    program = shown[8].replace("localhost:9092", broker.bootstrap_servers)
    assert program != shown[8]
    (project.settings.root / "program.py").write_text(program)
    return project


def test_the_worker_of_the_page_runs_inside_the_program_of_the_page(
    project: LoadedProject, broker
) -> None:
    client = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    apply_plan(project)
    sender = connected_producer(client)
    for campaign in (7, 7, 8):
        sender.produce("clicks", json.dumps({"user": "ann", "campaign": campaign}), b"ann")
    assert sender.flush(FLUSH_SECONDS) == 0
    command = [sys.executable, "program.py"]
    with subprocess.Popen(command, cwd=project.settings.root) as program:
        try:
            wait_for(lambda: _records(client, "enriched-clicks") == 2)
            wait_for(lambda: _records(client, "clicks.dead") == 1)
            program.send_signal(signal.SIGTERM)
            assert program.wait(LIMIT_SECONDS) == 0
        except BaseException:
            program.kill()
            raise
    [letter] = scan(client, "clicks")
    assert (letter.letter.reason, letter.pipeline) == ("unknown-campaign", "enrich")


def test_the_task_of_the_page_is_a_task(project: LoadedProject, shown: list[str]) -> None:
    names = {"clicks": project.topics["clicks"], "connect": None}
    exec(shown[6], names)
    assert names["worker"].task().process


def test_the_functions_with_a_lifespan_of_the_page_are_workers(shown: list[str]) -> None:
    names: dict[str, Any] = {}
    for block in (shown[0], shown[2], shown[7]):
        exec(block, names)
    for name in ("look_up", "rank"):
        assert list(worker_faults(names[name])) == []


def test_the_keys_and_values_of_the_page_are_deserialized(
    shown: list[str], loaded: Callable[[str, str], LoadedProject]
) -> None:
    watch = loaded("readings", shown[1]).declared(Worker)["watch"]
    with WorkerBench(watch) as bench:
        key = bytes(15) + b"\x07"
        bench.feed(b"\0\0\x28\x42", b"short", None, key=key)
        bench.feed(b"\0\0\x28\x42", key=b"no uuid")
    assert [sent.value for sent in bench.sent] == [b"00000000-0000-0000-0000-000000000007: 42.0"]
    assert [sent.key for sent in bench.sent] == [key]
    reasons = [letter.reason for letter in bench.dead_letters]
    assert reasons == ["wrong-length", "invalid-key"]


@pytest.fixture
def prices(shown: list[str], loaded: Callable[[str, str], LoadedProject]) -> LoadedProject:
    """The block with references."""
    return loaded("prices", shown[3])


def test_the_worker_with_references_of_the_page_looks_accounts_up(prices: LoadedProject) -> None:
    account = {"customer": "ann", "plan": "gold"}
    price = prices.declared(Worker)["price"]
    with WorkerBench(price, references={"accounts": {"ann": account}}) as bench:
        bench.feed({"customer": "ann", "cents": 5}, {"customer": "bob", "cents": 7})
    assert [json.loads(record.value) for record in bench.sent] == [
        {"customer": "ann", "cents": 5, "plan": "gold"},
        {"customer": "bob", "cents": 7, "plan": "free"},
    ]


def test_the_commands_beside_it_give_an_account_the_key_by_which_it_is_found(
    prices: LoadedProject, broker, blocks: Callable[[str], list]
) -> None:
    apply_plan(prices)
    [script] = [
        one.text
        for one in blocks("sh")
        if one.page == _PAGE and "headrace produce accounts" in one.text
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"PATH": path}
    subprocess.run(["bash", "-ec", script], cwd=prices.settings.root, env=environ, check=True)
    client = {"bootstrap.servers": broker.bootstrap_servers}
    assert read_table(client, "accounts") == {b"ann": b'{"customer": "ann", "plan": "gold"}'}


@pytest.fixture
def visits(shown: list[str], loaded: Callable[[str, str], LoadedProject]) -> LoadedProject:
    """The block with a state."""
    return loaded("visits", shown[4])


def test_the_worker_with_state_of_the_page_counts_visits(visits: LoadedProject) -> None:
    with WorkerBench(visits.declared(Worker)["count"]) as bench:
        bench.feed({"user": "ann", "page": "/"}, {"user": "ann", "page": "/prices"})
    assert [json.loads(record.value) for record in bench.sent] == [
        {"user": "ann", "page": "/", "number": 1, "from": ""},
        {"user": "ann", "page": "/prices", "number": 2, "from": "/"},
    ]


def test_the_worker_with_timers_of_the_page_closes_sessions(shown: list[str]) -> None:
    names: dict[str, Any] = {}
    exec(shown[5], names)
    assert list(worker_faults(names["session"])) == []
    with WorkerBench(names["session"]) as bench:
        bench.feed(b"/", b"/prices", key="ann")
        bench.advance(timedelta(minutes=30))
        bench.feed(b"/", key="bob")
    assert [(record.key, record.value) for record in bench.sent] == [(b"ann", b"2")]


def test_apply_makes_the_topic_of_the_state_and_adds_no_partitions(visits: LoadedProject) -> None:
    made = {change.topic: change for change in apply_plan(visits).changes}
    state = made["headrace.count.state"]
    assert (state.action, state.partitions) == (Action.CREATE, 4)
    assert state.config["cleanup.policy"] == "compact"
    grown = visits.settings.root / "visits.py"
    grown.write_text(grown.read_text().replace('key="user", partitions=4', "partitions=8"))
    sys.modules.pop("visits", None)
    refused = make_plan(load_project(load_settings(visits.settings.root, {}))).refused
    assert {change.topic for change in refused} == {"visits", "headrace.count.state"}
    assert all("keeps a state" in change.detail for change in refused)


def test_an_instance_inside_a_program_has_the_metrics_of_the_page(
    project: LoadedProject, shown: list[str], broker
) -> None:
    client = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    apply_plan(project)
    [port] = free_ports(1)
    names: dict[str, Callable] = {}
    exec(shown[9].replace("9400", str(port)), names)
    instance = WorkerInstance(project.declared(Worker)["enrich"], client)

    def running() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return b'instance="enrich-1",state="running"} 1\n' in answer.read()
        except OSError:
            return False

    async def run() -> None:
        ended = asyncio.create_task(names["run"](instance, client))
        await until(running, on_thread=True)
        instance.stop()
        await ended

    asyncio.run(run())


def _records(client: dict[str, str], topic: str) -> int:
    partitions = describe(client, [topic])[topic].all_partitions
    return sum(latest for _, latest in watermarks(client, partitions).values())
