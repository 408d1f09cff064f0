"""Spreads on a real broker: looked at, applied, and followed by producers that run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.integration.service import Service
from tests.waiting import wait_for

import headrace
from headrace.cli import main
from headrace.errors import SpreadsChangedError, SpreadsUnknownError
from headrace.kafka.client.clients import client_config
from headrace.kafka.table.topic_table import table_records
from headrace.model import ByAccount, Topic, partition_of
from headrace.settings import KafkaSettings
from headrace.sinks.kafka.writer import TopicWriter
from headrace.topics.spreads import change
from headrace.topics.spreads.change import applied_table, apply_spreads

PARTITIONS = 12
FLOW = """
from datetime import datetime, timedelta
from headrace import ByAccount, Topic

class Event:
    id: str
    account: str
    at: datetime

events = Topic(
    "{name}",
    event=Event,
    event_time="at",
    partitions=12,
    latest_ahead=timedelta(seconds=1),
    partitioning=ByAccount(
        timedelta(seconds=1), account={account}, lead={lead}
    ),
)
"""
WORKER = """
import json
from datetime import UTC, datetime, timedelta
from headrace import Topic
from headrace import Send, WorkerRecord, worker
from {module} import events

numbers = Topic("{name}-numbers", partitions=1)

@worker(topic=numbers, name="spreading")
async def spreading(record: WorkerRecord, send: Send) -> None:
    seconds = int(record.value)
    at = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    event = {{"id": str(seconds), "account": "", "at": at.isoformat()}}
    value = json.dumps(event).encode()
    send(events.name, value, key=record.key, headers=(("account", b"large"),))
"""
PROGRAM = """
import sys, threading, time
from datetime import UTC, datetime, timedelta
from headrace import Project
from headrace.errors import SpreadsUnknownError

asked_to_end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), asked_to_end.set()), daemon=True).start()
count = 0
with Project.open(sys.argv[1]).producer() as producer:
    while not asked_to_end.is_set():
        for account in ("large", "small"):
            for late in (0, 3, 11):
                count += 1
                at = datetime.now(UTC) - timedelta(seconds=late)
                event = {"id": f"{sys.argv[3]}-{count}", "account": account, "at": at}
                try:
                    producer.send(sys.argv[2], event)
                except SpreadsUnknownError as error:
                    print(error, file=sys.stderr)
        time.sleep(0.01)
"""


@pytest.fixture
def config(broker) -> dict[str, str]:
    return client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def project(broker, topic, tmp_path, monkeypatch):
    """``project(account, lead)``: a topic of a project on the shared broker, and its folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def made(account: str | None, lead: str) -> tuple[Topic, Path]:
        name = topic("events")
        module = f"flow_{name.replace('-', '_')}"
        (tmp_path / "headrace.toml").write_text(
            f'[project]\nname = "shop"\nmodules = ["{module}"]\n'
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
        )
        flow = FLOW.format(name=name, account=repr(account), lead=lead)
        (tmp_path / f"{module}.py").write_text(flow)
        assert CliRunner().invoke(main, ["apply", "--project", str(tmp_path)]).exit_code == 0
        return headrace.Project.open(tmp_path).topics[name], tmp_path

    return made


