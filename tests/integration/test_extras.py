"""What an extra brings is enough for the commands that need it, and a missing one is named."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

import polars as pl
import psycopg
import pytest
from tests.bare_environment import BareEnvironment, add_extras, build_wheel, install_wheel
from tests.integration.service import Service
from tests.mock_registry import MockRegistry
from tests.offline_lines import line, write
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import producer
from headrace.kafka.client.offsets import watermarks
from headrace.runtime.extras import MODULES
from headrace.settings import Rate
from headrace.sinks.profiles.registry import open_store

MAX_BASE_BYTES = 60_000_000

FLOW = """
from datetime import datetime
from headrace import Lake, Pipeline, Topic, worker


class Click:
    event_id: str
    at: datetime


clicks = Topic("clicks{suffix}", event=Click, event_time="at", partitions=1)
copies = Topic("copies{suffix}", partitions=1)
clicks_to_lake = Pipeline("clicks-to-lake{suffix}", clicks, Lake("clicks", partition_by=("day",)))


@worker(topic=clicks, name="copy{suffix}")
async def copy(record, send):
    send("copies{suffix}", record.value)
"""
PROFILES = """

from datetime import timedelta
from headrace import Profiles

profiles = Profiles("users{suffix}", key="event_id", ttl=timedelta(days=1), forget=True)
clicks_to_profiles = Pipeline("clicks-to-profiles{suffix}", clicks, profiles)
"""
SETTINGS = """
[project]
name = "bare"
modules = ["flow"]
[kafka]
bootstrap_servers = "{bootstrap}"
[spark]
master = "local[1]"
"""
EVENT = b'{"event_id": "1", "at": "2026-05-01T10:00:00Z", "message": "m", "n": 1}'
MISSING = {
    "compact clicks": "spark",
    "ingest": "ingest",
    "load-offline-files . --into raw_item --postgres postgresql://127.0.0.1:1/x": "postgres",
    "pause a b/0": "spark",
    "query check text": "queries",
    "run": "spark",
    "spool list": "ingest",
    "workers run copy{suffix} --on spark": "spark",
}
RUN_ALL = """
import json, sys
from click.testing import CliRunner
from headrace.cli import main

done = [CliRunner().invoke(main, words) for words in json.load(sys.stdin)]
print(json.dumps([(each.exit_code, each.stdout, each.stderr) for each in done]))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Callable[..., BareEnvironment]:
    """``bare("ingest", "redis")``: an environment with these extras; ``bare()``: with none."""
    base = install_wheel(
        tmp_path_factory.mktemp("bare"), build_wheel(tmp_path_factory.mktemp("wheel"))
    )

    @functools.cache
    def make(*extras: str) -> BareEnvironment:
        return add_extras(base, tmp_path_factory.mktemp("-".join(extras)), extras)

    return lambda *extras: make(*extras) if extras else base


class Project:
    """A project with a worker and a pipeline, and one click in its topic."""

    def __init__(self, folder, bootstrap: str) -> None:
        self.folder, self.suffix = folder, f"-{uuid.uuid4().hex[:8]}"
        self.client = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
        (folder / "flow.py").write_text(FLOW.format(suffix=self.suffix))
        (folder / "headrace.toml").write_text(SETTINGS.format(bootstrap=bootstrap))

    def apply(self, environment: BareEnvironment) -> None:
        assert environment.run("apply", "--project", self.folder).returncode == 0
        sender = producer(self.client)
        click = {"event_id": "1", "at": "2026-05-01T10:00:00Z"}
        sender.produce(f"clicks{self.suffix}", json.dumps(click).encode())
        assert sender.flush(FLUSH_SECONDS) == 0

    def records(self, topic: str) -> int:
        name = topic + self.suffix
        partitions = describe(self.client, [name])[name].all_partitions
        return sum(latest for _, latest in watermarks(self.client, partitions).values())


