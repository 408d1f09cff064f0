"""Every recipe of docs/recipes.md, executed as it stands on the real broker and Spark."""

import json
import re
import uuid
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.integration.flow import Flow
from tests.integration.test_pipeline_sinks import Database

from headrace import EpochMillis, Lake, Pipeline, Source, Topic
from headrace.service.status import State
from headrace.settings import Secret

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
HOUR_MS = 3_600_000
NOON_MS = 1_764_590_400_000
MAX_PIPELINES = 4  # each starts Python processes, and Spark waits for one only for a while


class View:
    event_id: str
    event_time: EpochMillis
    user: str
    country: str
    page: str


class Click:
    event_id: str
    event_time: EpochMillis
    view_id: str


class Page:
    """The pipelines of the page, and the topics that it takes for declared."""

    def __init__(self, flow):
        self.flow = flow
        self.topics = {
            name: self._topic(name, event)
            for name, event in {
                "page_views": View,
                "page_clicks": Click,
                "web_views": View,
                "app_views": View,
            }.items()
        }
        self.pipelines = []
        names = {"Lake": Lake, "Source": Source, "timedelta": timedelta, "Pipeline": self._declared}
        names |= {"__name__": "recipes", "EpochMillis": EpochMillis, "Topic": self._reference}
        names |= self.topics
        # The first block declares the topics, which are others here.
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1:]:
            exec(compile(block, PAGE.name, "exec"), names)

    def _topic(self, name, event):
        topic = Topic(
            f"{name}-{uuid.uuid4().hex[:8]}", event=event, event_time="event_time", partitions=1
        )
        self.flow.create(topic.name, 1)
        self.flow.create(topic.dead_letters, 1)
        return topic

    def _reference(self, name, **settings):
        topic = Topic(f"{name}-{uuid.uuid4().hex[:8]}", **settings)
        self.flow.create(topic.name, topic.partitions)
        self.flow.create(topic.dead_letters, 1)
        self.topics[name] = topic
        return topic

    def _declared(self, *args, **kwargs):
        self.pipelines.append(Pipeline(*args, **kwargs))
        return self.pipelines[-1]

    def send(self, topic, *events, keys=None):
        values = [json.dumps(event).encode() for event in events]
        self.flow.send(values, topic=self.topics[topic].name, keys=keys)

    def run(self, *names):
        """Runs the pipelines of these names; all of them where none is given."""
        chosen = [flow for flow in self.pipelines if not names or flow.name in names]
        outcomes = {}
        for first in range(0, len(chosen), MAX_PIPELINES):
            outcomes |= self.flow.run(*chosen[first : first + MAX_PIPELINES])
        for name, outcome in outcomes.items():
            assert outcome.state is State.FINISHED, f"{name}: {outcome.reason}"
        return outcomes


def view(n, hours=0.0):
    return {
        "event_id": f"v{n}",
        "event_time": NOON_MS + int(hours * HOUR_MS) + n,
        "user": f"u{n % 2}",
        "country": ["PL", "DE", "PL"][n % 3],
        "page": "/" if n % 2 else "/about",
    }


def click(n, hours):
    at = NOON_MS + int(hours * HOUR_MS)
    return {"event_id": f"c{n}", "event_time": at, "view_id": f"v{n}"}


def sale(n, price, days=0):
    return {
        "sale_id": f"s{n}",
        "sold_at": NOON_MS + days * 86_400_000,
        "seller": "x",
        "price": price,
    }


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path)


@pytest.fixture
def database(flow, postgres):
    return Database(flow, postgres.create_database(f"recipes_{uuid.uuid4().hex[:8]}"), "unused int")


@pytest.fixture
def page(flow, database, opensearch, bigquery):
    flow.sinks |= {"opensearch": {"url": Secret(opensearch.url)}, "bigquery": bigquery.settings}
    return Page(flow)


