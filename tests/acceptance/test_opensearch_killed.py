"""Pipelines into OpenSearch: drivers and the server are killed, answers get lost, an index closes.

Each event must be one document, and each bad one a dead letter, once; and again after all is read
from the beginning.
"""

import signal
from collections import Counter

import pytest
from tests.acceptance.project import EVENTS, Project, kill_session
from tests.integration.http_proxy import FaultyProxy
from tests.integration.opensearch_server import ROOTS, SCARCE, OpenSearchServer
from tests.waiting import DRILL_LIMIT_SECONDS, wait_for_drill

PIPELINES = """
from headrace import OpenSearch, Unique, WriteMode

daily = OpenSearch("daily", unique=Unique(by=["event_id"]), index_by="day")
newest = OpenSearch("newest", WriteMode.UPSERT, key=("category",), newest_by="event_time")
pipelines = [
    Pipeline("daily", events, daily, limits=limits),
    Pipeline("placed", events, OpenSearch("placed"), limits=limits),
    Pipeline("newest", events, newest, steps=[doubled], limits=limits),
]
"""
SETTINGS = """
[sinks.opensearch]
url = "{url}"
"""
NAMES = ("daily", "placed", "newest")


class Site:
    """A project, and the server that it writes to.

    Args:
        folder: of both.
        bootstrap: the Kafka cluster.
        drill_run: chooses the version of the server, and which answers are lost.
        batch: records of a batch.
    """

    def __init__(self, folder, bootstrap, drill_run, batch):
        self.version = drill_run.random.choice(sorted(ROOTS))
        self.server = OpenSearchServer(folder / "server", self.version, SCARCE)
        self.server.run()
        self.proxy = FaultyProxy(
            self.server.url,
            lambda method, path: is_write(method, path) and drill_run.random.random() < 0.1,
        )
        settings = SETTINGS.format(url=self.proxy.endpoint)
        self.project = Project(
            folder / "project", bootstrap, flow=EVENTS + PIPELINES, batch=batch, settings=settings
        )
        self.sent = 0

    def send(self, count):
        self.project.send(self.sent, count, bad=b"not json")
        self.sent += count

    @property
    def good(self):
        return [f"e{n}" for n in range(self.sent) if n % 1000]

    def has_all(self):
        return all(self.server.count(index) == len(self.good) for index in ("daily-*", "placed"))

    def is_waiting_for(self, text):
        statuses = self.project.statuses().values()
        return any(text in (status.get("reason") or "") for status in statuses)

    def check(self):
        """Each event is there once, in each of the three ways."""
        for index in ("daily-*", "placed"):
            documents = [document["event_id"] for document in self.server.documents(index).values()]
            assert Counter(documents) == dict.fromkeys(self.good, 1)
        last = {f"c{n % 8}": n for n in range(self.sent) if n % 1000}
        newest = self.server.documents("newest")
        assert {name: document["n"] for name, document in newest.items()} == last
        for pipeline in NAMES:
            dead = self.project.dead_offsets(pipeline)
            assert len(dead) == len(set(dead)) == self.sent - len(self.good)

    def close(self):
        self.proxy.close()


def is_write(method, path):
    """Whether a request is a bulk, or writes positions."""
    return "_bulk" in path or (method == "PUT" and "/_doc/" in path)


@pytest.fixture
def site(start_cluster, stop_at_end, tmp_path, drill_run):
    stop_at_end(tmp_path / "server")
    batch = drill_run.size(short=500, long=1_000)
    site = Site(tmp_path, start_cluster().bootstrap_servers, drill_run, batch)
    yield site
    site.close()
    site.server.kill()


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_and_lost_answers_lose_and_repeat_nothing(site, drill_run):
    kills = drill_run.size(short=1, long=10)
    project, server = site.project, site.server
    project.call("apply")
    for _ in range(kills):
        site.send(drill_run.size(short=4_000, long=8_000) // kills + 3_000)
        project.kill_a_run(drill_run.random)
    process = project.start("run")
    try:
        before = project.updates()
        wait_for_drill(lambda: project.moved(before), "a batch of the restarted run")
        server.kill()
        wait_for_drill(lambda: site.is_waiting_for("Remote end closed"), "the reason of the wait")
        server.run()
        wait_for_drill(site.has_all, "all documents behind the server's kill")
        server.call("PUT", "placed/_settings", {"index.blocks.write": True})
        site.send(500)
        wait_for_drill(
            lambda: site.is_waiting_for("index [placed] blocked"), "the reason of the block"
        )
        # A pipeline that waits can be stopped.
        process.send_signal(signal.SIGTERM)
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)
    server.call("PUT", "placed/_settings", {"index.blocks.write": None})
    project.call("run", "--once")
    site.check()
    project.call("reconcile", *NAMES)
    for pipeline in NAMES:
        project.call("checkpoint", "reset", pipeline, "--to", "earliest")
    project.call("run", "--once")
    site.check()
    repeated = project.statuses()["daily"]["opensearch_repeated_rows"]
    assert repeated >= len(site.good)
    drill_run.report(
        version=site.version, events=site.sent, kills=kills + 1, lost=len(site.proxy.lost)
    )
