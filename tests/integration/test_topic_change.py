"""A topic gets other partitions, or another key, on a real broker: `headrace topics change`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from secrets import token_bytes as random_bytes

import pytest
from click.testing import CliRunner
from tests.waiting import FLUSH_SECONDS, wait_for

import headrace
from headrace.cli import main
from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.clients import client_config, connected_producer
from headrace.kafka.client.offsets import commit_offsets, group_offsets
from headrace.kafka.group.groups import delete_group
from headrace.kafka.origin import ORIGIN
from headrace.kafka.table.topic_table import table_records
from headrace.links.change.plan import change_plan
from headrace.model import TopicPartition
from headrace.settings import KafkaSettings, load_settings

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FLOW = """
from datetime import datetime, timedelta
from headrace import ByField, ByHash, Topic, worker

class Order:
    id: int
    customer: str
    account: str
    at: datetime

common = dict(event=Order, event_time="at")
old = Topic("{name}", key="customer", partitions=3, **common)
new = Topic("{name}-2", {new}, **common)
like = Topic("{name}-like", {new}, **common)

@worker(topic=old, name="charge")
async def charge(order: Order) -> None:
    pass
"""


@dataclass
class Shop:
    """A project with a topic that changes."""

    folder: Path
    name: str
    config: dict[str, str]

    @property
    def new(self) -> str:
        return f"{self.name}-2"

    def run(self, *arguments: str, code: int = 0) -> dict:
        ended = CliRunner().invoke(main, self._arguments(*arguments))
        assert ended.exit_code == code, ended.output
        lines = ended.stdout.splitlines()
        # Progress comes before the result, an object a line.
        start = max((n for n, line in enumerate(lines) if line == "{"), default=len(lines) - 1)
        return json.loads("\n".join(lines[start:]))

    def copy_until(self, count: int) -> None:
        """Kills a copy when the new topic has so many records."""
        command = [sys.executable, "-m", "headrace", *self._arguments("--copy")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            wait_for(lambda: len(self.records(self.new)) >= count or running.poll() is not None)
            running.kill()

    def _arguments(self, *arguments: str) -> list[str]:
        names = ["topics", "change", self.name, self.new]
        return [*names, *arguments, "--json", "--project", str(self.folder)]

    def send(self, topic: str, numbers: range) -> None:
        with headrace.Project.open(self.folder).producer() as producer:
            for n in numbers:
                at = NOON + timedelta(seconds=n)
                order = {"id": n, "customer": f"c{n % 17}", "account": f"a{n % 5}", "at": at}
                producer.send(topic, order, headers=(("n", b"%d" % n),))

    def raw(self, topic: str, *records: dict) -> None:
        sender = connected_producer(self.config)
        for record in records:
            sender.produce(topic, **record)
        assert sender.flush(FLUSH_SECONDS) == 0

    def records(self, topic: str) -> list:
        return list(table_records(self.config, topic, settled=True))

    def places(self, topic: str) -> dict[int, tuple[int, bytes]]:
        return {json.loads(r.value())["id"]: (r.partition(), r.key()) for r in self.records(topic)}

    def by_key(self, topic: str) -> dict[bytes, list[int]]:
        ids = defaultdict(list)
        for record in self.records(topic):
            ids[record.key()].append(json.loads(record.value())["id"])
        return ids


@pytest.fixture
def shop(broker, topic, tmp_path, monkeypatch):
    """``shop(declared)``: a project whose new topic is declared like that."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = client_config(KafkaSettings(), broker.bootstrap_servers)

    def made(new: str = 'key="customer", partitions=7') -> Shop:
        name = topic("orders")
        module = f"flow_{name.replace('-', '_')}"
        (tmp_path / "headrace.toml").write_text(
            f'[project]\nname = "shop"\nmodules = ["{module}"]\n'
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
        )
        (tmp_path / f"{module}.py").write_text(FLOW.format(name=name, new=new))
        ended = CliRunner().invoke(main, ["apply", "--project", str(tmp_path)])
        assert ended.exit_code == 0, ended.output
        return Shop(tmp_path, name, config)

    return made


