"""What `reconcile` says of both ends of mirrors, mergers and dispatchers, on real clusters."""

import json
import threading
import time
from contextlib import contextmanager

import confluent_kafka
import pytest
from tests.in_process import answer
from tests.integration.dispatcher_project import DispatcherInProcess
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import Merger, Mirror
from headrace.errors import BrokerUnreachableError
from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.admin_requests import admin_request, describe
from headrace.kafka.client.clients import client_config, connected_producer
from headrace.kafka.client.offsets import commit, committed, latest_offsets
from headrace.kafka.origin import ORIGIN
from headrace.kafka.read.resume import Position
from headrace.ledger.sums import Fate
from headrace.ledger.windows import WindowState
from headrace.links.copying import standing as mirrors
from headrace.links.copying.instance import CopyInstance
from headrace.links.kind import counted_ends
from headrace.links.ledger import ends
from headrace.links.ledger.book import link_windows
from headrace.links.ledger.records import (
    NotCountedError,
    first_values,
    read_records,
)
from headrace.links.merger.instance import MergerInstance
from headrace.links.merger.merging import LATE_HEADER
from headrace.links.merger.standing import plan_of
from headrace.links.mirror.kind import KIND
from headrace.model import OffsetRange, TopicPartition
from headrace.project.check import load_project
from headrace.settings import load_settings
from headrace.settings.model import KafkaSettings
from headrace.spark.header_columns import own_time_ms

PARTITIONS = 2
WINDOW = 60
BEGAN = int(time.time()) // 3600 * 3600 - 7200
OPEN, CLOSING, BALANCED, UNBALANCED, UNKNOWN = WindowState


