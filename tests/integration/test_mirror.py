"""A mirror between two real clusters: what is copied, what a crash repeats, what is refused."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.in_process import answer
from tests.integration.mirror_instance import BEFORE_METADATA, BEFORE_OFFSETS, arguments
from tests.kafka_topics import grow_topic, make_topic, wait_until_settled
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.errors import LinkNoLeaderError, LinkRecordError
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.client.broker_errors import TIMES_AHEAD
from headrace.kafka.client.clients import client_config, connected_producer, consumer
from headrace.kafka.client.offsets import group_offsets
from headrace.kafka.group import group_member
from headrace.kafka.group.groups import describe_group
from headrace.kafka.origin import ORIGIN
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import TransactionalProducer
from headrace.links.copying.instance import CopyInstance
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.timing import LinkTiming
from headrace.model import TopicPartition
from headrace.runtime.instance_name import process_name
from headrace.settings.model import KafkaSettings
from headrace.spark.header_columns import TIMESTAMP

HEADRACE = Path(sys.executable).with_name("headrace")
ANY_TIME = ConfigEntry(TIMES_AHEAD, str(2**63 - 1), incremental_operation=AlterConfigOpType.SET)
BEGAN_MS = int(time.time() * 1000)  # what is older than a topic's retention, brokers delete


@pytest.fixture(scope="module")
def source(second_broker):
    """The cluster of the other site."""
    return client_config(KafkaSettings(), second_broker.bootstrap_servers)


@pytest.fixture(scope="module")
def failing(start_cluster):
    """A further site, whose broker tests kill and start again."""
    return start_cluster()


@pytest.fixture(scope="module")
def target(broker):
    """The cluster that is copied to."""
    return client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def link(source, target, topic):
    """A mirror of one topic with two partitions, both of which are there."""
    found = topic("clicks")
    make(source, found)
    make(target, f"waw.{found}")
    return MirrorPlan(
        found, f"headrace.mirror.{found}", "waw", "central", source, target, {found: f"waw.{found}"}
    )


def make(client, name, partitions=2, **config):
    make_topic(client, name, partitions, config=config)


def write(client, name, numbers, partition=0, **options):
    """Records `n` with key `k<n>`, a timestamp of its own and a header."""
    sender = connected_producer(client)
    for n in numbers:
        sender.produce(
            name,
            f"{n}".encode(),
            f"k{n}".encode(),
            partition,
            timestamp=BEGAN_MS + n,
            **({"headers": [("h", b"\xff"), ("h", None)]} | options),
        )
    assert sender.flush(FLUSH_SECONDS) == 0


def records(client, name, partitions=2):
    """All committed records by partition: key, value, timestamp and headers."""
    wait_until_settled(client, name)
    reader = consumer(client, tuning={"fetch.wait.max.ms": "10"})
    reader.assign([confluent_kafka.TopicPartition(name, p, 0) for p in range(partitions)])
    found = {p: [] for p in range(partitions)}
    open_ = set(found)
    while open_:
        message = reader.poll(LIMIT_SECONDS)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            open_.discard(message.partition())
        else:
            timestamp = message.timestamp()[1]
            row = (message.key(), message.value(), timestamp, message.headers() or [])
            found[message.partition()].append(row)
    reader.close()
    return found


def numbers(client, link, partition=0):
    [name] = link.copies.values()
    return [int(value) for _, value, _, _ in records(client, name)[partition]]


OFTEN = LinkTiming(check_seconds=1.0)


class Running:
    """An instance on a thread."""

    def __init__(self, link, timing=LinkTiming()):
        self.link, self.instance = link, CopyInstance(link, timing)
        self.failure = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.instance.stop()
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive()

    def _run(self):
        try:
            self.instance.run(lambda _: None)
        except Exception as error:  # noqa: BLE001 - told by `until`
            self.failure = error

    @property
    def refused(self):
        """Why partitions of the source can't continue."""
        refused = self.instance.progress.refused
        return {self.link.source_of(copy): why for copy, why in refused.items()}

    def until(self, holds):
        wait_for(lambda: self.failure or holds(self.instance.progress))
        assert self.failure is None, self.failure


