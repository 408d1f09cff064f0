"""A merger on a real broker: the order of the output, late records, losses, and its commands."""

import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.in_process import answer, output
from tests.kafka_topics import make_topic, wait_until_settled
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.errors import LinkLossError, LinkNoPartitionError, LinkRecordError
from headrace.kafka.client.admin_requests import admin_request, describe
from headrace.kafka.client.clients import client_config, connected_producer, consumer
from headrace.kafka.client.offsets import commit, committed
from headrace.kafka.origin import ORIGIN
from headrace.links.copying.instance import CopyInstance
from headrace.links.merger import standing as mergers
from headrace.links.merger.instance import MergerInstance
from headrace.links.merger.merging import LATE_HEADER, MergerCarrier
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.merger.positions.position import committed_offset
from headrace.links.merger.positions.starts import find_loss
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.site_times import SITE_TIMES, ensure_site_times, site_time_key
from headrace.model import TopicPartition
from headrace.settings.model import KafkaSettings
from headrace.spark.header_columns import TIMESTAMP

HEADRACE = Path(sys.executable).with_name("headrace")
LARGER = ConfigEntry("max.message.bytes", "3000000", incremental_operation=AlterConfigOpType.SET)
BY_RECORDS, BY_MIRROR, BY_CLOCK = ClockSource.RECORDS, ClockSource.MIRROR, ClockSource.WALL


@pytest.fixture(scope="module")
def client(broker):
    return client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def plan(client, topic):
    """``plan(told, ...)``: a merger whose topics are there, a source for each."""

    def made(*told, partitions=1, allowed_lateness_ms=0, idle_seconds=3600.0, **config):
        name = topic("clicks")
        sources = {f"{place}.{name}": each for place, each in enumerate(told)}
        for each in (*sources, name, f"{name}.late"):
            make_topic(client, each, partitions, config=config if each in sources else {})
        group = f"headrace.merger.{name}"
        return MergerPlan(
            name, group, client, sources, name, f"{name}.late", allowed_lateness_ms, idle_seconds
        )

    return made


@pytest.fixture
def began_ms():
    return int(time.time() * 1000) - 60_000


def write(plan, place, times, partition=0, **options):
    """Records with the given timestamps; values tell place and number."""
    sender = connected_producer(plan.config)
    for n, time_ms in enumerate(times):
        value = f"{place}-{time_ms}-{n}".encode()
        row = {"key": f"k{n}".encode(), "headers": [("h", b"\xff")]} | options
        sender.produce(plan.topics[place], value, partition=partition, timestamp=time_ms, **row)
    assert sender.flush(FLUSH_SECONDS) == 0


def records(plan, topic, partition=0):
    """Committed records: timestamp, key, value and headers."""
    wait_until_settled(plan.config, topic)
    reader = consumer(plan.config, tuning={"fetch.wait.max.ms": "10"})
    reader.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    found = []
    while (message := reader.poll(LIMIT_SECONDS)).error() is None:
        row = (message.timestamp()[1], message.key(), message.value(), message.headers())
        found.append(row)
    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    reader.close()
    return found


def times(plan, partition=0):
    return [time_ms for time_ms, *_ in records(plan, plan.target, partition)]


class Running:
    """An instance on a thread."""

    def __init__(self, plan):
        self.instance, self.failure = MergerInstance(plan), None
        self.status = self.instance.status()
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
            self.instance.run(lambda _: setattr(self, "status", self.instance.status()))
        except Exception as error:  # noqa: BLE001 - told by `until`
            self.failure = error

    def until(self, holds):
        wait_for(lambda: self.failure or holds(self.status))
        assert self.failure is None, self.failure


def test_two_sorted_topics_become_one_and_what_may_be_preceded_is_held(plan):
    """The vector of Kafka Workers' MergerTest."""
    merged = plan(BY_RECORDS, BY_RECORDS)
    first, second = [10, 50, 70, 130, 150], [30, 90, 110, 120, 140]
    began = int(time.time()) - 3600
    write(merged, 0, [(began + t) * 1000 for t in first])
    write(merged, 1, [(began + t) * 1000 for t in second])
    with Running(merged) as running:
        running.until(lambda status: status.records == 9)
    expected = [10, 30, 50, 70, 90, 110, 120, 130, 140]
    assert times(merged) == [(began + t) * 1000 for t in expected]
    [held] = committed(merged.config, merged.group, [TopicPartition(merged.topics[0], 0)])
    assert held.offset == 4
    assert running.status.waits_for == {f"{merged.target}/0": [f"{merged.topics[1]}/0"]}