@pytest.mark.parametrize(
    "declared",
    [
        'key="customer", partitions=7',
        'key="customer", partitions=2',
        'key="account", partitions=4',
        'key="account", partitions=4, partitioning=ByField("id")',
        'key="id", partitions=5, partitioning=ByHash(("account",), timedelta(seconds=9))',
    ],
)
def test_copies_lie_where_producers_put_them_by_the_new_key_in_their_order(shop, declared):
    shop = shop(declared)
    shop.send(shop.name, range(300))
    shop.send(f"{shop.name}-like", range(300))
    before = shop.run()
    assert before["behind"] > 0
    assert before["readers"][0]["name"] == "charge"
    assert shop.run("--copy")["behind"] == 0
    assert shop.places(shop.new) == shop.places(f"{shop.name}-like")
    check = shop.run("--check")
    assert (check["records"], check["copies"], check["is_whole"]) == (300, 300, True)
    if "customer" in declared:
        assert shop.by_key(shop.new) == shop.by_key(shop.name)
    times = {json.loads(r.value())["id"]: r.timestamp() for r in shop.records(shop.name)}
    assert times == {json.loads(r.value())["id"]: r.timestamp() for r in shop.records(shop.new)}
    # Repeated, it changes nothing.
    assert shop.run("--copy")["behind"] == 0
    assert len(shop.records(shop.new)) == 300


def test_a_copy_that_is_killed_again_and_again_has_each_record_once(shop, pytestconfig):
    """Records are written meanwhile; a run that is not killed ends at their end."""
    shop, random = shop(), Random(pytestconfig.option.seed)
    sent = 0
    for _ in range(5):
        shop.send(shop.name, range(sent, sent + 4_000))
        sent += 4_000
        there = len(shop.records(shop.new))
        shop.copy_until(there + random.choice([1, 500, 2_000, 3_999]))
    assert shop.run("--copy")["behind"] == 0
    assert shop.by_key(shop.new) == shop.by_key(shop.name)
    check = shop.run("--check")
    assert (check["records"], check["copies"], check["is_whole"]) == (sent, sent, True)


def test_where_its_position_has_expired_the_copy_says_how_far_it_is(shop):
    shop = shop()
    shop.send(shop.name, range(200))
    shop.run("--copy")
    topics = headrace.Project.open(shop.folder).topics
    settings = load_settings(shop.folder, {})
    plan = change_plan(settings, topics[shop.name], topics[shop.new])
    delete_group(shop.config, plan.group)
    shop.send(shop.name, range(200, 300))
    shop.run("--copy")
    assert shop.run("--check")["is_whole"]
    assert len(shop.records(shop.new)) == 300


def test_what_is_no_event_is_copied_too(shop):
    shop = shop('key="account", partitions=4')
    shop.send(shop.name, range(10))
    bad = [{"value": b"no event", "key": b"k"}, {"value": None, "key": b"k"}, {"value": b"{}"}]
    shop.raw(shop.name, *bad)
    shop.run("--copy")
    check = shop.run("--check")
    assert (check["copies"], check["unreadable"], check["is_whole"]) == (13, 3, True)


def test_a_record_that_the_new_topic_does_not_take_ends_the_copy(shop):
    """What is not at fault is copied, and the rest with the next run, once it is taken."""
    shop = shop('key="customer", partitions=7, config={"max.message.bytes": "1000"}')
    shop.send(shop.name, range(20))
    shop.raw(shop.name, {"value": random_bytes(2_000), "key": b"k"})
    refused = shop.run("--copy", code=3)
    assert refused["error"] == "TOPIC_CHANGE_REFUSED"
    assert "larger max.message.bytes" in refused["message"]
    assert len(shop.records(shop.new)) == 20
    flow = next(shop.folder.glob("flow_*.py"))
    flow.write_text(flow.read_text().replace('"1000"', '"9000"'))
    sys.modules.pop(flow.stem, None)
    ended = CliRunner().invoke(main, ["apply", "--project", str(shop.folder)])
    assert ended.exit_code == 0, ended.output
    shop.run("--copy")
    assert shop.run("--check")["is_whole"]