def test_records_are_kept_as_they_are_with_their_origin(link, source, target):
    [(name, copy)] = link.copies.items()
    write(source, name, range(100))
    write(source, name, range(100, 150), partition=1)
    sender = connected_producer(source)
    sender.produce(name, None, b"tombstone", 0, timestamp=BEGAN_MS - 5)
    sender.produce(name, b"", None, 1, timestamp=BEGAN_MS)
    assert sender.flush(FLUSH_SECONDS) == 0

    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 152)

    expected = records(source, name)
    for partition, rows in records(target, copy).items():
        assert [row[:3] for row in rows] == [row[:3] for row in expected[partition]]
        for offset, (row, original) in enumerate(zip(rows, expected[partition], strict=True)):
            origin = f"waw/{name}/{partition}/{offset}".encode()
            assert row[3] == [*original[3], (ORIGIN, origin)]


def test_a_further_instance_goes_on_behind_the_last_record(link, source, target):
    [name] = link.copies
    write(source, name, range(50))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 50)
    write(source, name, range(50, 80))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 30)
    assert numbers(target, link) == list(range(80))


def test_without_a_committed_offset_the_copys_last_record_tells_where_to_go_on(
    link, source, target
):
    [name] = link.copies
    write(source, name, range(50))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 50)
    wait_for(lambda: delete_group(target, link.group))
    write(source, name, range(50, 80))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 30)
    assert numbers(target, link) == list(range(80))


def delete_group(client, group):
    try:
        admin(client).delete_consumer_groups([group])[group].result(LIMIT_SECONDS)
    except confluent_kafka.KafkaException:
        return False  # its last member has not left yet
    return True


def test_two_instances_share_the_partitions_and_copy_each_record_once(link, source, target):
    [name] = link.copies
    with Running(link) as first:
        first.until(lambda progress: len(progress.partitions) == 2)
        with Running(link) as second:
            second.until(lambda progress: len(progress.partitions) == 1)
            for at in range(0, 200, 20):
                for partition in (0, 1):
                    write(source, name, range(at + partition, at + 20, 2), partition)
            wait_for(
                lambda: sum(r.instance.progress.moved["records"] for r in (first, second)) == 200
            )
    assert numbers(target, link, 0) == list(range(0, 200, 2))
    assert numbers(target, link, 1) == list(range(1, 200, 2))


def test_what_has_been_at_one_of_the_sites_before_is_not_sent(link, source, target):
    [name] = link.copies
    write(source, name, range(10), headers=[(ORIGIN, b"central/other/0/7")])
    write(source, name, range(10, 20), headers=[(ORIGIN, b"ams/other/0/7")])
    loop = [(ORIGIN, b"waw/other/0/7"), (ORIGIN, b"ams/other/0/7")]
    write(source, name, range(20, 25), headers=loop)
    with Running(link) as running:
        # One commit adds both, one after the other.
        running.until(
            lambda progress: (
                (progress.moved["loops_skipped"], progress.moved["records"]) == (15, 10)
            )
        )
    assert numbers(target, link) == list(range(10, 20))
    [copy] = link.copies.values()
    headers = records(target, copy)[0][0][3]
    assert headers == [(ORIGIN, b"ams/other/0/7"), (ORIGIN, f"waw/{name}/0/10".encode())]


def test_aborted_records_of_the_source_are_not_copied(link, source, target):
    [name] = link.copies
    write(source, name, range(5))
    aborted = TransactionalProducer(source, f"{name}-aborted")
    aborted._producer.begin_transaction()
    aborted._producer.produce(name, b"999", partition=0)
    aborted._producer.flush(FLUSH_SECONDS)
    aborted.close()
    TransactionalProducer(source, f"{name}-done").send([ProducerRecord(name, b"k5", b"5", (), 0)])
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 6)
    assert numbers(target, link) == list(range(6))


def test_records_that_retention_removed_are_named_and_hold_up_no_other_partition(
    link, source, target
):
    [name] = link.copies
    write(source, name, range(10))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
    write(source, name, range(10, 30))
    at = confluent_kafka.TopicPartition(name, 0, 25)
    [done] = admin(source).delete_records([at]).values()
    done.result(LIMIT_SECONDS)
    write(source, name, range(5), partition=1)

    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 5)
        refused = running.refused[TopicPartition(name, 0)]
    assert refused.code == "MIRROR_GAP"
    assert "15 offsets are lost, 10 to 24" in str(refused)
    assert numbers(target, link) == list(range(10))