def test_records_are_kept_as_they_are(plan, began_ms):
    merged = plan(BY_CLOCK, BY_CLOCK)
    headers = [("a", b"1"), ("a", None), ("b", b"\xff")]
    sender = connected_producer(merged.config)
    for place, (key, value) in enumerate([(b"\xff", None), (None, b"")]):
        topic, time_ms = merged.topics[place], began_ms + place
        sender.produce(topic, value, key, 0, timestamp=time_ms, headers=headers)
    assert sender.flush(FLUSH_SECONDS) == 0
    with Running(merged) as running:
        running.until(lambda status: status.records == 2)
    assert records(merged, merged.target) == [
        (began_ms, b"\xff", None, headers),
        (began_ms + 1, None, b"", headers),
    ]


def test_a_source_of_this_site_that_is_silent_is_as_far_as_the_clock(plan, began_ms):
    merged = plan(BY_CLOCK, BY_CLOCK)
    write(merged, 0, [began_ms, began_ms + 5])
    with Running(merged) as running:
        running.until(lambda status: status.records == 2)
        assert running.status.idle == []


def test_a_mirrored_source_is_as_far_as_its_mirror_says(plan, began_ms):
    merged = plan(BY_CLOCK, BY_MIRROR)
    ensure_site_times(merged.config)
    write(merged, 0, [began_ms, began_ms + 5_000])
    with Running(merged) as running:
        running.until(lambda status: status.waiting_partitions == 1)
        tell(merged, began_ms + 1_000)
        running.until(lambda status: status.records == 1)
        time.sleep(1)
        assert running.status.records == 1
        tell(merged, began_ms + 6_000)
        running.until(lambda status: status.records == 2)


def tell(plan, time_ms):
    sender = connected_producer(plan.config)
    key = site_time_key(TopicPartition(plan.topics[1], 0))
    sender.produce(SITE_TIMES, b"%d" % time_ms, key)
    assert sender.flush(FLUSH_SECONDS) == 0


def test_a_link_that_is_cut_is_waited_for_and_nothing_is_late(plan, second_broker, topic):
    merged = plan(BY_CLOCK, BY_MIRROR, allowed_lateness_ms=1_000)
    [_, copy] = merged.topics
    far = client_config(KafkaSettings(), second_broker.bootstrap_servers)
    name = topic("clicks")
    make_topic(far, name)
    link = MirrorPlan(
        merged.name,
        f"headrace.mirror.{merged.name}",
        "far",
        "central",
        far,
        merged.config,
        {name: copy},
        reports_times=True,
    )
    there = replace(merged, config=far, sources={name: BY_CLOCK})
    senders = {plan.topics[0]: connected_producer(plan.config) for plan in (merged, there)}
    sent = []

    def write_now(where):
        [topic, *_] = where.topics
        # The last step before it is sent: a record that comes a second after its time is late.
        sent.append(max([int(time.time() * 1000), *(time_ms + 1 for time_ms in sent)]))
        senders[topic].produce(topic, b"click", b"k", partition=0, timestamp=sent[-1])
        assert senders[topic].flush(FLUSH_SECONDS) == 0

    with Running(merged) as running:
        write_now(merged)
        running.until(lambda status: status.waits_for.get(f"{merged.target}/0") == [f"{copy}/0"])
        with Mirroring(link):  # the site is silent, and its mirror says so
            running.until(lambda status: status.records == 1)
            write_now(there)
            write_now(merged)
            running.until(lambda status: status.records == 3)
        write_now(there)  # while the link is cut
        write_now(merged)
        running.until(lambda status: status.waiting_partitions == 1)
        time.sleep(3)
        assert running.status.records == 3
        with Mirroring(link):
            running.until(lambda status: status.records == 5)
        assert running.status.late == 0
    assert times(merged) == sent
    [_, mirrored, *_] = records(merged, merged.target)
    assert mirrored[-1][-1] == (ORIGIN, f"far/{name}/0/0".encode())


class Mirroring:
    """An instance of a mirror on a thread."""

    def __init__(self, link):
        self._instance = CopyInstance(link)
        self._thread = threading.Thread(target=self._instance.run, args=[lambda _: None])

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._instance.stop()
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive()