def test_late_records_are_not_copied_behind_others_unless_it_is_asked_for(shop):
    shop = shop()
    shop.send(shop.name, range(50))
    shop.run("--copy")
    shop.send(shop.new, range(50, 100))
    check = shop.run("--check")
    assert (check["own_records"], check["is_whole"]) == (50, True)
    shop.send(shop.name, range(100, 110))
    assert shop.run()["own_records"]
    refused = shop.run("--copy", code=3)
    assert refused["error"] == "TOPIC_CHANGE_REFUSED"
    assert len(shop.records(shop.new)) == 100
    shop.run("--copy", "--late")
    check = shop.run("--check", code=1)
    assert (check["copies"], check["behind_own"]) == (60, 10)


@pytest.mark.parametrize("defect", ["lost", "twice", "elsewhere", "value", "header", "key"])
def test_a_copy_that_differs_is_found(shop, defect):
    """A copy that others have made: of the 21 records, the fourth has a defect."""
    shop = shop()
    shop.send(shop.name, range(21))
    shop.run("--copy")
    copies = shop.records(shop.new)
    delete_topic(shop.config, shop.new)
    ended = CliRunner().invoke(main, ["apply", "--project", str(shop.folder)])
    assert ended.exit_code == 0, ended.output
    for number, copy in enumerate(copies):
        record = {
            "value": copy.value(),
            "key": copy.key(),
            "partition": copy.partition(),
            "headers": copy.headers(),
            "timestamp": copy.timestamp()[1],
        }
        if number == 3:
            changed = {
                "elsewhere": {"partition": (copy.partition() + 1) % 7},
                "value": {"value": copy.value() + b" "},
                "header": {"headers": [("n", b"other"), *copy.headers()[1:]]},
                "key": {"key": b"other"},
            }
            record |= changed.get(defect, {})
            if defect == "lost":
                continue
        shop.raw(shop.new, record)
        if number == 3 and defect == "twice":
            shop.raw(shop.new, record)
    # Nothing is left to copy: the headers of the copies say so.
    assert copies[0].headers()[-1][0] == ORIGIN
    shop.run("--copy")
    check = shop.run("--check", code=1)
    assert [part["is_equal"] for part in check["partitions"]].count(False) == 1
    assert check["out_of_order"] == (defect == "twice")


def test_a_group_starts_where_all_that_it_has_read_lies_before(shop):
    shop = shop()
    shop.send(shop.name, range(60))
    shop.run("--copy")
    old = [TopicPartition(shop.name, n) for n in range(3)]
    counts = {at: sum(r.partition() == at.partition for r in shop.records(shop.name)) for at in old}
    group = f"group-{shop.name}"

    shop.run("--move", group, code=3)
    commit_offsets(shop.config, group, {old[0]: 0, old[1]: counts[old[1]], old[2]: 0})
    assert "lie behind others" in shop.run("--move", group, code=3)["message"]
    commit_offsets(shop.config, group, counts)
    new = [TopicPartition(shop.new, n) for n in range(7)]
    dry = shop.run("--move", group, "--dry-run")
    assert group_offsets(shop.config, group, new) == {}
    shop.send(shop.new, range(60, 75))
    for _ in range(2):
        [move] = shop.run("--move", group)["moves"]
        assert move["starts"] == dry["moves"][0]["starts"]
        assert (move["unread"], move["is_moved"]) == (15, True)
    at = group_offsets(shop.config, group, new)
    unread = [r for r in shop.records(shop.new) if r.offset() >= at[TopicPartition.of(r)]]
    assert {json.loads(r.value())["id"] for r in unread} == set(range(60, 75))