class Linked:
    """A central site with its own cluster, and waw: a mirror, a merger of two topics."""

    def __init__(self, folder, own, other, name):
        self.folder, self.name = folder, name
        self.own, self.other = (client_config(KafkaSettings(), each) for each in (own, other))
        self.copy, self.local = f"waw.{name}", f"local.{name}"
        (folder / "headrace.toml").write_text(
            '[project]\nname = "demo"\nmodules = ["flow"]\nsite = "central"\n'
            f'[kafka]\nbootstrap_servers = "{own}"\n'
            f'[sites.waw.kafka]\nbootstrap_servers = "{other}"\n'
            f"[ledger]\nwindow_seconds = {WINDOW}\n"
            '[spark]\nmaster = "local[2]"\n[spark.config]\n"spark.driver.memory" = "512m"\n'
        )
        (folder / "flow.py").write_text(
            "from datetime import timedelta\nfrom headrace import Merger, Mirror, Topic\n"
            f'copy = Topic("{self.copy}", partitions={PARTITIONS})\n'
            f'local = Topic("{self.local}", partitions={PARTITIONS})\n'
            f'merged = Topic("{name}", partitions={PARTITIONS})\n'
            f'late = Topic("{name}.late", partitions={PARTITIONS})\n'
            f'waw = Mirror("waw", source="waw", topics={{"{name}": copy}})\n'
            'merge = Merger("merge", [copy, local], merged, late, '
            "idle_timeout=timedelta(seconds=5))\n"
        )
        make_topic(self.other, name, PARTITIONS)
        for topic in (self.copy, self.local, name, f"{name}.late"):
            make_topic(self.own, topic, PARTITIONS)
        self.project = load_project(load_settings(folder, environ={}))
        self.mirror, self.merger = (
            self.project.declared(Mirror)["waw"],
            self.project.declared(Merger)["merge"],
        )

    @property
    def link(self):
        return KIND.plan(self.project.settings, self.mirror)

    def write(self, config, topic, seconds, partition=0, **record):
        """Records at the given seconds after the beginning; ``record``: of each of them."""
        sender = connected_producer(config)
        for n, second in enumerate(seconds):
            sender.produce(
                topic,
                partition=partition,
                timestamp=(BEGAN + second) * 1000,
                **({"key": f"k{n}", "value": f"v{n}"} | record),
            )
        assert sender.flush(FLUSH_SECONDS) == 0

    def write_copies(self, offsets, partition=0, value="v{}"):
        """Copies as a mirror would write them, of records at as many seconds as their offsets."""
        sender = connected_producer(self.own)
        for offset in offsets:
            sender.produce(
                self.copy,
                value.format(offset).encode(),
                f"k{offset}".encode(),
                partition,
                timestamp=(BEGAN + offset) * 1000,
                headers=[(ORIGIN, f"waw/{self.name}/{partition}/{offset}".encode())],
            )
        assert sender.flush(FLUSH_SECONDS) == 0

    def commit_mirror(self, offset, partition=0, topic_id=None):
        topic_id = topic_id or describe(self.other, [self.name])[self.name].topic_id
        metadata = Position(offset, topic_id).metadata
        at = confluent_kafka.TopicPartition(self.copy, partition, offset, metadata)
        commit(self.own, self.mirror.consumer_group, [at])

    def delete_before(self, config, topic, offset, partition=0):
        at = confluent_kafka.TopicPartition(topic, partition, offset)
        admin_request(config, lambda client: client.delete_records([at])[at].result())

    @contextmanager
    def running(self, instance):
        thread = threading.Thread(target=instance.run, args=(lambda _: None,))
        thread.start()
        try:
            yield
        finally:
            instance.stop()
            thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()

    def until_committed(self, config, group, topics):
        """Waits until the positions are the ends, by topics of the group to those of the ends."""
        places = [TopicPartition(topic, n) for topic in topics for n in range(PARTITIONS)]

        def positions():
            return {(o.topic, o.partition): o.offset for o in committed(self.own, group, places)}

        def their_ends():
            copied = {
                (topic, n): TopicPartition(topics[topic], n)
                for topic in topics
                for n in range(PARTITIONS)
            }
            latest = latest_offsets(config, [*copied.values()])
            return {place: latest[end][0] for place, end in copied.items()}

        wait_for(lambda: positions() == their_ends(), lambda: f"{positions()} to be {their_ends()}")

    def mirror_all(self):
        with self.running(CopyInstance(self.link)):
            self.until_committed(self.other, self.mirror.consumer_group, {self.copy: self.name})

    def merge_all(self):
        names = {topic: topic for topic in (self.copy, self.local)}
        with self.running(MergerInstance(plan_of(self.project, self.merger))):
            self.until_committed(self.own, self.merger.consumer_group, names)

    def counted(self, spark, name):
        [link] = [ends for ends in counted_ends(self.project) if ends.book.name == name]
        return link.open().count(spark, WINDOW)

    def windows(self, spark, name):
        """By number of the window since the beginning."""
        windows = link_windows(self.counted(spark, name), WINDOW, time.time())
        return {int(each.start.timestamp() - BEGAN) // WINDOW: each for each in windows}


@pytest.fixture(scope="module")
def other(second_broker):
    return second_broker.bootstrap_servers


@pytest.fixture
def linked(tmp_path, broker, other, topic):
    return Linked(tmp_path, broker.bootstrap_servers, other, topic("clicks"))


def texts(window):
    return [(each.number, each.partition) for each in window.differences]


def test_what_a_mirror_copies_balances_by_window(spark, linked):
    linked.write(linked.other, linked.name, [0, 1, 70, 5, 190])
    linked.write(linked.other, linked.name, [2, 3], partition=1, value=None)
    linked.write(linked.other, linked.name, [4], partition=1, key=None)
    loop = [(ORIGIN, b"central/a/0/1"), (ORIGIN, b"par/a/0/1")]
    linked.write(linked.other, linked.name, [6, 75], headers=loop)
    linked.write(linked.other, linked.name, [7], headers=[(ORIGIN, b"par/a/0/1"), ("h", b"\xff")])
    linked.mirror_all()
    windows = linked.windows(spark, "waw")
    assert {number: (each.state, each.read, each.rows) for number, each in windows.items()} == {
        0: (BALANCED, 8, 7),
        1: (BALANCED, 2, 1),
        3: (BALANCED, 1, 1),
    }
    assert windows[0].fates == {Fate.OUT: 7, Fate.FILTERED: 1}


@pytest.mark.parametrize(
    ("copies", "value", "number"),
    [([0, 2], "v{}", 1), ([0, 1, 2, 2], "v{}", -1), ([0, 1, 2], "V{}", 0), ([0, 2, 2], "v{}", 0)],
)
def test_a_difference_names_window_and_partition(spark, linked, copies, value, number):
    linked.write(linked.other, linked.name, [0, 1, 2, 63, 64, 65])
    linked.write_copies([0, 1, 2], partition=1)  # of no record that there is
    linked.commit_mirror(0, partition=1)
    linked.write_copies(copies, value=value)
    linked.write_copies([63])
    linked.commit_mirror(3)
    windows = linked.windows(spark, "waw")
    assert windows[0].state is UNBALANCED
    assert texts(windows[0]) == [(number, f"{linked.copy}/0"), (-3, f"{linked.copy}/1")]


def test_records_behind_the_position_may_be_there_or_not(spark, linked):
    linked.write(linked.other, linked.name, [0, 1, 2, 3, 62, 63])
    linked.write_copies([0, 1, 2])
    linked.commit_mirror(2)
    windows = linked.windows(spark, "waw")
    assert (windows[0].state, windows[0].fates) == (CLOSING, {Fate.OUT: 2, Fate.WAITING: 2})
    assert windows[1].fates == {Fate.WAITING: 2}
    linked.write_copies([3, 3])
    assert texts(linked.windows(spark, "waw")[0]) == [(-1, f"{linked.copy}/0")]


def test_copies_that_are_gone_before_their_time_are_missing(spark, linked):
    linked.write(linked.other, linked.name, range(0, 200, 10))
    linked.mirror_all()
    linked.delete_before(linked.own, linked.copy, 4)
    windows = linked.windows(spark, "waw")
    states = {n: (each.state, each.read) for n, each in windows.items()}
    assert states == {0: (UNBALANCED, 6), 1: (BALANCED, 6), 2: (BALANCED, 6), 3: (BALANCED, 2)}
    assert texts(windows[0]) == [(4, f"{linked.copy}/0")]
    linked.delete_before(linked.other, linked.name, 8)
    states = {n: (each.state, each.read) for n, each in linked.windows(spark, "waw").items()}
    assert states == {1: (BALANCED, 4), 2: (BALANCED, 6), 3: (BALANCED, 2)}
    linked.delete_before(linked.own, linked.copy, -1)
    windows = linked.windows(spark, "waw")
    assert {n: texts(each) for n, each in windows.items()} == {
        n: [(number, f"{linked.copy}/0")] for n, number in ((1, 4), (2, 6), (3, 2))
    }


def test_when_copies_of_records_without_a_timestamp_may_be_removed_is_unknown(spark, linked):
    sender = connected_producer(linked.other)
    for _ in range(4):
        sender.produce(linked.name, b"v", b"k", 0, timestamp=-1)
    assert sender.flush(FLUSH_SECONDS) == 0
    linked.mirror_all()
    [window] = linked.windows(spark, "waw").values()
    assert (window.state, window.unknown) == (BALANCED, "")
    linked.delete_before(linked.own, linked.copy, 2)
    [window] = linked.windows(spark, "waw").values()
    assert window.state is UNKNOWN
    assert "without a timestamp" in window.unknown


@pytest.mark.parametrize(
    "config", [{"retention.ms": "3600000"}, {"retention.bytes": str(2**40)}], ids=str
)
def test_copies_that_retention_may_have_removed_are_expired(spark, linked, config):
    delete_topic(linked.own, linked.copy)
    make_topic(linked.own, linked.copy, PARTITIONS, config=config)
    linked.write(linked.other, linked.name, range(0, 200, 10))
    linked.mirror_all()
    linked.delete_before(linked.own, linked.copy, 4)
    windows = linked.windows(spark, "waw")
    states = {n: (each.state, each.read) for n, each in windows.items()}
    assert states == {0: (BALANCED, 6), 1: (BALANCED, 6), 2: (BALANCED, 6), 3: (BALANCED, 2)}
    # A broker may have looked at its segments, too.
    assert windows[0].fates[Fate.EXPIRED] >= 4
    linked.delete_before(linked.own, linked.copy, -1)
    windows = linked.windows(spark, "waw")
    assert [each.fates for each in windows.values()] == [
        {Fate.EXPIRED: number} for number in (6, 6, 6, 2)
    ]


def test_an_open_transaction_at_the_target_is_no_loss(spark, linked, monkeypatch):
    linked.write(linked.other, linked.name, [0, 1])
    linked.mirror_all()
    writer = confluent_kafka.Producer(linked.own | {"transactional.id": linked.name})
    writer.init_transactions(LIMIT_SECONDS)
    writer.begin_transaction()
    writer.produce(linked.copy, b"x", partition=0)
    writer.flush(FLUSH_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(ends, "SETTLE_SECONDS", 1.0)
        count = linked.counted(spark, "waw")
    assert count.unknown == (f"{linked.copy}/0: a transaction is open at its end",)
    writer.abort_transaction(LIMIT_SECONDS)
    assert [each.state for each in linked.windows(spark, "waw").values()] == [BALANCED]


def test_a_topic_that_was_made_again_is_unknown_until_it_is_accepted(spark, linked):
    linked.write(linked.other, linked.name, [0, 1, 2])
    linked.mirror_all()
    delete_topic(linked.other, linked.name)
    make_topic(linked.other, linked.name, PARTITIONS)
    linked.write(linked.other, linked.name, [100, 101])
    count = linked.counted(spark, "waw")
    assert "recreated" in count.unknown[0]
    for number in range(PARTITIONS):
        mirrors.accept_loss(
            linked.project.settings, linked.link, TopicPartition(linked.name, number)
        )
    linked.mirror_all()
    windows = linked.windows(spark, "waw")
    assert {n: (each.state, each.read) for n, each in windows.items()} == {1: (BALANCED, 2)}
    [first, _] = linked.counted(spark, "waw").accepted
    assert (first.offsets, first.end) == (None, 0)


def test_what_was_accepted_of_a_topic_before_it_was_made_again_counts_no_more(spark, linked):
    partition = TopicPartition(linked.name, 0)
    linked.write(linked.other, linked.name, range(6))
    mirrors.accept_loss(linked.project.settings, linked.link, partition, to=3)
    linked.mirror_all()
    assert linked.windows(spark, "waw")[0].fates == {Fate.OUT: 3, Fate.LEFT_OUT: 3}
    delete_topic(linked.own, linked.copy)  # to copy everything again
    make_topic(linked.own, linked.copy, PARTITIONS)
    linked.mirror_all()
    assert linked.windows(spark, "waw")[0].fates == {Fate.OUT: 6}
    assert linked.counted(spark, "waw").accepted == []


def test_a_record_that_is_lost_is_missed_while_others_wait(spark, linked):
    linked.write(linked.other, linked.name, [0, 1, 2, 3])
    linked.write_copies([0, 2])
    linked.commit_mirror(2)
    assert texts(linked.windows(spark, "waw")[0]) == [(1, f"{linked.copy}/0")]


def test_a_loss_that_nobody_has_accepted_is_unknown(spark, linked):
    linked.write(linked.other, linked.name, [0, 1])
    linked.mirror_all()
    linked.write(linked.other, linked.name, range(2, 10))
    linked.delete_before(linked.other, linked.name, 5)
    [reason] = linked.counted(spark, "waw").unknown
    assert reason == f"{linked.name}/0 has offsets 5 to 9, and must be copied from 2 on"


def test_times_that_are_no_dates_are_in_a_window_of_their_own(spark, linked):
    for time_ms in (b"1700000000000000", b"-1", b"x"):
        headers = [("headrace-timestamp", time_ms)]
        linked.write(linked.other, linked.name, [0], headers=headers)
    linked.mirror_all()
    windows = link_windows(linked.counted(spark, "waw"), WINDOW, time.time())
    assert [(each.start and each.start.year, each.read, each.state) for each in windows] == [
        (None, 2, BALANCED),
        (1970, 1, BALANCED),
    ]


def test_records_without_a_timestamp_are_in_the_window_of_1970_at_both_ends(spark, linked):
    for config, topic in ((linked.other, linked.name), (linked.own, linked.local)):
        sender = connected_producer(config)
        for time_ms in (-1, BEGAN * 1000, -1):
            sender.produce(topic, b"v", b"k", 0, timestamp=time_ms)
        assert sender.flush(FLUSH_SECONDS) == 0
    linked.mirror_all()
    linked.merge_all()
    for name, fate, of_hour in (("waw", Fate.OUT, 1), ("merge", Fate.LATE, 2)):
        first, hour, *_ = link_windows(linked.counted(spark, name), WINDOW, time.time())
        assert (first.start.year, first.state, first.fates) == (1970, BALANCED, {fate: 2})
        assert (hour.start.timestamp(), hour.state, hour.read) == (BEGAN, BALANCED, of_hour)


def test_an_accepted_loss_is_in_the_ledger(spark, linked):
    linked.write(linked.other, linked.name, [0, 1])
    linked.mirror_all()
    linked.write(linked.other, linked.name, range(2, 10))
    linked.delete_before(linked.other, linked.name, 5)
    partition = TopicPartition(linked.name, 0)
    mirrors.accept_loss(linked.project.settings, linked.link, partition)
    linked.mirror_all()
    linked.write(linked.other, linked.name, range(60, 65))
    mirrors.accept_loss(linked.project.settings, linked.link, partition, to=12)
    linked.mirror_all()
    count = linked.counted(spark, "waw")
    ranges = [(each.start, each.end, each.offsets) for each in count.accepted]
    assert ranges == [(2, 5, 3), (10, 12, 2)]
    windows = linked.windows(spark, "waw")
    assert windows[1].fates == {Fate.OUT: 3, Fate.LEFT_OUT: 2}
    assert {each.state for each in windows.values()} == {BALANCED}


def test_an_accept_whose_commit_fails_leaves_nothing_out(spark, linked, monkeypatch):
    linked.write(linked.other, linked.name, range(6))

    def fail(*_):
        raise BrokerUnreachableError("127.0.0.1:1", "they do not answer")

    partition = TopicPartition(linked.name, 0)
    monkeypatch.setattr(mirrors, "commit", fail)
    with pytest.raises(BrokerUnreachableError):
        mirrors.accept_loss(linked.project.settings, linked.link, partition, to=3)
    linked.mirror_all()
    assert linked.windows(spark, "waw")[0].fates == {Fate.OUT: 6}


def test_a_merger_balances_with_what_is_late(spark, linked):
    linked.write(linked.own, linked.copy, [0, 10, 70])
    linked.write(linked.own, linked.local, [5, 65, 190])
    linked.write(linked.own, linked.local, [2], partition=1)
    linked.merge_all()
    linked.write(linked.own, linked.copy, [3, 3, 200])
    linked.merge_all()
    windows = linked.windows(spark, "merge")
    assert {n: (each.state, each.read, each.rows) for n, each in windows.items()} == {
        0: (BALANCED, 6, 4),
        1: (BALANCED, 2, 2),
        3: (BALANCED, 2, 2),
    }
    assert windows[0].fates == {Fate.OUT: 4, Fate.LATE: 2}
    late = f"{linked.name}.late"
    linked.write(linked.own, late, [4], headers=[(LATE_HEADER, b"late")])
    linked.write(linked.own, late, [66])  # of somebody else
    windows = linked.windows(spark, "merge")
    assert texts(windows[0]) == [(-1, f"{linked.name}/0")]
    assert windows[1].state is BALANCED


def test_a_source_of_a_merger_that_was_made_again_is_unknown(spark, linked):
    linked.write(linked.own, linked.copy, [0])
    linked.write(linked.own, linked.local, [1])
    linked.merge_all()
    delete_topic(linked.own, linked.local)
    make_topic(linked.own, linked.local, PARTITIONS)
    reasons = linked.counted(spark, "merge").unknown
    assert [reason.split(" ", 1)[0] for reason in reasons] == [
        f"{linked.local}/{n}" for n in range(PARTITIONS)
    ]


def test_a_mergers_windows_behind_what_was_removed_are_compared(spark, linked):
    linked.write(linked.own, linked.copy, range(0, 600, 10))
    linked.write(linked.own, linked.local, range(0, 600, 10))
    linked.merge_all()
    linked.delete_before(linked.own, linked.name, 30)  # of 120
    windows = linked.windows(spark, "merge")
    assert (min(windows), max(windows)) == (4, 9)
    assert {(each.state, each.read) for each in windows.values()} == {(BALANCED, 12)}
    linked.delete_before(linked.own, linked.copy, 36)
    assert min(linked.windows(spark, "merge")) == 8


def test_records_that_are_removed_while_they_are_counted_are_no_loss(spark, linked):
    linked.write(linked.own, linked.local, range(20))
    place = TopicPartition(linked.local, 0)
    records = read_records(spark, linked.own, linked.name, [OffsetRange(place, 0, 20)])
    linked.delete_before(linked.own, linked.local, 5)
    with pytest.raises(NotCountedError):
        first_values(records, own_time_ms())


@pytest.mark.usefixtures("session")
def test_a_dispatcher_balances_by_the_time_at_the_source(tmp_path, broker, other, topic):
    name = topic("clicks")
    servers = {"central": broker.bootstrap_servers, "waw": other, "par": other}
    project = DispatcherInProcess(
        tmp_path, servers, name, targets={"waw": f"{name}.events"}, related={"par": ["waw"]}
    )
    project.make_topics()
    project.write(range(5))
    project.write(range(5, 12), headers=[(ORIGIN, b"par/a/0/1")])
    project.once()
    line, *_ = project.command("reconcile", "--recount", "--json").splitlines()
    [link] = json.loads(line)["links"]
    assert (link["kind"], link["name"], link["unknown"]) == ("dispatcher", "dispatch", "")
    windows = link["windows"]
    assert {window["state"] for window in windows} <= {"balanced", "open"}
    fates = [window["fates"].get(name, 0) for window in windows for name in ("out", "filtered")]
    assert (sum(fates[::2]), sum(fates[1::2])) == (7, 5)
    assert sum(window["rows"] for window in windows) == 7
    assert "dispatch" in project.command("reconcile")
    sender = connected_producer(project.configs["waw"])
    origin = [(ORIGIN, f"central/{name}/0/7".encode())]
    sender.produce(f"{name}.events", b"x", partition=0, headers=origin)
    assert sender.flush(FLUSH_SECONDS) == 0
    text = project.command("reconcile", "dispatch", "--recount", exit_code=6)
    assert f"1 too many at target ({name}.events/0)" in text


@pytest.mark.usefixtures("session")
def test_a_site_that_is_away_is_unknown(tmp_path, broker, topic):
    name, servers = topic("clicks"), broker.bootstrap_servers
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "demo"\nmodules = ["flow"]\n'
        f'[kafka]\nbootstrap_servers = "{servers}"\n[sites.waw.kafka]\n'
        'bootstrap_servers = "127.0.0.1:1"\n[spark.config]\n"spark.driver.memory" = "512m"\n'
    )
    (tmp_path / "flow.py").write_text(
        "from headrace import Mirror, Topic\n"
        f'copy = Topic("{name}", partitions=1)\n'
        'mirror = Mirror("waw", source="waw", topics={"a": copy})\n'
    )
    project = ("--project", tmp_path)
    [link] = answer("reconcile", "--recount", "--strict", *project, code=6)["links"]
    assert (link["windows"], "127.0.0.1:1" in link["unknown"]) == ([], True)
    [mirror] = answer("mirror", "list", *project, code=3)["mirrors"]
    assert "of site waw" in mirror["unreachable"]