def test_a_topic_that_was_made_again_is_refused(link, source, target):
    [name] = link.copies
    write(source, name, range(10))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
    recreate(source, name)
    write(source, name, range(100, 120))
    with Running(link) as running:
        running.until(lambda progress: progress.refused)
        assert running.refused[TopicPartition(name, 0)].code == "MIRROR_RECREATED"
    assert numbers(target, link) == list(range(10))


def recreate(client, name):
    admin(client).delete_topics([name])[name].result(LIMIT_SECONDS)

    def made():
        try:
            make(client, name)
        except confluent_kafka.KafkaException:
            return False  # the deletion is not known to all yet
        return True

    wait_for(made)


def test_a_topic_that_is_made_again_while_it_is_mirrored_is_refused(link, source, target):
    [name] = link.copies
    write(source, name, range(10))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
        recreate(source, name)
        write(source, name, range(100, 150))
        running.until(lambda progress: len(progress.refused) == 2)
        refused = running.refused[TopicPartition(name, 0)]
    assert refused.code == "MIRROR_RECREATED"
    assert numbers(target, link) == list(range(10))


def test_a_copy_that_is_recreated_while_it_is_mirrored_is_filled_from_the_start(
    link, source, target, monkeypatch
):
    """It ends if it learns of the deletion before the copy is there again."""
    monkeypatch.setitem(group_member._CONFIG, "topic.metadata.refresh.interval.ms", "600000")
    [(name, copy)] = link.copies.items()
    write(source, name, range(10))
    with Running(link, OFTEN) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
        recreate(target, copy)
        write(source, name, range(10, 15))
        running.until(lambda progress: progress.moved["records"] == 25)
    assert numbers(target, link) == list(range(15))


@pytest.mark.parametrize("freezes", [BEFORE_METADATA, BEFORE_OFFSETS])
def test_an_instance_that_froze_in_its_transaction_wakes_up_and_repeats_nothing(
    link, source, target, freezes
):
    [name] = link.copies
    write(source, name, range(200))
    frozen = subprocess.Popen([sys.executable, *arguments(link, freezes)])
    try:
        wait_for(lambda: state(frozen) == "T")
        with Running(link) as running:
            wait_for(lambda: numbers(target, link) == list(range(200)))
            frozen.send_signal(signal.SIGCONT)
            # As a member again, it shares the partitions.
            running.until(lambda progress: len(progress.partitions) == 1)
            write(source, name, range(200, 300))
            wait_for(lambda: numbers(target, link)[-1:] == [299])
    finally:
        frozen.kill()
        frozen.wait()
    assert numbers(target, link) == list(range(300))