def spread(folder: Path, *arguments: str) -> dict:
    ended = CliRunner().invoke(
        main, ["topics", "spread", *arguments, "--json", "--project", str(folder)]
    )
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def test_a_large_account_is_proposed_applied_and_set_back(project):
    topic, folder = project(None, "timedelta(hours=1)")
    now = datetime.now(UTC)
    for account, count in {"large": 600, "middle": 60, **{f"a{n}": 20 for n in range(17)}}.items():
        with headrace.Project.open(folder).producer(account=account) as producer:
            for number in range(count):
                at = now - timedelta(seconds=number % 60)
                producer.send(topic, {"id": f"{number:05}", "account": "", "at": at})

    report = spread(folder, topic.name)
    assert (report["version"], report["applied"], report["records"]) == (0, False, 1_000)
    assert sum(load["records"] for load in report["partitions"]) == 1_000
    assert sum(load["proposed"] for load in report["partitions"]) == report["bytes"]
    # All in one place, as nothing is spread yet: what is computed is what lies in Kafka.
    assert [load["expected"] for load in report["partitions"]] == [
        load["bytes"] for load in report["partitions"]
    ]
    assert [(c["account"], c["width"], c["to"]) for c in report["changes"]] == [
        ("large", 1, 12),
        ("middle", 1, 2),
    ]
    assert report["hottest_proposed"] < report["hottest"]

    applied = spread(folder, topic.name, "--apply")
    assert (applied["version"], applied["applied"]) == (1, True)
    since = datetime.fromisoformat(applied["counts_from"])
    assert since >= now + timedelta(hours=1) + change.MARGIN
    for arguments in ((), ("--apply",), ("--set", "large=12", "--apply")):
        again = spread(folder, topic.name, *arguments)
        assert (again["version"], again["changes"]) == (1, [])

    back = spread(folder, topic.name, "--set", "large=1", "--apply")
    assert (back["version"], [c["to"] for c in back["changes"]]) == (2, [1])
    part = spread(folder, topic.name, "--limit", "100")
    assert 100 <= part["records"] <= 100 + PARTITIONS
    assert part["read_fraction"] == 0.1


def test_of_two_operators_at_once_one_is_refused(project, config):
    topic, _ = project("account", "timedelta(hours=1)")
    apply_spreads(config, topic, 0, {"a": 2})
    with pytest.raises(SpreadsChangedError, match="version 0 was looked at"):
        apply_spreads(config, topic, 0, {"a": 3})
    for version in (1, 2, 3):

        def apply(width: int, seen: int = version) -> int:
            try:
                return apply_spreads(config, topic, seen, {"a": width}).version
            except SpreadsChangedError:
                return 0

        with ThreadPoolExecutor(3) as threads:
            versions = [number for number in threads.map(apply, (2, 3, 4)) if number]
        # A fence may hit all but the last; it is never applied twice.
        assert versions in ([version + 1], [])
        if not versions:
            apply_spreads(config, topic, applied_table(config, topic.name).version, {"a": 5})
        assert applied_table(config, topic.name).version == version + 1


def test_producers_that_run_follow_and_every_window_is_where_the_table_says(
    project, config, monkeypatch
):
    """Two programs and the writer of a pipeline's sink, while an account grows and shrinks."""
    # The clocks of one machine do not differ, and the test lasts as long as the lead.
    monkeypatch.setattr(change, "MARGIN", timedelta(seconds=1))
    topic, folder = project("account", "timedelta(seconds=8)")
    command = [sys.executable, "-c", PROGRAM, str(folder), topic.name]
    programs = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    ending = threading.Event()
    writer = threading.Thread(target=write_rows, args=(topic, config, ending))
    writer.start()
    try:
        for version, width in enumerate((6, 1)):
            since = apply_spreads(config, topic, version, {"large": width}).spreads["large"][-1]
            while datetime.now(UTC) < since.since + timedelta(seconds=3):
                time.sleep(0.1)
                assert all(program.poll() is None for program in programs)
    finally:
        ending.set()
        writer.join()
        errors = [program.communicate()[1] for program in programs]
    assert [program.returncode for program in programs] == [0, 0], errors
    check_places(topic, config)