def test_a_site_that_is_silent_is_idle_and_what_it_sends_later_is_late(plan, began_ms):
    merged = plan(BY_RECORDS, BY_RECORDS, idle_seconds=1.0)
    write(merged, 1, [began_ms])
    write(merged, 0, [began_ms + 10, began_ms + 20])
    with Running(merged) as running:
        running.until(lambda status: status.records == 3)
        assert running.status.idle
        write(merged, 1, [began_ms + 15, began_ms + 30])
        running.until(lambda status: (status.late, status.records) == (1, 4))
    assert times(merged) == [began_ms + t for t in (0, 10, 20, 30)]
    [(time_ms, *_, headers)] = records(merged, merged.late)
    assert (time_ms, headers[-1]) == (began_ms + 15, (LATE_HEADER, b"late"))


def test_a_record_without_a_timestamp_can_not_be_put_in_order(plan, began_ms):
    merged = plan(BY_RECORDS)
    write(merged, 0, [-1, began_ms, -1, began_ms + 1])
    with Running(merged) as running:
        running.until(lambda status: (status.late, status.records) == (2, 2))
    assert times(merged) == [began_ms, began_ms + 1]
    for time_ms, *_, headers in records(merged, merged.late):
        assert time_ms > began_ms
        assert headers[-2:] == [(LATE_HEADER, b"no-timestamp"), (TIMESTAMP, b"-1")]


def test_one_partition_that_waits_holds_up_no_other(plan, began_ms):
    merged = plan(BY_RECORDS, BY_RECORDS, partitions=2)
    for partition in (0, 1):
        write(merged, 0, [began_ms + t for t in range(10)], partition)
    write(merged, 1, [began_ms + 100], 1)
    with Running(merged) as running:
        waiting = [f"{merged.topics[1]}/0"]
        running.until(
            lambda status: (
                status.records == 10 and status.waits_for.get(f"{merged.target}/0") == waiting
            )
        )
    assert len(times(merged, 1)) == 10


def test_an_input_that_is_ahead_is_read_no_further_and_goes_on_later(plan, began_ms, monkeypatch):
    monkeypatch.setattr(MergerCarrier, "waiting_records", 200)
    monkeypatch.setattr(MergerCarrier, "min_waiting_records", 100)
    monkeypatch.setattr(MergerCarrier, "take_records", 50)
    merged = plan(BY_RECORDS, BY_RECORDS)
    write(merged, 0, [began_ms + t for t in range(2_000)])
    write(merged, 1, [began_ms])
    with Running(merged) as running:
        running.until(lambda status: status.waiting_partitions == 1)
        [output] = running.instance.carrier._outputs.values()
        wait_for(lambda: output.inputs[0].is_paused)
        time.sleep(1)
        assert output.waiting(output.inputs[0]) <= 100 + 50
        assert output.inputs[0].is_paused
        write(merged, 1, [began_ms + 5_000])
        running.until(lambda status: status.records == 2_001)
    assert times(merged) == sorted([began_ms, *(began_ms + t for t in range(2_000))])


def test_records_that_were_deleted_before_they_were_merged_are_refused(plan, began_ms):
    merged = plan(BY_CLOCK, BY_CLOCK)
    write(merged, 0, [began_ms + t for t in range(10)])
    with Running(merged) as running:
        running.until(lambda status: status.records == 10)
    write(merged, 0, [began_ms + t for t in range(10, 40)])
    delete_records(merged, 25)
    with Running(merged) as running:
        running.until(lambda status: status.refused)
        [refusal] = running.instance.progress.refused.values()
    assert isinstance(refusal, LinkLossError)
    assert (refusal.next_offset, refusal.accepted_offset) == (10, 25)
    assert "15 offsets are lost, 10 to 24" in str(refusal)
    assert f"headrace merger accept {merged.name} {merged.topics[0]}/0" in str(refusal)


def delete_records(plan, offset, place=0):
    at = confluent_kafka.TopicPartition(plan.topics[place], 0, offset)
    admin_request(plan.config, lambda admin: admin.delete_records([at])[at].result(LIMIT_SECONDS))


def test_a_topic_that_was_made_again_is_refused(plan, began_ms):
    merged = plan(BY_CLOCK, BY_CLOCK)
    write(merged, 0, [began_ms + t for t in range(10)])
    with Running(merged) as running:
        running.until(lambda status: status.records == 10)
    [name, _] = merged.topics
    admin_request(
        merged.config, lambda admin: admin.delete_topics([name])[name].result(LIMIT_SECONDS)
    )
    with Running(merged) as running:
        running.until(lambda status: status.refused)
        assert {type(why) for why in running.instance.progress.refused.values()} == {
            LinkNoPartitionError
        }
    make_topic(merged.config, name)
    with Running(merged) as running:
        running.until(lambda status: status.refused)
        [refusal] = running.instance.progress.refused.values()
    assert "deleted and recreated" in str(refusal)


