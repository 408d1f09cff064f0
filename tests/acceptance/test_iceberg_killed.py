"""Iceberg tables whose drivers and catalog are killed, and whose answers get lost on their way."""

from collections import Counter

import pytest
from tests.acceptance.project import EVENTS, Project, kill_session
from tests.integration.http_proxy import FaultyProxy
from tests.integration.seaweed_server import SeaweedServer
from tests.waiting import DRILL_LIMIT_SECONDS, wait_for_drill

from headrace import Iceberg, Lake
from headrace.sinks.api import SinkContext

TABLES = ("fused", "stepped")
PIPELINES = """
from headrace import Iceberg, Lake, Metadata, Source

source = Source(events, metadata=(Metadata.PARTITION, Metadata.OFFSET))
by, iceberg = ("day", "hour", "category"), Iceberg("drill")
fused = Pipeline("fused", source, Lake("fused", by, format=iceberg), limits=limits)
stepped = Pipeline(
    "stepped", source, Lake("stepped", by, format=iceberg), steps=[doubled], limits=limits
)
"""


class InCatalog(Project):
    """A project whose tables are in the catalog of a server, behind a proxy."""

    def __init__(self, folder, bootstrap, server, proxy, **options):
        keys = {name: secret.reveal() for name, secret in server.sinks.items()}
        s3 = {"access_key_id": "s3.access-key-id", "secret_access_key": "s3.secret-access-key"}
        s3 |= {"endpoint": "s3.endpoint", "region": "s3.region"}
        keys |= {name: server.settings.options[ours] for ours, name in s3.items()}
        keys["uri"] = proxy.endpoint
        lines = "".join(f'"{name}" = "{text}"\n' for name, text in keys.items())
        settings = f"\n[sinks.lake]\n{lines}"
        super().__init__(folder, bootstrap, flow=EVENTS + PIPELINES, settings=settings, **options)
        self._context = SinkContext(
            "drill", "s3://unused", {}, server.sinks, storage=server.settings.options
        )

    def ids(self, table):
        rows = Lake(table, format=Iceberg("drill")).read(self._context, ["event_id"])
        return Counter(rows["event_id"].to_pylist())


@pytest.fixture
def server(tmp_path):
    server = SeaweedServer(tmp_path / "seaweed")
    server.start()
    yield server
    server.stop()


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_of_driver_and_catalog_and_lost_answers_lose_and_repeat_nothing(
    broker, topic, server, tmp_path, drill_run
):
    events = drill_run.size(short=6_000, long=100_000)
    kills = drill_run.size(short=1, long=10)
    batch = drill_run.size(short=1_000, long=2_000)
    proxy = FaultyProxy(server.catalog, lambda *_: False)
    folder = tmp_path / "drill"
    bootstrap = broker.bootstrap_servers
    project = InCatalog(folder, bootstrap, server, proxy, topic=topic(), batch=batch)
    try:
        project.call("apply")
        proxy.lose_answer = lambda method, path: (
            method == "POST" and path.endswith(TABLES) and drill_run.random.random() < 0.3
        )
        project.send(0, events, bad=b"not json")
        for _ in range(kills):
            project.kill_a_run(drill_run.random)
            project.call("compact", "drill.fused")
        restart_the_catalog_during_a_run(project, server)
        project.call("compact", "drill.stepped")
    finally:
        proxy.close()
    good = {f"e{n}": 1 for n in range(events) if n % 1000}
    for table in TABLES:
        assert project.ids(table) == good
        dead = project.dead_offsets(table)
        assert len(dead) == len(set(dead)) == events // 1000
        assert project.committed(table) == project.ends()
    drill_run.report(events=events, kills=kills, lost_answers=len(proxy.lost))


def restart_the_catalog_during_a_run(project, server):
    before = project.updates()
    process = project.start("run", "--once")
    try:
        wait_for_drill(lambda: project.moved(before), "a batch of the restarted run")
        server.stop()
        server.start()
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)
