"""`headrace drill` of a project: what holds, what a worker loses, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from tests.acceptance.project import HEADRACE, kill_session
from tests.kafka_topics import make_topic
from tests.waiting import DRILL_LIMIT_SECONDS, FLUSH_SECONDS, LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.admin_requests import admin
from headrace.kafka.client.clients import client_config, producer
from headrace.kafka.client.offsets import latest_offsets
from headrace.model import TopicPartition
from headrace.settings import KafkaSettings

FLOW = """
from datetime import datetime
from pathlib import Path

from headrace import Lake, Pipeline, Send, Topic, WorkerRecord, worker

LEFT_OUT = Path({left_out!r})


class Click:
    id: str
    at: datetime
    user: str


clicks = Topic(
    "clicks", event=Click, event_id="id", event_time="at", key="user", partitions=4
)
copied = Topic("copied", partitions=2)
thinned = Topic("thinned")
seen = 0


@worker(topic=clicks, subpartitions=4)
async def copy(click: Click, record: WorkerRecord, send: Send) -> None:
    send("copied", record.value, key=record.key)


@worker(topic=clicks)
async def thin(click: Click, send: Send) -> None:
    global seen
    seen += 1
    if seen % 100 == 0:
        with LEFT_OUT.open("a") as file:
            file.write(click.id + "\\n")
        return
    send("thinned", click.id.encode())


to_lake = Pipeline("to-lake", clicks, Lake("clicks"))
"""


LOOKUPS = """
from headrace import References, Send, Topic, WorkerRecord, worker


class Click:
    id: str
    user: str


class Account:
    user: str
    plan: str


clicks = Topic({clicks!r}, event=Click, event_id="id", key="user")
accounts = Topic({accounts!r}, event=Account, key="user", compaction=True)
plans = Topic("plans")


@worker(topic=clicks, references={{"accounts": accounts}})
async def plan(click: Click, accounts: References, send: Send) -> None:
    send("plans", f"{{click.id}} {{accounts[click.user].plan}}".encode())
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "clicks"
    folder.mkdir()
    (folder / "flow.py").write_text(FLOW.format(left_out=str(tmp_path / "left-out")))
    (folder / "headrace.toml").write_text('[project]\nname = "clicks"\nmodules = ["flow"]\n')
    events = (
        {"id": f"c{number}", "at": "2026-11-01T09:00:00Z", "user": f"u{number % 20}"}
        for number in range(100)
    )
    (folder / "clicks.ndjson").write_text("".join(json.dumps(event) + "\n" for event in events))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return folder


def start(project: Path, *words: object) -> subprocess.Popen:
    command = [HEADRACE, "drill", *words, "--project", project]
    if (events := project / "clicks.ndjson").exists():
        command += ["--from", events]
    with (
        (project / "progress.txt").open("w") as shown,
        (project / "result.txt").open("w") as result,
    ):
        return subprocess.Popen(
            [*map(str, command)], stdout=result, stderr=shown, start_new_session=True
        )


def drilled(project: Path, *words: object, code: int) -> dict:
    process = start(project, "--json", *words)
    try:
        process.wait(2 * DRILL_LIMIT_SECONDS)
    finally:
        kill_session(process)
    shown = (project / "result.txt").read_text()
    assert process.returncode == code, shown + progress(project)
    assert_nothing_stays(project)
    return json.loads(shown)


def progress(project: Path) -> str:
    return (project / "progress.txt").read_text()


def assert_nothing_stays(project: Path) -> None:
    temporary = project.parent / "temporary"
    assert list(temporary.iterdir()) == []
    commands = (
        file.read_bytes().decode(errors="replace")
        for file in Path("/proc").glob("[0-9]*/cmdline")
        if file.exists()
    )
    assert [command for command in commands if str(temporary) in command] == []
    kept = sorted(path.name for path in (project / ".headrace").iterdir())
    assert kept == ["headrace.log"]