def state(process):
    """What the kernel says of a process: T where it is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_pair_in_both_directions_sends_nothing_back(source, target, topic):
    name = topic("shared")
    for client in (source, target):
        make(client, name)
    there = MirrorPlan(
        f"{name}-there",
        f"headrace.mirror.{name}-there",
        "waw",
        "central",
        source,
        target,
        {name: name},
    )
    back = MirrorPlan(
        f"{name}-back",
        f"headrace.mirror.{name}-back",
        "central",
        "waw",
        target,
        source,
        {name: name},
    )
    write(source, name, range(100))
    write(target, name, range(100, 200))
    with Running(there) as first, Running(back) as second:
        for running in (first, second):
            running.until(lambda progress: progress.moved["records"] == 100)
        write(source, name, range(200, 210))
        first.until(lambda progress: progress.moved["records"] == 110)
        # Each has seen what the other one brought, and left it out.
        first.until(lambda progress: progress.moved["loops_skipped"] == 100)
        second.until(lambda progress: progress.moved["loops_skipped"] == 110)
        assert first.instance.progress.moved["records"] == 110
        assert second.instance.progress.moved["records"] == 100
    for client in (source, target):
        values = [int(row[1]) for row in records(client, name)[0]]
        assert sorted(values) == list(range(210))


def committed_offset(client, link):
    [copy] = link.copies.values()
    [offset] = group_offsets(client, link.group, [TopicPartition(copy, 0)]).values() or [-1]
    return offset


def test_a_record_that_the_target_refuses_is_named_and_those_before_it_are_copied(
    source, target, topic
):
    name = topic("clicks")
    make(source, name)
    make(target, f"waw.{name}", **{"max.message.bytes": "10000"})
    link = MirrorPlan(
        name, f"headrace.mirror.{name}", "waw", "central", source, target, {name: f"waw.{name}"}
    )
    # Together, they are more than the target takes in a batch.
    write(source, name, range(200), headers=[("h", random.Random(1).randbytes(500))])
    write(source, name, [200], headers=[("h", random.Random(2).randbytes(20_000))])
    write(source, name, range(201, 220))
    write(source, name, range(1000, 1050), partition=1)
    with Running(link) as running:
        running.until(lambda progress: progress.refused)
        [error] = running.refused.values()
        assert isinstance(error, LinkRecordError)
        assert (error.site, error.partition, error.offset) == ("waw", f"{name}/0", 200)
        write(source, name, range(1050, 1100), partition=1)
        running.until(lambda progress: progress.moved["records"] == 300)
        assert [*running.refused] == [TopicPartition(name, 0)]
    assert numbers(target, link) == list(range(200))
    assert numbers(target, link, partition=1) == list(range(1000, 1100))
    assert committed_offset(target, link) == 200


def test_a_record_without_a_timestamp_has_the_time_of_copying(link, source, target):
    [(name, copy)] = link.copies.items()
    sender = connected_producer(source)
    for time_ms in (-1, BEGAN_MS, -1):
        sender.produce(name, b"v", b"k", 0, timestamp=time_ms)
    assert sender.flush(FLUSH_SECONDS) == 0
    assert [time_ms for _, _, time_ms, _ in records(source, name)[0]] == [-1, BEGAN_MS, -1]
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 3)
    without, first, _ = records(target, copy)[0]
    assert (without[2] > BEGAN_MS, without[3][-1]) == (True, (TIMESTAMP, b"-1"))
    assert (first[2], [name for name, _ in first[3]]) == (BEGAN_MS, [ORIGIN])


def test_a_record_from_the_future_is_named_with_the_setting_that_keeps_it(source, target, topic):
    name = topic("clicks")
    make(source, name, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    make(target, f"waw.{name}")
    link = MirrorPlan(
        name, f"headrace.mirror.{name}", "waw", "central", source, target, {name: f"waw.{name}"}
    )
    write(source, name, [0, 7_200_000, 1])
    with Running(link, OFTEN) as running:
        running.until(lambda progress: progress.refused)
        [error] = running.refused.values()
        assert isinstance(error, LinkRecordError)
        assert (error.offset, error.setting) == (1, TIMES_AHEAD)
        keeps, _, loses = error.remedy.partition(" To leave it out: ")
        assert f'waw.{name} config={{"{TIMES_AHEAD}": ' in keeps
        assert "headrace mirror accept" in loses
        resource = ConfigResource("topic", f"waw.{name}", incremental_configs=[ANY_TIME])
        for done in admin(target).incremental_alter_configs([resource]).values():
            done.result(LIMIT_SECONDS)
        running.until(lambda progress: progress.moved["records"] == 3 and not progress.refused)
    assert numbers(target, link) == [0, 7_200_000, 1]


def test_a_partition_that_only_the_copy_has_waits_for_the_source(link, source, target):
    [(name, copy)] = link.copies.items()
    grow_topic(target, copy, 3)
    write(source, name, range(10))
    with Running(link, OFTEN) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
        grow_topic(source, name, 3)
        write(source, name, range(10, 20), partition=2)
        running.until(lambda progress: progress.moved["records"] == 20)
    assert [int(row[1]) for row in records(target, copy, partitions=3)[2]] == list(range(10, 20))


def test_a_topic_that_is_deleted_holds_up_no_other(source, target, topic):
    names = [topic("clicks"), topic("views")]
    for name in names:
        make(source, name)
        make(target, f"waw.{name}")
    copies = {name: f"waw.{name}" for name in names}
    link = MirrorPlan(
        names[0], f"headrace.mirror.{names[0]}", "waw", "central", source, target, copies
    )
    for name in names:
        write(source, name, range(10))
    with Running(link, OFTEN) as running:
        running.until(lambda progress: progress.moved["records"] == 20)
        admin(source).delete_topics(names[:1])[names[0]].result(LIMIT_SECONDS)
        running.until(lambda _: TopicPartition(names[0], 0) in running.refused)
        write(source, names[1], range(10, 20))
        running.until(lambda progress: progress.moved["records"] == 30)
        refused = dict(running.refused)
    assert {partition.topic for partition in refused} == {names[0]}
    assert {refusal.code for refusal in refused.values()} == {"MIRROR_TOPIC_MISSING"}


@pytest.mark.drill
def test_a_partition_without_a_leader_holds_up_no_other(start_cluster, target, topic):
    cluster = start_cluster(brokers=3)
    source = client_config(KafkaSettings(), cluster.bootstrap_servers)
    name = topic("clicks")
    make_topic(source, name, 2, replica_assignment=[[1], [2]])
    make(target, f"waw.{name}")
    link = MirrorPlan(
        name, f"headrace.mirror.{name}", "waw", "central", source, target, {name: f"waw.{name}"}
    )
    write(source, name, range(5), partition=1)
    cluster.cluster.kill(2)
    wait_for(lambda: describe(source, [name])[name].leaderless == {1})
    write(source, name, range(10))
    with Running(link, OFTEN) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
        refused = running.refused
        assert {type(refused[TopicPartition(name, 1)])} == {LinkNoLeaderError}
        cluster.cluster.start_broker(2)
        running.until(lambda progress: progress.moved["records"] == 15)
    assert numbers(target, link, 1) == list(range(5))


def test_an_instance_that_ends_leaves_its_group_at_once(link, target):
    with Running(link) as running:
        running.until(lambda progress: len(progress.partitions) == 2)
        [member] = describe_group(target, link.group).members
        assert member.name == process_name()
    assert describe_group(target, link.group).members == ()


@pytest.mark.drill
@pytest.mark.parametrize("away", ["source", "target"])
def test_while_a_site_is_away_an_instance_waits(failing, source, target, topic, away):
    name = topic("clicks")
    one_away = client_config(KafkaSettings(), failing.bootstrap_servers)
    clients = {"source": source, "target": target} | {away: one_away}
    make(clients["source"], name)
    make(clients["target"], f"waw.{name}")
    group = f"headrace.mirror.{name}"
    link = MirrorPlan(name, group, "waw", "central", *clients.values(), {name: f"waw.{name}"})
    broker = failing.cluster
    with Running(link) as running:
        for last in (1_000, 2_000):
            write(clients["source"], name, range(last - 1_000, last))
            running.until(lambda _, last=last: numbers(clients["target"], link)[-1:] == [last - 1])
            time.sleep(1)  # no transaction is on its way: see the page, "that does not end"
            broker.kill(1)
            time.sleep(12)  # longer than a session, and than a transaction may last
            broker.start_broker(1)
        write(clients["source"], name, range(2_000, 3_000))
        running.until(lambda _: numbers(clients["target"], link)[-1:] == [2_999])
    assert numbers(clients["target"], link) == list(range(3_000))


def test_partitions_that_are_added_are_copied_from_their_beginning(link, source, target):
    [(name, copy)] = link.copies.items()
    write(source, name, range(10))
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
        grow_topic(source, name, 3)
        write(source, name, range(10, 20), partition=2)
        grow_topic(target, copy, 3)
        running.until(lambda progress: progress.moved["records"] == 20)
    assert [int(row[1]) for row in records(target, copy, partitions=3)[2]] == list(range(10, 20))


def test_records_of_half_a_megabyte_are_copied(link, source, target):
    [(name, copy)] = link.copies.items()
    sender = connected_producer(source)
    for n in range(40):
        sender.produce(name, b"%d " % n * 100_000, partition=0, timestamp=BEGAN_MS)
    assert sender.flush(FLUSH_SECONDS) == 0
    with Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 40)
    assert [row[1][:3].split()[0] for row in records(target, copy)[0]] == [
        b"%d" % n for n in range(40)
    ]


TOML = """
[project]
name = "sites"
modules = ["flow"]
[kafka]
bootstrap_servers = "{target}"
[sites.waw.kafka]
bootstrap_servers = "{source}"
"""
FLOW = """
from headrace import Mirror, Topic