def test_a_recreated_target_is_filled_once_its_late_records_are_recreated_too(plan, began_ms):
    merged = plan(BY_CLOCK, BY_CLOCK)
    sent = [began_ms + t for t in range(10)]
    write(merged, 0, sent)
    with Running(merged) as running:
        running.until(lambda status: status.records == 10)
    recreate(merged, merged.target)
    with Running(merged) as running:
        running.until(lambda status: status.refused)
        [refusal] = running.instance.progress.refused.values()
    assert refusal.code == "MERGER_RECREATED"
    assert times(merged) == []
    recreate(merged, merged.late)
    with Running(merged) as running:
        running.until(lambda status: status.records == 10)
    assert times(merged) == sent
    with Running(merged) as running:  # its positions name the new topics
        write(merged, 1, [began_ms + 20_000])
        running.until(lambda status: status.records == 1)
    assert times(merged) == [*sent, began_ms + 20_000]


def recreate(plan, name):
    admin_request(
        plan.config, lambda admin: admin.delete_topics([name])[name].result(LIMIT_SECONDS)
    )
    wait_for(lambda: name not in describe(plan.config, [name]))
    make_topic(plan.config, name)


def test_without_positions_a_target_with_records_is_refused(plan, began_ms):
    """As after a week without an instance."""
    merged = plan(BY_CLOCK, BY_CLOCK)
    write(merged, 0, [began_ms + t for t in range(10)])
    with Running(merged) as running:
        running.until(lambda status: status.records == 10)
    group = merged.group
    admin_request(
        merged.config, lambda admin: admin.delete_consumer_groups([group])[group].result()
    )
    with Running(merged) as running:
        running.until(lambda status: status.refused)
        [refusal] = running.instance.progress.refused.values()
    assert isinstance(refusal, LinkLossError)
    assert "no position is committed" in str(refusal)
    assert (refusal.next_offset, refusal.accepted_offset) == (0, 9)
    assert len(times(merged)) == 10


def test_after_accepted_losses_of_positions_the_target_stays_in_order(plan, began_ms):
    """What sorts before its last record is late; that of just the last time is merged again."""
    merged = plan(BY_CLOCK, BY_CLOCK, allowed_lateness_ms=1_000)
    write(merged, 0, [began_ms + t for t in (100, 300, 250, 280)])
    write(merged, 1, [began_ms + t for t in (150, 260, 170)])
    with Running(merged) as running:
        running.until(lambda status: status.records == 7)
    before = [began_ms + t for t in (100, 150, 170, 250, 260, 280, 300)]
    assert times(merged) == before
    group = merged.group
    admin_request(
        merged.config, lambda admin: admin.delete_consumer_groups([group])[group].result()
    )
    inputs = merged.inputs_of(TopicPartition(merged.target, 0))
    for source in inputs:
        loss = find_loss(merged, source, committed(merged.config, group, inputs))
        commit(merged.config, group, [committed_offset(source, loss.accepted)])
    write(merged, 0, [began_ms + 400])
    write(merged, 1, [began_ms + 410])
    with Running(merged) as running:
        running.until(lambda status: (status.records, status.late) == (3, 2))
    assert times(merged) == [*before, *(began_ms + t for t in (300, 400, 410))]


def test_a_record_that_the_target_refuses_is_named(plan, began_ms):
    merged = plan(BY_CLOCK, BY_CLOCK, **{"max.message.bytes": "3000000"})
    sender = connected_producer(merged.config)
    for n, size in enumerate((10, 2_000_000, 10)):
        value = random.Random(n).randbytes(size)
        sender.produce(merged.topics[0], value, partition=0, timestamp=began_ms + n)
    assert sender.flush(FLUSH_SECONDS) == 0
    with Running(merged) as running:
        running.until(lambda status: status.refused)
        [error] = running.instance.progress.refused.values()
    assert isinstance(error, LinkRecordError)
    assert (error.partition, error.offset) == (f"{merged.topics[0]}/0", 1)
    before = running.instance.progress.moved["records"]  # 1, where it was read without the others
    alter = [ConfigResource("topic", merged.target, incremental_configs=[LARGER])]
    admin_request(
        merged.config,
        lambda admin: [
            change.result(LIMIT_SECONDS)
            for change in admin.incremental_alter_configs(alter).values()
        ],
    )
    with Running(merged) as running:
        running.until(lambda status: before + status.records == 3)
    assert times(merged) == [began_ms, began_ms + 1, began_ms + 2]