@pytest.mark.drill
def test_a_drill_names_what_a_worker_loses_and_finds_nothing_lost_in_another(project, drill_run):
    seed, rounds = drill_run.random.randrange(2**32), drill_run.size(short=1, long=5)
    faults = ("--fault", "leader", "--rounds", rounds, "--seed", seed)
    report = drilled(project, "copy", "thin", *faults, code=6)
    [book] = report["books"]["workers"]
    sent = {topic["topic"]: topic for topic in book["sent"]}
    assert sent["copied"]["lost_ids"] == []
    lost = set(sent["thinned"]["lost_ids"])
    left_out = set((project.parent / "left-out").read_text().split())
    assert lost
    # The others were sent all the same: another instance has had them, too.
    assert lost <= left_out
    [written] = report["books"]["writing"]
    assert written["lost_ids"] == written["repeated_ids"] == []
    assert written["acknowledged"] == report["events"] == book["events"]
    assert report["has_held"] is False
    assert report["problems"] == []
    assert [fault["kind"] for fault in report["faults"]] == ["leader"] * rounds
    drill_run.report(events=report["events"], lost=len(lost), faults=len(report["faults"]))


@pytest.mark.drill
def test_a_pipeline_holds_its_promise_while_a_leader_and_its_driver_are_killed(project, drill_run):
    seed, rounds = drill_run.random.randrange(2**32), drill_run.size(short=1, long=5)
    path = project.parent / "report.json"
    faults = ("--fault", "leader", "--fault", "kill", "--rounds", rounds, "--seed", seed)
    report = drilled(project, "to-lake", *faults, "--report", path, code=0)
    assert json.loads(path.read_text()) == report
    [pipeline] = report["books"]["pipelines"]
    assert sum(window["rows"] for window in pipeline["windows"]) == report["events"] > 0
    still = {(row["fault"], row["subject"]) for row in report["standstills"]}
    kinds = ("calm", "leader", "kill")
    assert still == {(kind, subject) for kind in kinds for subject in ("writing", "to-lake")}
    drill_run.report(events=report["events"], faults=len(report["faults"]))


@pytest.mark.drill
def test_ctrl_c_ends_a_drill_and_nothing_stays(project):
    process = start(project, "copy", "--fault", "brokers")
    try:
        wait_for_drill(lambda: "fault 1 of 1" in progress(project), "the first fault")
        process.send_signal(signal.SIGINT)
        assert process.wait(DRILL_LIMIT_SECONDS) == 130, progress(project)
    finally:
        kill_session(process)
    assert "Traceback" not in progress(project)
    assert_nothing_stays(project)


@pytest.mark.drill
def test_events_and_what_is_looked_up_are_read_from_the_projects_own_cluster(
    project, broker, topic
):
    clicks, accounts = topic("clicks"), topic("accounts")
    config = client_config(KafkaSettings(), broker.bootstrap_servers)
    make_topic(config, clicks)
    make_topic(config, accounts, config={"cleanup.policy": "compact"})
    sender = producer(config)
    for number in range(20):
        user = f"u{number % 5}"
        sender.produce(clicks, json.dumps({"id": f"c{number}", "user": user}), user)
        sender.produce(accounts, json.dumps({"user": user, "plan": f"p{number}"}), user)
    assert sender.flush(FLUSH_SECONDS) == 0
    (project / "clicks.ndjson").unlink()
    (project / "flow.py").write_text(LOOKUPS.format(clicks=clicks, accounts=accounts))
    servers = f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
    with (project / "headrace.toml").open("a") as file:
        file.write(servers)
    report = drilled(project, "--fault", "restart", "--instances", 1, code=0)
    [book] = report["books"]["workers"]
    assert [(sent["topic"], sent["in_topic"]) for sent in book["sent"]] == [
        ("plans", report["events"])
    ]
    ends = latest_offsets(config, [TopicPartition(clicks, 0), TopicPartition(accounts, 0)])
    assert [offset for offset, _ in ends.values()] == [20, 20]
    groups = admin(config).list_consumer_groups().result(LIMIT_SECONDS).valid
    assert "headrace.plan" not in {group.group_id for group in groups}
