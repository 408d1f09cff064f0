"""Commands say on standard error that they fetch jars of Spark, before they do."""

import pytest
from tests.in_process import invoke

from headrace.errors import ServerStartError

FLOW = """
from datetime import datetime
from headrace import Dispatcher, MatchQueries, Pipeline, StandingQueries, Topic

class Click:
    event_id: str
    at: datetime

clicks = Topic("clicks", event=Click, event_time="at")
dispatcher = Dispatcher("d", clicks, {"waw": "x"})
ads = StandingQueries("ads")
match_clicks = Pipeline("match-clicks", clicks, MatchQueries(ads))
"""
FILE = """
[project]
name = "demo"
modules = ["fetching_flow"]
[kafka]
bootstrap_servers = "127.0.0.1:1"
[sites.waw.kafka]
bootstrap_servers = "127.0.0.1:1"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project whose user has no jars, and whose commands end where Spark would be started."""
    (tmp_path / "headrace.toml").write_text(FILE)
    (tmp_path / "fetching_flow.py").write_text(FLOW)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))

    def stopped(*_, **__):
        raise ServerStartError("Spark", "it is not asked for here", "")

    for name in (
        "headrace.links.dispatcher.run.dispatcher_run",
        "headrace.operations.reconciling.reconcile.reconcile",
        "headrace.queries.emit.run.matched_events_run",
    ):
        monkeypatch.setattr(name, stopped)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        ("dispatcher run d", True),
        ("query emit", True),
        ("reconcile --recount", True),
        ("reconcile", False),
        ("reconcile --recount --json", True),
    ],
)
def test_the_jars_of_spark_are_named_with_their_size(folder, words, is_said):
    done = invoke(*words.split(), "--project", folder, code=1)
    said = "Fetching Spark's Kafka source and sink from Maven Central (4 jars, 9.9 MB)"
    assert (said in done.stderr) == is_said
    assert said not in done.stdout
