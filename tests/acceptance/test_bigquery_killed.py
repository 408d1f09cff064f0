"""Tables of BigQuery whose drivers are killed, frozen and lost, and whose answers get lost."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.acceptance.project import EVENTS, Project, kill_session
from tests.integration.bigquery_proxy import (
    APPEND,
    COMMIT,
    FINALIZE,
    LOSE_ANSWER,
    LOSE_REQUEST,
    BigQueryProxy,
)
from tests.integration.bigquery_server import DATASET, PROJECT
from tests.integration.http_proxy import FaultyProxy
from tests.waiting import wait_for_drill

TABLES = ("fused", "stepped")
PIPELINES = """
from headrace import BigQuery

fused = Pipeline("fused", events, BigQuery("PREFIX_fused"), limits=limits)
stepped = Pipeline("stepped", events, BigQuery("PREFIX_stepped"), steps=[doubled], limits=limits)
"""
SETTINGS = """
[sinks.bigquery]
project = "{project}"
dataset = "{dataset}"
endpoint = "{endpoint}"
storage_endpoint = "http://127.0.0.1:{storage_port}"
"""


@pytest.fixture
def turn():
    """The stand-in is atomic in nothing: it gets one change at a time."""
    return threading.Lock()


@pytest.fixture
def proxy(bigquery, drill_run, turn):
    """Loses one request or answer in ten."""

    def choose(method):
        if method in (APPEND, COMMIT, FINALIZE) and drill_run.random.random() < 0.1:
            return drill_run.random.choice([LOSE_REQUEST, LOSE_ANSWER])
        return ""

    proxy = BigQueryProxy(bigquery.storage_port, choose=choose, turn=turn)
    yield proxy
    proxy.close()


@pytest.fixture
def rest_proxy(bigquery, drill_run, turn):
    """Loses one answer in ten to a change of a table, such as a record."""

    def loses(method, path):
        return method in ("PATCH", "POST") and drill_run.random.random() < 0.1

    proxy = FaultyProxy(f"127.0.0.1:{bigquery.port}", loses, turn)
    yield proxy
    proxy.close()


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_lost_machines_and_lost_answers_lose_and_repeat_nothing(
    start_cluster, bigquery, proxy, rest_proxy, tmp_path, drill_run
):
    """Each other kill takes the machine: the next run has an empty ``.headrace``."""
    events = drill_run.size(short=6_000, long=150_000)
    kills = drill_run.size(short=2, long=20)
    prefix = f"drill_{drill_run.random.getrandbits(32):x}"
    project = Project(
        tmp_path / "drill",
        start_cluster().bootstrap_servers,
        batch=drill_run.size(short=1_000, long=2_000),
        flow=EVENTS + PIPELINES.replace("PREFIX", prefix),
        settings=SETTINGS.format(
            project=PROJECT,
            dataset=DATASET,
            endpoint=rest_proxy.endpoint,
            storage_port=proxy.port,
        ),
    )
    project.call("apply")
    project.send(0, events, bad=b"not json")
    for number in range(kills):
        project.kill_a_run(drill_run.random)
        if number % 2:
            shutil.rmtree(project.folder / ".headrace")
    project.call("run", "--once")
    good = {f"e{n}": 1 for n in range(events) if n % 1000}
    for table in TABLES:
        sql = f"SELECT event_id, COUNT(*) FROM {prefix}_{table} GROUP BY event_id"
        assert {event_id: int(count) for event_id, count in bigquery.query(sql)} == good
        dead = project.dead_offsets(table)
        assert len(dead) == len(set(dead)) == events // 1000
    drill_run.report(
        events=events, kills=kills, calls=len(proxy.calls), lost_answers=len(rest_proxy.lost)
    )


@pytest.mark.drill
def test_drivers_that_are_killed_and_frozen_beside_each_other_write_each_row_once(
    bigquery, turn, proxy, rest_proxy, tmp_path, drill_run
):
    """A frozen driver goes on later, wherever it stood, and does not know of the others."""
    rows = drill_run.size(short=300, long=5_000)
    table = f"drill_{drill_run.random.getrandbits(32):x}"
    fate = Counter()
    drivers, frozen = [], []
    try:
        while not _is_done(bigquery, turn, table, rows):
            drivers = [driver for driver in drivers if driver.poll() is None]
            while len(drivers) < 2:
                drivers.append(_driver(tmp_path, rest_proxy, proxy, table, rows))
            time.sleep(drill_run.random.uniform(0.3, 3))
            driver = drill_run.random.choice(drivers)
            match drill_run.random.choice(["kill", "freeze", "thaw", "none"]):
                case "kill":
                    fate["killed"] += 1
                    kill_session(driver)
                case "freeze":
                    fate["frozen"] += 1
                    driver.send_signal(signal.SIGSTOP)
                    drivers.remove(driver)
                    frozen.append(driver)
                case "thaw" if frozen:
                    drivers.append(frozen.pop(0))
                    drivers[-1].send_signal(signal.SIGCONT)
        for driver in frozen:
            driver.send_signal(signal.SIGCONT)
        for driver in (*drivers, *frozen):
            wait_for_drill(lambda driver=driver: driver.poll() is not None)
    finally:
        for driver in (*drivers, *frozen):
            kill_session(driver)
    counts = {int(id_): int(count) for id_, count in bigquery.query(_count(table))}
    assert counts == dict.fromkeys(range(rows), 1)
    drill_run.report(rows=rows, lost_answers=len(rest_proxy.lost), **fate)


def _count(table):
    return f"SELECT id, COUNT(*) FROM {table} GROUP BY id"


def _is_done(bigquery, turn, table, rows):
    with turn:
        known = bigquery.request("GET", f"/datasets/{DATASET}/tables").get("tables", [])
        if table not in {resource["tableReference"]["tableId"] for resource in known}:
            return False
        [[count]] = bigquery.query(f"SELECT COUNT(DISTINCT id) FROM {table}")
    return int(count) == rows


def _driver(folder, rest_proxy, proxy, table, rows):
    addresses = (rest_proxy.endpoint, f"http://127.0.0.1:{proxy.port}")
    with (folder / "drivers.txt").open("ab") as output:
        return subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("bigquery_driver.py"),
                *addresses,
                table,
                str(rows),
            ],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
