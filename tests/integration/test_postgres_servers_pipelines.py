"""Pipelines into several servers of PostgreSQL: they fail between two, or one does not answer."""

import uuid
from collections import Counter

import psycopg
import pytest
from tests.integration.flow import Flow, click
from tests.integration.postgres_server import PostgresServer

from headrace import ByServer, Postgres, filter_rows
from headrace.errors import SinkError
from headrace.service.status import State
from headrace.settings import Secret
from headrace.sinks.postgres.driver import PostgresDriver

CLICKS = (
    "CREATE TABLE clicks (event_id text PRIMARY KEY, event_time timestamptz, category text, n int,"
    " price numeric, double bigint)"
)
BY_CATEGORY = ByServer("category", {"c0": "eu", "c1": "us"})


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path)


@pytest.fixture
def urls(flow, postgres):
    """Addresses of two servers, which the flow's settings name."""
    addresses = {}
    for server in ("eu", "us"):
        addresses[server] = postgres.create_database(f"flow_{uuid.uuid4().hex[:8]}")
        execute(addresses[server], CLICKS)
    flow.sinks = {"postgres": {f"{name}.url": Secret(url) for name, url in addresses.items()}}
    return addresses


def execute(url, statement):
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def ids(url):
    return Counter(event_id for (event_id,) in execute(url, "SELECT event_id FROM clicks"))


@pytest.mark.parametrize("path", ["fused", "stepped"])
def test_a_batch_that_fails_between_two_servers_is_there_once(flow, urls, path, monkeypatch):
    failures = []

    def fails_at_us(self, pieces, transaction, watermark_us):
        # The first batch and one in between; each time, the other server has committed it.
        if self._url.server == "us" and len(failures) < 2:
            failures.append(ids(urls["eu"]).total())
            raise SinkError("table clicks", "the driver is killed here")
        return commit(self, pieces, transaction, watermark_us)

    commit = PostgresDriver.commit
    monkeypatch.setattr(PostgresDriver, "commit", fails_at_us)
    build = flow.pipeline if path == "fused" else flow.stepped
    pipeline = build(path, sink=Postgres("clicks", server=BY_CATEGORY))
    flow.send([click(n) for n in range(300)])
    outcome = flow.run(pipeline)[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert failures == [100, 100]
    flow.forget_newest_commit(path)
    flow.send([click(n) for n in range(300, 600)])
    outcome = flow.run(pipeline)[path]
    assert outcome.state is State.FINISHED, outcome.reason
    for category, url in enumerate(urls.values()):
        assert ids(url) == Counter(f"e{n}" for n in range(category, 600, 3))
    assert Counter(stored.letter.reason for stored in flow.dead()) == {"no-server": 200}
    assert flow.committed(path) == flow.latest()


def test_a_server_that_does_not_answer_holds_up_its_own_pipeline_alone(flow, urls):
    sick = PostgresServer()
    flow.sinks["postgres"]["us.url"] = Secret(sick.url)
    try:
        pipelines = [
            flow.pipeline(
                f"to-{server}",
                steps=[filter_rows({"of_others": f"category <> '{category}'"})],
                sink=Postgres("clicks", server=server),
            )
            for server, category in (("eu", "c0"), ("us", "c1"))
        ]
        flow.send([click(n) for n in range(300)])
        outcomes = flow.run(*pipelines)
        assert outcomes["to-eu"].state is State.FINISHED, outcomes["to-eu"].reason
        assert outcomes["to-us"].state is State.FAILED
        assert "PostgreSQL us" in outcomes["to-us"].reason
        assert ids(urls["eu"]) == Counter(f"e{n}" for n in range(0, 300, 3))
        sick.start()
        execute(sick.url, CLICKS)
        outcomes = flow.run(*pipelines)
        assert outcomes["to-us"].state is State.FINISHED, outcomes["to-us"].reason
        assert ids(sick.url) == Counter(f"e{n}" for n in range(1, 300, 3))
        assert ids(urls["eu"]) == Counter(f"e{n}" for n in range(0, 300, 3))
    finally:
        sick.remove()
