"""Pipelines into OpenSearch: the example of the page, behind steps, repeated and read again."""

import json
import re
import uuid
from pathlib import Path

import pytest
from tests.integration.flow import NOW_MS, Flow, click

from headrace import OpenSearch, Pipeline, WriteMode
from headrace.service.status import State
from headrace.settings import Secret

PAGE = Path(__file__).parents[2] / "docs" / "opensearch.md"


@pytest.fixture
def flow(broker, spark, tmp_path, opensearch):
    flow = Flow(broker, spark, tmp_path, event_id="event_id")
    flow.sinks["opensearch"] = {"url": Secret(opensearch.url)}
    return flow


@pytest.fixture
def index():
    return f"p{uuid.uuid4().hex[:12]}"


def ran(flow, *pipelines):
    outcomes = flow.run(*pipelines)
    for outcome in outcomes.values():
        assert outcome.state is State.FINISHED, outcome.reason
    return [outcomes[pipeline.name].to_json() for pipeline in pipelines]


def of_the_page(flow, index):
    """The pipelines that the page declares, in their order."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"clicks": flow.topic, "__name__": "page"}
    code = "\n".join(blocks).replace('"clicks', f'"{index}')
    exec(compile(code, PAGE.name, "exec"), names)
    return [value for value in names.values() if isinstance(value, Pipeline)]


def test_pipelines_write_each_event_once_however_often_it_is_read(flow, opensearch, index):
    page, of_category, streamed = of_the_page(flow, index)
    placed = flow.pipeline("placed", sink=OpenSearch(f"{index}-placed"))
    newest = flow.stepped(
        "newest",
        sink=OpenSearch(
            f"{index}-stepped", mode=WriteMode.UPSERT, key=("category",), newest_by="event_time"
        ),
    )
    days = [NOW_MS - 48 * 3_600_000, NOW_MS - 3_600_000]
    events = [click(n, event_time=days[n % 2] + n) for n in range(300)]
    long = click(300, category="x" * 40_000)
    flow.send([*events, events[0], b"not json", long])
    figures = ran(flow, page, placed, newest, streamed, of_category)
    ids = [f"e{n}" for n in range(300)]
    documents = opensearch.documents(f"{index}-2*.*.*")
    assert sorted(documents) == sorted(ids)
    sent = json.loads(events[7])
    stored = documents["e7"]
    assert (stored["n"], stored["price"], stored["category"]) == (7, 1.75, "c1")
    assert sent.keys() == stored.keys()
    assert sorted(opensearch.documents(f"{index}-stream")) == sorted(ids)
    assert len(opensearch.documents(f"{index}-placed")) == 301
    for name in (f"{index}-stepped", f"{index}-newest"):
        by_category = opensearch.documents(name)
        assert {name: document["n"] for name, document in by_category.items()} == {
            "c0": 297,
            "c1": 295,
            "c2": 299,
        }
    assert [figure["opensearch_repeated_rows"] for figure in figures[:2]] == [1, 0]
    letters = {(stored.pipeline, stored.letter.reason) for stored in flow.dead()}
    assert letters == {
        *(
            (name, "not-json")
            for name in (page.name, streamed.name, of_category.name, "placed", "newest")
        ),
        *((name, "value-too-long") for name in (page.name, streamed.name, "placed")),
        ("newest", "bad-key"),
        (of_category.name, "bad-key"),
    }

    flow.reset(page, "earliest")
    flow.reset(placed, "earliest")
    again = ran(flow, page, placed)
    assert [figure["opensearch_repeated_rows"] for figure in again] == [301, 301]
    assert sorted(opensearch.documents(f"{index}-2*.*.*")) == sorted(ids)
    assert len(opensearch.documents(f"{index}-placed")) == 301