def test_instances_share_the_partitions_and_the_others_take_those_of_one_that_stops(plan, began_ms):
    merged = plan(BY_CLOCK, BY_CLOCK, partitions=4)
    for partition in range(4):
        for place in (0, 1):
            write(merged, place, [began_ms + 2 * t + place for t in range(100)], partition)
    with Running(merged) as first, Running(merged) as second:
        wait_for(lambda: first.status.records + second.status.records == 800)
        first.until(lambda status: status.partitions == 4)
        second.until(lambda status: status.partitions == 4)
        first.instance.stop()
        second.until(lambda status: status.partitions == 8)
        write(merged, 0, [began_ms + 1_000], 3)
        second.until(lambda _: first.status.records + second.status.records == 801)
    for partition in range(4):
        assert times(merged, partition)[:200] == [began_ms + t for t in range(200)]


PROJECT = """
[project]
name = "ads"
modules = ["flow"]

[kafka]
bootstrap_servers = "{servers}"
"""
FLOW = '''
"""Clicks of two sites, merged."""

from datetime import timedelta

from headrace import Merger, Topic

warsaw = Topic("{name}.waw", partitions=2)
paris = Topic("{name}.par", partitions=2)
clicks = Topic("{name}", partitions=2)
late = Topic("{name}.late", partitions=2)
merger = Merger("{name}", [warsaw, paris], clicks, late, allowed_lateness=timedelta(0))
'''


def test_the_commands_run_show_and_accept(client, broker, topic, tmp_path, began_ms, monkeypatch):
    name = topic("clicks")
    (tmp_path / "headrace.toml").write_text(PROJECT.format(servers=broker.bootstrap_servers))
    (tmp_path / "flow.py").write_text(FLOW.format(name=name))

    def headrace(*words, code=0):
        return answer(*words, "--project", tmp_path, code=code)

    headrace("apply")
    sources = {f"{name}.waw": BY_CLOCK, f"{name}.par": BY_CLOCK}
    plan = MergerPlan(
        name, f"headrace.merger.{name}", client, sources, name, f"{name}.late", 0, 60.0
    )
    write(plan, 0, [began_ms + t for t in range(10)])
    write(plan, 1, [began_ms + t for t in range(5, 20)])
    command = [HEADRACE, "merger", "run", name, "--project", tmp_path]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: headrace("status")["mergers"])

        def standing():
            [found] = headrace("merger", "list")["mergers"]
            return found

        wait_for(lambda: standing()["lag"] == 0)
        assert len(standing()["group"]["members"]) == 1
        with monkeypatch.context() as patch:
            # As if the instance had committed for the first time after the positions were read.
            read, before = mergers.committed, [[]]
            patch.setattr(mergers, "committed", lambda *of: before.pop() if before else read(*of))
            assert standing()["lag"] == 0
        headrace("merger", "accept", name, f"{name}.waw/0", code=3)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(LIMIT_SECONDS) == 0
    assert times(plan) == sorted([began_ms + t for t in (*range(10), *range(5, 20))])
    [status] = headrace("status")["mergers"]
    assert (status["merger"], status["state"], status["records"]) == (name, "stopped", 25)
    for place, first in ((0, 11), (1, 17)):
        write(plan, place, [began_ms + 100, began_ms + 101, began_ms + 102])
        delete_records(plan, first, place)
    [shown] = headrace("merger", "list", code=3)["mergers"]
    refused = {partition["partition"]: partition["refused"] for partition in shown["partitions"]}
    assert "1 offsets are lost, 10 to 10" in refused[f"{name}.waw/0"]
    assert "2 offsets are lost, 15 to 16" in refused[f"{name}.par/0"]
    # In any order, each once.
    for source, first in (("par", 17), ("waw", 11)):
        accepted = output("merger", "accept", name, f"{name}.{source}/0", "--project", tmp_path)
        assert f"continues at offset {first}" in accepted
        headrace("merger", "accept", name, f"{name}.{source}/0", code=3)
    headrace("merger", "list")
