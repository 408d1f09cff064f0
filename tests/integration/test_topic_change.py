"""A topic gets other partitions, or another key, on a real broker: `headrace topics change`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from secrets import token_bytes as random_bytes

import pytest
from click.testing import CliRunner
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, wait_for

import headrace
from headrace.cli import main
from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.clients import client_config, connected_producer
from headrace.kafka.client.offsets import commit_offsets, group_offsets
from headrace.kafka.group.groups import delete_group
from headrace.kafka.origin import ORIGIN
from headrace.kafka.table.topic_table import table_records
from headrace.links.change.copy_run import ChangeCopy
from headrace.links.change.plan import ChangePlan, change_plan
from headrace.links.timing import LinkTiming
from headrace.model import TopicPartition
from headrace.settings import KafkaSettings, load_settings

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FLOW = """
from datetime import datetime, timedelta
from headrace import ByAccount, ByField, ByHash, RetryTopics, Topic, worker

class Order:
    id: int
    customer: str
    account: str
    at: datetime

common = dict(event=Order, event_time="at")
old = Topic("{name}", key="customer", partitions=3, **common)
new = Topic("{name}-2", {new}, **common)
like = Topic("{name}-like", {new}, **common)

@worker(topic=old, name="charge", on_failure=RetryTopics([timedelta(hours=1)]))
async def charge(order: Order) -> None:
    pass
"""
BY_ACCOUNT = (
    'key="customer", partitions=4, '
    'partitioning=ByAccount(timedelta(minutes=1), account="account", lead=timedelta(hours=2)), '
    "latest_ahead=timedelta(minutes=30)"
)


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

    def copying(self) -> subprocess.Popen:
        command = [sys.executable, "-m", "headrace", *self._arguments("--copy")]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill_copy(self, count: int) -> None:
        """Kills a copy that runs when the new topic has so many records."""
        with self.copying() as running:
            wait_for(lambda: len(self.records(self.new)) >= count or running.poll() is not None)
            running.kill()
        assert running.returncode == -signal.SIGKILL

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        """No copy that starts within ends: of what is there, these records may be committed yet."""
        own = {"transactional.id": f"open-{self.name}", "transaction.timeout.ms": "600000"}
        config = self.config | own
        sender = connected_producer(config)
        sender.init_transactions()
        sender.begin_transaction()
        for partition in range(3):
            sender.produce(self.name, b"aborted", partition=partition)
        assert sender.flush(FLUSH_SECONDS) == 0
        try:
            yield
        finally:
            sender.abort_transaction()

    def plan(self) -> ChangePlan:
        topics = headrace.Project.open(self.folder).topics
        settings = load_settings(self.folder, {})
        return change_plan(settings, topics[self.name], topics[self.new])

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


class Writing:
    """Writes to the old topic while the block is executed, at least some records."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.sent = shop, 0

    def send(self, count: int) -> None:
        self.shop.send(self.shop.name, range(self.sent, self.sent + count))
        self.sent += count

    def __enter__(self) -> None:
        self.is_ending = threading.Event()
        self.thread = threading.Thread(target=self._write)
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.is_ending.set()
        self.thread.join()

    def _write(self) -> None:
        self.send(50)
        while not self.is_ending.is_set():
            self.send(50)


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
        BY_ACCOUNT,
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
    assert before["keeps_order"] == (declared.startswith('key="customer"') and "By" not in declared)
    if before["keeps_order"]:
        assert shop.by_key(shop.new) == shop.by_key(shop.name)
    times = {json.loads(r.value())["id"]: r.timestamp() for r in shop.records(shop.name)}
    assert times == {json.loads(r.value())["id"]: r.timestamp() for r in shop.records(shop.new)}
    # Repeated, it changes nothing.
    assert shop.run("--copy")["behind"] == 0
    assert len(shop.records(shop.new)) == 300


def test_a_copy_that_is_killed_again_and_again_has_each_record_once(shop, pytestconfig):
    """Records are written meanwhile; a run that is not killed ends at the end of its start."""
    shop, random = shop(), Random(pytestconfig.option.seed)
    writer = Writing(shop)
    for _ in range(4):
        writer.send(3_000)
        there = len(shop.records(shop.new))
        with shop.open_transaction(), writer:
            shop.kill_copy(there + random.choice([1, 500, 2_000, 2_999]))
    assert writer.sent > 12_000
    assert shop.run("--copy")["behind"] == 0
    assert shop.by_key(shop.new) == shop.by_key(shop.name)
    check = shop.run("--check")
    records = check["records"], check["copies"], check["is_whole"]
    assert records == (writer.sent, writer.sent, True)