def log_lines(text: str, kind: str, name: str) -> list[str]:
    """Messages of the JSON lines that name this pipeline or worker."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line["message"] for line in lines if line.get(kind) == name]


@pytest.fixture
def project(tmp_path, broker) -> Project:
    return Project(tmp_path, broker.bootstrap_servers)


@pytest.fixture
def service(tmp_path, broker) -> Callable[..., Service]:
    """``service(environment, settings)``: the HTTP service of an environment."""

    def make(environment: BareEnvironment, settings: str = "") -> Service:
        suffix = f"-{uuid.uuid4().hex[:6]}"
        made = Service(tmp_path, broker.bootstrap_servers, suffix, settings, workers=1)
        made.headrace = environment.headrace
        made.command("apply")
        return made

    return make


def test_a_base_install_is_small(bare):
    assert bare().installed_bytes < MAX_BASE_BYTES


def test_a_base_install_runs_a_worker_of_a_project_that_has_pipelines_too(bare, project):
    project.apply(bare())
    name = f"copy{project.suffix}"
    command = [bare().headrace, "workers", "run", name, "--log-format", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--project", project.folder], stderr=pipe) as process:

        def has_copied():
            assert process.poll() is None
            return project.records("copies") > 0

        wait_for(has_copied)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 0, errors
    said = log_lines(errors.decode(), "worker", name)
    assert any("assigned" in line for line in said)


def test_a_base_install_has_every_command_that_needs_no_more(bare, project):
    commands = ("check", "plan", "status", "workers list", "tokens list")
    for code, output, errors in run_all(bare(), project, commands):
        assert code == 0, output + errors


def test_a_base_install_has_mirrors_and_mergers(bare):
    modules = ("copying.run", "merger.run", "accepted")
    done = bare().python("\n".join(f"import headrace.links.{module}" for module in modules))
    assert done.returncode == 0, done.stderr


def test_the_versions_say_what_is_not_installed(bare):
    versions = json.loads(bare().run("version", "--json").stdout)
    assert versions["pyspark"] == "not installed"
    assert versions["confluent-kafka"][0].isdigit()


def run_all(environment, project, commands) -> list[tuple[int, str, str]]:
    """Runs commands in one process: the exit code, the output and the errors of each."""
    options = ("--project", str(project.folder))
    given = [[*each.format(suffix=project.suffix).split(), *options] for each in commands]
    done = environment.python(RUN_ALL, json.dumps(given))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def without_extras(bare, broker, tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    """What each command of MISSING comes to in a base install."""
    project = Project(tmp_path_factory.mktemp("project"), broker.bootstrap_servers)
    done = run_all(bare(), project, [f"{command} --json" for command in MISSING])
    return dict(zip(MISSING, done, strict=True))


@pytest.mark.parametrize(("command", "extra"), MISSING.items())
def test_a_command_without_its_extra_names_it_and_starts_nothing(without_extras, command, extra):
    code, output, errors = without_extras[command]
    assert code == 1
    assert f"pip install 'headrace[{extra}]'" in json.loads(output)["message"]
    assert not errors


@pytest.mark.parametrize(
    ("url", "extra"), [("redis://h", "redis"), ("cassandra://h/site", "cassandra")]
)
def test_the_address_of_a_store_says_which_extra_a_profile_needs(bare, project, url, extra):
    with (project.folder / "flow.py").open("a") as flow:
        flow.write(PROFILES.format(suffix=project.suffix))
    with (project.folder / "headrace.toml").open("a") as settings:
        settings.write(f'[sinks.profiles]\nurl = "{url}"\n')
    done = bare().run("profile", "u", "--json", "--project", project.folder)
    assert done.returncode == 1
    assert f"pip install 'headrace[{extra}]'" in json.loads(done.stdout)["message"]


@pytest.mark.drill
def test_the_extra_cassandra_reads_a_profile(bare, project, cassandra):
    with (project.folder / "flow.py").open("a") as flow:
        flow.write(PROFILES.format(suffix=project.suffix))
    with (project.folder / "headrace.toml").open("a") as settings:
        settings.write(f'[sinks.profiles]\nurl = "{cassandra.url().reveal()}"\n')
    with closing(open_store(cassandra.url(), "users", timedelta(days=1))) as store:
        store.prepare()
    done = bare("cassandra").run("profile", "u", "--json", "--project", project.folder)
    assert json.loads(done.stdout)["message"].startswith("The store has no profile of this user")


def test_the_extra_queries_checks_a_query(bare, project):
    text = f'SELECT count(*) FROM "clicks{project.suffix}"'
    done = bare("queries").run("query", "check", text, "--json", "--project", project.folder)
    assert json.loads(done.stdout)["columns"] == [{"name": "count(*)", "type": "integer"}]


def test_a_module_that_imports_a_missing_extra_is_named_with_it(bare, project):
    with (project.folder / "flow.py").open("a") as flow:
        flow.write("import pyspark.sql\n")
    done = bare().run("check", "--project", project.folder)
    assert done.returncode == 2
    assert "pip install 'headrace[spark]'" in " ".join((done.stdout + done.stderr).split())


def test_the_extra_ingest_serves_events(bare, service):
    host = service(bare("ingest"))
    with host.running():
        assert host.post("small", host.token(), EVENT).status_code == 202
    assert host.ids("small") == ["1"]


def test_the_extra_redis_keeps_what_hosts_share(bare, service, redis_server, tmp_path):
    (tmp_path / "redis-url").write_text(redis_server.url.reveal())
    host = service(bare("ingest", "redis"), 'redis = { file = "redis-url" }')
    before = set(redis_server.command("KEYS", "*"))
    rate = Rate(events_per_second=0.1)  # the event is counted for ten seconds
    with host.running():
        assert host.post("small", host.token(rate=rate), EVENT).status_code == 202
    assert set(redis_server.command("KEYS", "*")) - before


@pytest.mark.drill
def test_the_extra_spark_runs_a_pipeline(bare, project):
    project.apply(bare("spark"))
    done = bare("spark").run("run", "--once", "--log-format", "json", "--project", project.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pl.read_delta(str(project.folder / ".headrace/lake/clicks"))
    assert rows["event_id"].to_list() == ["1"]
    said = log_lines(done.stderr, "pipeline", f"clicks-to-lake{project.suffix}")
    committed = "Batch 0 is committed: 1 records, 1 rows, 0 late; next offsets: "
    assert f"{committed}clicks{project.suffix}/0 at 1" in said
    assert said[-1] == "The pipeline is finished"


def test_the_extra_postgres_loads_offline_files(bare, postgres, tmp_path):
    url = postgres.create_database(f"db_{uuid.uuid4().hex[:8]}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE raw_item (project_id int, body jsonb)")
    write(tmp_path / "offline.1", line(1), line(2))
    into = ["--into", "raw_item", "--postgres", url, "--source", "host"]
    done = bare("postgres").run("load-offline-files", tmp_path, *into)
    assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM raw_item").fetchone() == (2,)


@pytest.mark.parametrize(
    ("extra", "format_"),
    [("avro", "Avro"), ("jsonschema", "JsonSchema"), ("protobuf", "Protobuf")],
)
def test_the_extra_of_a_format_writes_events_and_is_named_where_it_is_missing(
    bare, project, extra, format_
):
    with (project.folder / "flow.py").open("a") as flow:
        flow.write(f"from headrace import {format_}\n")
        flow.write(f"visits = Topic('visits{project.suffix}', event=Click, format={format_}())\n")
    file = project.folder / "visits.ndjson"
    file.write_bytes(EVENT)
    words = ("produce", f"visits{project.suffix}", file, "--json", "--project", project.folder)
    with MockRegistry().running() as registry:
        with (project.folder / "headrace.toml").open("a") as settings:
            settings.write(f'[schema_registry]\nurl = "{registry.settings.url}"\n')
        project.apply(bare())
        done = bare().run(*words)
        assert done.returncode == 1
        assert f"pip install 'headrace[{extra}]'" in json.loads(done.stdout)["message"]
        assert registry.requests == []
        done = bare(extra).run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.records("visits") == 1


def test_the_extra_all_brings_what_each_of_them_brings(bare):
    brought = {name for extra in MODULES for name in bare(extra).required}
    assert bare("all").required.keys() == brought