clicks = Topic("waw.{topic}", partitions=2)
warsaw = Mirror("{topic}", source="waw", topics={{"{topic}": clicks}})
"""


@pytest.fixture
def headrace(source, target, topic, tmp_path):
    """`headrace("mirror", "list")` in a project that mirrors topic `headrace.topic`."""
    name = topic("clicks")
    make(source, name)
    servers = {"source": source["bootstrap.servers"], "target": target["bootstrap.servers"]}
    (tmp_path / "headrace.toml").write_text(TOML.format(**servers))
    (tmp_path / "flow.py").write_text(FLOW.format(topic=name))

    def command(*arguments, code=0):
        return answer(*arguments, "--project", tmp_path, code=code)

    command.topic, command.folder = name, tmp_path
    return command


def test_the_commands_run_show_and_accept(headrace, source, target):
    name, copy = headrace.topic, f"waw.{headrace.topic}"
    assert headrace("apply")["changes"]
    write(source, name, range(10))
    with running_command(headrace) as lines:
        wait_for(lambda: lines and json.loads(lines[-1])["records"] == 10)
    [standing] = headrace("mirror", "list")["mirrors"]
    assert (standing["source"], standing["lag"]) == ("waw", 0)

    write(source, name, range(10, 30))
    [done] = admin(source).delete_records([confluent_kafka.TopicPartition(name, 0, 25)]).values()
    done.result(LIMIT_SECONDS)
    [standing] = headrace("mirror", "list", code=3)["mirrors"]
    [refused] = [one for one in standing["partitions"] if one["refused"]]
    assert (refused["partition"], refused["next_offset"], refused["lag"]) == (f"{name}/0", 10, 20)
    assert f"headrace mirror accept {name} {name}/0" in refused["refused"]

    accepted = headrace("mirror", "accept", name, f"{name}/0")
    assert (accepted["next_offset"], accepted["accepted_offset"], accepted["lost"]) == (10, 25, 15)
    headrace("mirror", "accept", name, f"{name}/0", code=3)
    with running_command(headrace) as lines:
        wait_for(lambda: lines and json.loads(lines[-1])["records"] == 5)
        headrace("mirror", "accept", name, f"{name}/0", "--to", "30", code=3)
    for partition, to, problem in (("0", "31", "from 25 to 30"), ("2", "0", "are 0 to 1")):
        place = (f"{name}/{partition}", "--to", to)
        assert problem in headrace("mirror", "accept", name, *place, code=3)["message"]
    assert [int(row[1]) for row in records(target, copy)[0]] == [*range(10), *range(25, 30)]


@contextmanager
def running_command(headrace):
    """`mirror run` as a process that Ctrl-C ends; gives the lines that it prints."""
    process = subprocess.Popen(
        [HEADRACE, "mirror", "run", headrace.topic, "--json"],
        cwd=headrace.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = []
    reading = threading.Thread(target=lambda: lines.extend(process.stdout))
    reading.start()
    try:
        yield lines
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(LIMIT_SECONDS)
        reading.join(LIMIT_SECONDS)
        process.stdout.close()
    assert code == 0


def test_a_partition_without_a_copy_is_shown(headrace, source):
    headrace("apply")
    grow_topic(source, headrace.topic, 3)
    [standing] = headrace("mirror", "list", code=3)["mirrors"]
    [refused] = [one for one in standing["partitions"] if one["refused"]]
    assert f"waw.{headrace.topic}/2" in refused["refused"]


def test_damaged_records_are_named_and_other_partitions_are_copied(
    link, source, target, server_folder
):
    [name] = link.copies
    write(source, name, range(5))
    write(source, name, [5], headers=[("h", b"damaged-here")])
    write(source, name, range(6, 9))
    write(source, name, range(1000, 1050), partition=1)
    [segment] = (server_folder / "second").glob(f"**/{name}-0/*.log")
    at = segment.read_bytes().index(b"damaged-here")
    with segment.open("r+b") as log:
        log.seek(at)
        log.write(b"X")
    with Running(link) as running:
        running.until(lambda progress: progress.refused)
        running.until(lambda progress: progress.moved["records"] == 55)
        [error] = running.refused.values()
    assert (error.code, error.partition, error.offset) == ("MIRROR_DAMAGED", f"{name}/0", 5)
    assert numbers(target, link) == list(range(5))
    assert numbers(target, link, partition=1) == list(range(1000, 1050))
