"""The copy of a project that is drilled: no address of the project is left in it."""

from __future__ import annotations

import pytest
from tests.in_process import invoke

from headrace.operations.drilling.isolation import drilled_project
from headrace.project.check import load_project
from headrace.settings import load_settings

FLOW = """

from headrace import ByServer, Kafka, Lake, Pipeline, Postgres, Topic, worker

class Click:
    id: str
    user: str

class Number:
    id: int

clicks = Topic("clicks", event=Click, event_id="id", key="user", partitions=3)
raw = Topic("raw")
numbers = Topic("numbers", event=Number)
copied = Topic("copied", event=Click, event_id="id", key="user")

@worker(topic=clicks)
async def enrich(click: Click) -> None: ...

@worker(topic=raw)
async def lines(value: bytes) -> None: ...

@worker(topic=numbers)
async def count(number: Number) -> None: ...

@worker(topic=copied)
async def after(click: Click) -> None: ...

theirs = Topic("abroad", event=Click, event_id="id")

@worker(topic=theirs, site="waw")
async def abroad(click: Click) -> None: ...

to_lake = Pipeline("to-lake", clicks, Lake("clicks"))
to_topic = Pipeline("to-topic", clicks, Kafka(copied))
to_table = Pipeline("to-table", clicks, Postgres("clicks"))
to_eu = Pipeline("to-eu", clicks, Postgres("clicks", server="eu"))
by_user = ByServer("user", {"ann": "eu"}, otherwise="us")
to_shards = Pipeline("to-shards", clicks, Postgres("clicks", server=by_user))
"""
FILE = """
[project]
name = "ads"
modules = ["drilled_flow"]
lake = "s3://bucket.example/lake"
checkpoints = "hdfs://names.example:8020/checkpoints"

[kafka]
bootstrap_servers = "broker.example:9093"
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_username = "ann"
sasl_password = { file = "password" }


[sites.waw.kafka]
bootstrap_servers = "waw.example:9092"

[s3]
endpoint = "https://s3.example"

[schema_registry]
url = "https://registry.example"

[spark]
master = "spark://spark.example:7077"

[spark.config]
"spark.sql.shuffle.partitions" = 4

[sinks.postgres]
url = "postgresql://postgres.example/ads"

[sinks.postgres.eu]
url = "postgresql://eu.example/ads"

[sinks.postgres.us]
url = "postgresql://us.example/ads"

[ingest]
port = 8080

[workers.enrich.kafka.consumer]
"fetch.wait.max.ms" = 7
"""


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "ads"
    folder.mkdir()
    (folder / "drilled_flow.py").write_text(FLOW)
    (folder / "headrace.toml").write_text(FILE)
    (folder / "password").write_text("secret")
    (folder / ".headrace").mkdir()
    return folder


def test_no_address_of_the_project_is_left_and_its_code_is_the_same(root, tmp_path):
    project = load_project(load_settings(root, {}))
    folder = tmp_path / "copy"
    sinks = {
        "url": "postgresql://ann:secret@localhost/drill",
        "eu.url": "postgresql://localhost/eu",
        "us.url": "postgresql://localhost/us",
    }
    copy = drilled_project(project, folder, "127.0.0.1:5", {"postgres": sinks})
    written = (folder / "headrace.toml").read_text()
    assert "example" not in written
    assert "secret" not in written
    settings = copy.settings
    assert settings.kafka.bootstrap_servers == "127.0.0.1:5"
    assert not settings.kafka.security
    assert not settings.kafka.secrets
    assert settings.sites["waw"].bootstrap_servers == ""
    assert settings.lake == str(folder / ".headrace/lake")
    assert settings.checkpoints == ""
    assert settings.ingest is None
    assert {name: url.reveal() for name, url in settings.sinks["postgres"].items()} == sinks
    assert settings.spark.master == "local[2]"
    assert settings.spark.config == {"spark.sql.shuffle.partitions": "4"}
    assert settings.clients == project.settings.clients
    assert (folder / "drilled_flow.py").read_text() == (root / "drilled_flow.py").read_text()
    assert {topic.replication for topic in copy.topics.values()} == {3}
    assert copy.topics["clicks"].partitions == 3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lines", "topic 'raw': its records hold no single event"),
        ("count", "topic 'numbers': an event is followed by its id"),
        ("abroad", "worker 'abroad' reads at site 'waw'"),
        ("to-table", "writes to postgres clicks, which a drill does not have; --sink postgres.url"),
        ("to-eu", "--sink postgres.eu.url"),
        ("to-shards", "--sink postgres.eu.url=... says where; --sink postgres.us.url=..."),
        ("to-topic after", "worker 'after' reads topic 'copied', which a pipeline of the drill"),
        ("enrichs", "did you mean 'enrich'?"),
    ],
)
def test_what_cannot_be_drilled_is_refused_before_anything_starts(root, name, reason):
    shown = invoke("drill", *name.split(), "--project", root, code=2).output
    assert reason in " ".join(shown.split())


def test_a_setting_of_a_sink_has_a_kind_and_a_key(root):
    words = ("drill", "to-table", "--project", root, "--sink")
    assert "'url=x' is not KIND.KEY=VALUE" in invoke(*words, "url=x", code=2).output
