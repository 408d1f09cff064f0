"""A lake on S3 whose drivers are killed and lost, and whose answers get lost on their way."""

import shutil
from collections import Counter

import pytest
from tests.acceptance.project import Project
from tests.integration.http_proxy import FaultyProxy
from tests.integration.s3_server import ACCESS_KEY, SECRET_KEY

from headrace.sinks.lake.delta.table import read_table

TABLES = ("fused", "stepped")
S3 = """
[s3]
endpoint = "{endpoint}"
allow_http = true
access_key_id = "{key}"
secret_access_key = {{ env = "S3_SECRET" }}
"""


class OnS3(Project):
    """A project whose lake is in a bucket, behind a proxy that may lose answers."""

    def __init__(self, folder, bootstrap, bucket, proxy, server, **options):
        settings = S3.format(endpoint=proxy.endpoint, key=ACCESS_KEY)
        super().__init__(folder, bootstrap, lake=f"{bucket}/lake", settings=settings, **options)
        self._options = server.settings.options

    def ids(self, table):
        rows = read_table(f"{self.lake}/{table}", ["event_id"], self._options)
        return Counter(rows["event_id"].to_pylist())


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_lost_machines_and_lost_answers_lose_and_repeat_nothing(
    start_cluster, s3, tmp_path, drill_run, monkeypatch
):
    """Each kill takes the machine: the next run has an empty ``.headrace``."""
    monkeypatch.setenv("S3_SECRET", SECRET_KEY)
    events = drill_run.size(short=6_000, long=150_000)
    kills = drill_run.size(short=1, long=10)
    batch = drill_run.size(short=1_000, long=2_000)
    proxy = FaultyProxy(
        s3.settings.endpoint, lambda method, path: commits(method, path) and chance(drill_run, 0.3)
    )
    bucket = s3.create_bucket("drill")
    bootstrap = start_cluster().bootstrap_servers
    project = OnS3(tmp_path / "drill", bootstrap, bucket, proxy, s3, batch=batch)
    try:
        project.call("apply")
        project.send(0, events, bad=b"not json")
        for _ in range(kills):
            project.kill_a_run(drill_run.random)
            shutil.rmtree(project.folder / ".headrace")
        project.call("run", "--once")
        for table in TABLES:
            project.call("compact", table)
    finally:
        proxy.close()
    good = {f"e{n}": 1 for n in range(events) if n % 1000}
    for table in TABLES:
        assert project.ids(table) == good
        dead = project.dead_offsets(table)
        assert len(dead) == len(set(dead)) == events // 1000
    drill_run.report(events=events, kills=kills, lost_answers=len(proxy.lost))


def commits(method, path):
    return method == "PUT" and "/_delta_log/0" in path


def chance(drill_run, probability):
    return drill_run.random.random() < probability