def test_each_recipe_does_what_it_says(page, database, opensearch, bigquery):
    views = [view(n) for n in range(6)]
    page.send("page_views", *views, views[1], view(6, hours=3))
    page.send("page_clicks", click(1, 0.5), click(2, 2.5))
    page.send("web_views", *views[:4])
    page.send("app_views", *views[2:])
    page.send("readers", {"plan": "free"}, {"plan": "full"}, keys=[b"u1", b"u1"])
    page.send("sales", sale(1, "2641.36"), sale(2, "1.00", 4), sale(2, "1.00", 4), sale(1, "9.99"))
    first = page.run()
    page.send("sales", sale(3, "0.64", -4), sale(1, "2641.36"))
    page.run("sales-to-revenue")
    page.send("page_views", view(7, hours=-9), view(8, hours=3))
    outcomes = page.run("on-time")

    flow, ids = page.flow, [f"v{n}" for n in range(7)]
    records = dict.fromkeys(ids, 1) | {"v1": 2}
    polish = {row["event_id"]: row["is_home"] for row in flow.rows("polish")}
    assert polish == {"v0": False, "v2": False, "v3": True, "v5": True, "v6": False}
    assert flow.ids("polish_only") == dict.fromkeys(("v0", "v2", "v3", "v5", "v6"), 1)
    assert first["polish-only"].figures["foreign_rows"] == 3
    assert flow.ids("readers_only") == dict.fromkeys(("v1", "v3", "v5"), 1) | {"v1": 2}
    figures = first["readers-only"].figures
    assert (figures["filtered_about_rows"], figures["filtered_robot_rows"]) == (4, 0)
    kinds = {row["event_id"]: row["kind"] for row in flow.rows("kinds")}
    assert kinds == {
        **dict.fromkeys(("v1", "v3", "v5"), "home"),
        **dict.fromkeys(("v0", "v2", "v6"), "domestic"),
        "v4": "other",
    }
    streams = Counter(row["stream"] for row in flow.rows("streams"))
    assert streams == {"all": 8, "domestic": 5}
    documents = opensearch.documents("page-views-*").values()
    assert sorted(view["event_id"] for view in documents) == ids
    query = "SELECT event_id, COUNT(*) FROM page_views GROUP BY event_id"
    assert {id_: int(count) for id_, count in bigquery.query(query)} == records
    assert Counter(iceberg(flow, "page_views")["event_id"].to_pylist()) == records
    plans = {row["user"]: row["reader_plan"] for row in flow.rows("with_plan")}
    assert plans == {"u0": None, "u1": "full"}
    assert first["with-plan"].figures["enrich_unmatched_rows"] == 4
    assert flow.ids("unique") == dict.fromkeys(ids, 1)
    counts = {(row["country"], row["count"]): row["window_start"] for row in flow.rows("per_hour")}
    assert {count: start.hour for count, start in counts.items()} == {("PL", 4): 12, ("DE", 3): 12}
    [readers] = flow.rows("readers_per_hour")
    assert (readers["hour_start"].hour, readers["readers"]) == (12, 2)
    assert flow.ids("together") == dict.fromkeys(ids[:6], 1)
    clicked = {(row["event_id"], row["click_id"]) for row in flow.rows("clicked")}
    assert clicked == {("v1", "c1")}
    visits = Counter((row["user"], row["visit"]) for row in flow.rows("visits"))
    assert visits == {(user, n): 1 for user in ("u0", "u1") for n in range(1, 5)}
    assert database.execute("SELECT sum(sales)::int, sum(total)::text FROM revenue") == [
        (3, "2643.00")
    ]
    assert flow.ids("too_late") == {"v7": 1}
    assert outcomes["on-time"].late_side_rows == 1


def iceberg(flow, table):
    catalog = SqlCatalog("headrace", uri=f"sqlite:///{flow.lake}/_iceberg/catalog.db")
    return catalog.load_table(f"default.{table}").scan().to_arrow()