@pytest.mark.parametrize("arguments", [(), ("--processes", "2")])
def test_what_workers_send_is_where_the_table_says(project, config, arguments):
    topic, folder = project(None, "timedelta(hours=1)")
    [module] = [path.stem for path in folder.glob("flow_*.py")]
    (folder / "spreading.py").write_text(WORKER.format(name=topic.name, module=module))
    settings = folder / "headrace.toml"
    settings.write_text(settings.read_text().replace(f'["{module}"]', f'["{module}", "spreading"]'))
    command = [sys.executable, "-m", "headrace"]
    where = ["--project", str(folder)]
    subprocess.run([*command, "apply", *where], check=True, capture_output=True)
    before = datetime(2026, 5, 1, tzinfo=UTC) - timedelta(days=1)
    table = apply_spreads(config, topic, 0, {"large": 6}, lambda: before)
    with headrace.Project.open(folder).producer() as producer:
        for number in range(60):
            producer.send(f"{topic.name}-numbers", b"%d" % number)
    run = subprocess.Popen([*command, "workers", "run", "spreading", *where, *arguments])
    try:
        wait_for(lambda: len(list(table_records(config, topic.name))) == 60)
        assert run.poll() is None
    finally:
        run.terminate()
        run.wait()
    place = partition_of(topic.partitioning, PARTITIONS, lambda account, _: table.spreads[account])
    for record in table_records(config, topic.name):
        at = datetime.fromisoformat(json.loads(record.value())["at"])
        assert record.partition() == place({}, "large", at)


def test_the_service_follows_and_places_by_the_account_of_the_token(broker, config, tmp_path):
    """What was applied counts for windows of an hour ago: it was applied three hours ago."""
    suffix = f"-{uuid.uuid4().hex[:6]}"
    service = Service(tmp_path, broker.bootstrap_servers, suffix, workers=1)
    flow = FLOW.format(name=f"events{suffix}", account=None, lead="timedelta(minutes=10)")
    (tmp_path / "flow.py").write_text(flow)
    service.command("apply")
    strategy = ByAccount(timedelta(seconds=1), lead=timedelta(minutes=10))
    topic = Topic(f"events{suffix}", partitions=PARTITIONS, partitioning=strategy)
    now = datetime.now(UTC)
    table = apply_spreads(config, topic, 0, {"acme": 6}, lambda: now - timedelta(hours=3))
    times = [now - timedelta(hours=1, seconds=number) for number in range(50)]
    events = [{"id": str(n), "account": "", "at": at.isoformat()} for n, at in enumerate(times)]
    with service.running():
        token = service.token()
        assert service.post("events", token, json.dumps(events)).json()["accepted"] == 50
    place = partition_of(strategy, PARTITIONS, lambda account, _: table.spreads[account])
    expected = {number: place({}, "acme", at) for number, at in enumerate(times)}
    records = service.records("events")
    assert {int(json.loads(r.value())["id"]): r.partition() for r in records} == expected
    assert len(set(expected.values())) == 6


def write_rows(topic: Topic, config: dict[str, str], ending: threading.Event) -> None:
    """Sends rows as a task of a pipeline does, until it is asked to end."""
    writer = TopicWriter(topic, config, "task")
    count = 0
    while not ending.is_set():
        now = datetime.now(UTC)
        rows = [
            {"id": f"sink-{count}-{late}", "account": "large", "at": now - timedelta(seconds=late)}
            for late in (0, 5, 15)
        ]
        count += 1
        try:
            assert not writer.write(pa.Table.from_pylist(rows))
        except SpreadsUnknownError:
            time.sleep(0.1)


def check_places(topic: Topic, config: dict[str, str]) -> None:
    """Compares the partition of every record with that which the final table says."""
    strategy = topic.partitioning
    assert isinstance(strategy, ByAccount)
    table = applied_table(config, topic.name)
    grown, shrunk = (s.since for s in table.spreads["large"])
    place = partition_of(
        strategy, topic.partitions, lambda account, _: table.spreads.get(account, ())
    )
    senders: Counter[tuple[str, bool]] = Counter()
    used = defaultdict(set)
    for record in table_records(config, topic.name):
        event = json.loads(record.value())
        at = datetime.fromisoformat(event["at"])
        assert record.partition() == place(event, "", at), (event, table)
        senders[event["id"].split("-")[0], at >= grown] += 1
        used[event["account"], grown <= at < shrunk].add(record.partition())
    # Each of them sent before and after the change.
    assert len(senders) == 6, senders
    assert len(used["large", True]) > 2
    assert len(used["large", False]) == 1
    assert used["small", True] == used["small", False]