def test_runs_at_once_share_the_partitions(shop):
    shop = shop()
    shop.send(shop.name, range(5_000))
    with shop.copying() as first, shop.copying() as second:
        assert (first.wait(), second.wait()) == (0, 0)
    check = shop.run("--check")
    assert (check["records"], check["copies"], check["is_whole"]) == (5_000, 5_000, True)


def test_a_copy_waits_for_open_transactions_and_says_which(shop):
    shop = shop()
    shop.send(shop.name, range(30))
    statuses = []
    run = ChangeCopy(shop.plan(), LinkTiming(check_seconds=1.0))
    with ThreadPoolExecutor() as threads:
        with shop.open_transaction():
            shop.send(shop.name, range(30, 60))
            running = threads.submit(run.run, statuses.append)
            wait_for(lambda: running.done() or any(at.reason for at in statuses))
            assert not running.done()
        running.result()
    assert run.is_whole
    [reason] = {at.reason for at in statuses if at.reason}
    assert f"a transaction in {shop.name}/0 is open" in reason
    assert len(shop.records(shop.new)) == 60


def test_a_record_whose_spreads_are_not_known_yet_ends_the_copy_with_its_offset(shop):
    """What is before it is copied, to where producers put it."""
    shop = shop(BY_ACCOUNT)
    shop.send(shop.name, range(20))
    ahead = datetime.now(UTC) + timedelta(hours=5)
    event = {"id": 99, "customer": "c", "account": "a", "at": ahead.isoformat()}
    shop.raw(shop.name, {"value": json.dumps(event).encode(), "key": b"c", "partition": 1})
    message = shop.run("--copy", code=3)["message"]
    count = sum(record.partition() == 1 for record in shop.records(shop.name))
    assert f"{shop.name}/1 can't be copied further" in message
    assert f"offset {count - 1}" in message or f"offset={count - 1}" in message


def test_where_its_position_has_expired_the_copy_says_how_far_it_is(shop):
    shop = shop()
    shop.send(shop.name, range(200))
    shop.run("--copy")
    delete_group(shop.config, shop.plan().group)
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
    assert shop.run()["has_own_records"]
    refused = shop.run("--copy", code=3)
    assert refused["error"] == "TOPIC_CHANGE_REFUSED"
    assert len(shop.records(shop.new)) == 100
    shop.run("--copy", "--late")
    check = shop.run("--check", code=1)
    assert (check["copies"], check["behind_own"]) == (60, 10)
    # Where copies are last, the others are found before them.
    shop.send(shop.name, range(110, 200))
    shop.run("--copy", "--late")
    shop.send(shop.name, range(200, 210))
    assert "50 records of its own" in shop.run("--copy", code=3)["message"]


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


def test_no_group_moves_if_one_of_them_can_not(shop):
    shop = shop()
    shop.send(shop.name, range(6))
    shop.run("--copy")
    first, second = f"first-{shop.name}", f"second-{shop.name}"
    ends = {TopicPartition(shop.name, n): 0 for n in range(3)}
    commit_offsets(shop.config, first, ends)
    refused = shop.run("--move", first, "--move", second, code=3)
    assert f"group {second}: it has committed no offset" in refused["message"]
    new = [TopicPartition(shop.new, n) for n in range(7)]
    assert group_offsets(shop.config, first, new) == {}
    commit_offsets(shop.config, second, ends)
    moves = shop.run("--move", first, "--move", second)["moves"]
    assert [(move["group"], move["unread"]) for move in moves] == [(first, 6), (second, 6)]
    assert len(group_offsets(shop.config, first, new)) == 7


def test_a_worker_does_not_move_while_records_wait_in_its_retry_topics(shop):
    shop = shop()
    shop.send(shop.name, range(6))
    shop.run("--copy")
    waiting = f"{shop.name}.charge.retry-1"
    make_topic(shop.config, waiting, 1)
    shop.raw(waiting, {"value": b"1"}, {"value": b"2"})
    [reader] = shop.run()["readers"]
    assert reader["waiting"] == 2
    group = reader["group"]
    commit_offsets(shop.config, group, {TopicPartition(shop.name, n): 0 for n in range(3)})
    refused = shop.run("--move", group, code=3)["message"]
    assert "2 records wait in the retry topics of worker charge" in refused
    commit_offsets(shop.config, f"{group}:retry", {TopicPartition(waiting, 0): 2})
    assert shop.run("--move", group)["moves"][0]["is_moved"]
