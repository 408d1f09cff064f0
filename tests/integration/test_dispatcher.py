"""A dispatcher between real clusters: what goes where, and what a crash or an outage repeats."""

import json
import signal
from datetime import timedelta

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from tests.integration.dispatcher_project import BEGAN_MS, DispatcherInProcess, DispatcherProject
from tests.kafka_topics import grow_topic, make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import DispatchMode
from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.admin_requests import admin_request
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import group_offsets
from headrace.model import TopicPartition

RELATED = {"central": ["waw"], "par": ["waw"], "waw": ["par"]}


@pytest.fixture(scope="module")
def other(start_cluster):
    return start_cluster()


@pytest.fixture
def declare(tmp_path, broker, other, topic, session):
    """``declare(mode=...)``: a project with a dispatcher to site waw, and its topics."""

    def declared(*, waw=other, **options):
        sites = {"central": broker, "waw": waw, "par": other}
        addresses = {site: running.bootstrap_servers for site, running in sites.items()}
        name = topic("clicks")
        targets = {"targets": {"waw": f"{name}.events"}}
        project = DispatcherInProcess(tmp_path, addresses, name, **targets | options)
        project.make_topics()
        return project

    return declared


@pytest.fixture
def project(declare):
    """A dispatcher to one site, in real-time mode."""
    return declare()


def test_records_keep_key_value_headers_and_partition(project):
    project.write([1], partition=1, headers=[("h", b"\xff"), ("h", None), ("t", b"")])
    project.once()
    [(key, value, headers)] = project.records("waw", partition=1)
    assert (key, json.loads(value)) == (b"k1", {"n": 1})
    assert headers == [
        ("h", b"\xff"),
        ("h", None),
        ("t", b""),
        ("headrace-timestamp", b"%d" % (BEGAN_MS + 1)),
        ("headrace-origin", f"central/{project.name}/1/0".encode()),
    ]


def test_a_second_run_goes_on_where_the_first_ended(project):
    for numbers in (range(3), range(3, 5)):
        project.write(numbers)
        project.once()
    assert project.numbers("waw") == [0, 1, 2, 3, 4]


def test_an_instance_that_is_killed_repeats_nothing_that_the_target_has(project):
    """Positions are committed once a minute; the next start reads where the target's topic ends."""
    with DispatcherProject.running(project, end=signal.SIGKILL):
        project.write(range(50))
        project.until("waw", range(50))
    project.write(range(50, 60))
    with DispatcherProject.running(project, end=signal.SIGTERM, exit_codes=[0]) as process:
        project.until_running(process.pid)  # the JVM of the one that was killed may still send
        project.until("waw", range(60))
        assert "The dispatcher runs already" in project.once(exit_code=3)
        project.write(range(60, 70))
        project.until("waw", range(70))
    assert project.numbers("waw") == list(range(70))


def test_a_site_that_is_away_holds_up_nobody_else(declare, broker, other, start_cluster, topic):
    """Site waw is on the cluster of the project, as its brokers go on."""
    name = topic("events")
    project = declare(partitions=1, waw=broker, targets={"waw": name, "par": name})
    project.write(range(5))
    with project.running():
        for site in ("waw", "par"):
            project.until(site, range(5))
        other.cluster.stop()
        project.write(range(5, 10))
        project.until("waw", range(10))
        project.until_state("par", "waiting")
        project.write(range(10, 15))
        project.until("waw", range(15))
        servers = other.bootstrap_servers.split(",")
        ports = tuple(int(server.rpartition(":")[2]) for server in servers)
        start_cluster(folder=other.folder, ports=ports)
        project.until_state("par", "running")
        project.write(range(15, 20))
        project.until("waw", range(20))
        project.until("par", range(20))


def test_what_came_in_at_a_site_is_not_sent_back_there(declare, topic):
    names = {"waw": topic("to-waw"), "par": topic("to-par")}
    project = declare(related=RELATED, targets=names)
    project.write([1])
    project.write([2], headers=[("headrace-origin", b"waw/clicks/0/1")])
    project.write([3], headers=[("headrace-origin", b"par/clicks/0/1")])
    project.once()
    assert project.numbers("waw") == [1, 3]
    assert project.numbers("par") == [2]


@pytest.mark.parametrize("mode", [DispatchMode.REAL_TIME, DispatchMode.MICRO_BATCH])
def test_committed_records_alone_are_sent(declare, topic, mode):
    """Markers of transactions, and records of those that were given up, are among the offsets."""
    project = declare(mode=mode, commit_every=timedelta(seconds=5))
    writer = confluent_kafka.Producer(
        project.configs["central"] | {"transactional.id": topic("writer")}
    )
    writer.init_transactions(LIMIT_SECONDS)

    def write(number, *, is_kept=True):
        writer.begin_transaction()
        writer.produce(project.name, json.dumps({"n": number}).encode(), partition=0)
        assert writer.flush(FLUSH_SECONDS) == 0
        end = writer.commit_transaction if is_kept else writer.abort_transaction
        end(LIMIT_SECONDS)

    with project.running():
        for number in range(6):
            write(number, is_kept=number % 3 != 2)
        project.until("waw", [0, 1, 3, 4])
        write(6)
        project.until("waw", [0, 1, 3, 4, 6])


def test_a_partition_whose_next_record_is_gone_is_refused_until_it_is_accepted(project):
    project.write(range(5))
    project.write(range(5), partition=1)
    project.once()
    project.write(range(5, 9))
    delete_first(project, 7)
    listed = project.command("dispatcher", "list", exit_code=3)
    assert "2 offsets are lost, 5 to 6" in " ".join(listed.split())
    with project.running():
        project.write([5], partition=1)
        project.until("waw", range(6), partition=1)
        wait_for(lambda: refused(project) == [{f"waw/{project.name}/0"}], project.statuses)
        assert project.numbers("waw") == list(range(5))
        project.command("dispatcher", "accept", "dispatch", "waw", f"{project.name}/0")
        project.until("waw", [0, 1, 2, 3, 4, 7, 8])
    project.command("dispatcher", "accept", "dispatch", "waw", f"{project.name}/0", exit_code=3)


def refused(project):
    """The partitions that are refused, of each instance that runs."""
    return [set(one["refused"]) for one in project.statuses() if one["state"] == "running"]


def delete_first(project, offset):
    place = confluent_kafka.TopicPartition(project.name, 0, offset)
    admin_request(
        project.configs["central"], lambda client: client.delete_records([place])[place].result()
    )


def test_a_topic_that_was_made_again_is_refused_until_it_is_accepted(project):
    project.write(range(5))
    project.once()
    delete_topic(project.configs["central"], project.name)
    make_topic(project.configs["central"], project.name, 2)
    project.write(range(10, 18))
    project.once(exit_code=3)
    assert project.numbers("waw") == list(range(5))
    for partition in (0, 1):
        place = f"{project.name}/{partition}"
        project.command("dispatcher", "accept", "dispatch", "waw", place)
    project.once()
    assert project.numbers("waw") == [*range(5), *range(10, 18)]


def test_a_partition_that_is_added_is_dispatched(declare):
    project = declare(partitions=1)
    with project.running():
        project.write(range(3))
        project.until("waw", range(3))
        for site, name in (("waw", project.target), ("central", project.name)):
            grow_topic(project.configs[site], name, 2)
        project.write([7], partition=1)
        project.until("waw", [7], partition=1)
    assert project.numbers("waw") == [0, 1, 2]


def test_a_target_without_the_topic_is_refused_by_name(project):
    delete_topic(project.configs["waw"], project.target)
    project.write([1])
    refused = project.once(exit_code=3)
    assert "does not exist, or does not have the partition" in refused
    assert f"{project.target}/0" in refused
    make_topic(project.configs["waw"], project.target, 2)
    project.once()
    assert project.numbers("waw") == [1]


def test_a_record_that_is_too_large_for_the_target_is_named_and_not_lost(project):
    delete_topic(project.configs["waw"], project.target)
    make_topic(project.configs["waw"], project.target, 2, config={"max.message.bytes": "20000"})
    project.write([1])
    project.write([2], payload="".join(f"{n:x}" for n in range(20_000)))
    project.write([3])
    assert "A record can't be written as it is" in project.once(exit_code=3)
    # Records behind it may have been on their way already; they are not sent again.
    assert set(project.numbers("waw")) <= {1, 3}
    make_larger(project)
    project.once()
    assert sorted(project.numbers("waw")) == [1, 2, 3]


def test_a_record_that_the_target_refuses_stops_its_partition_alone(declare):
    project = declare(commit_every=timedelta(seconds=5))
    delete_topic(project.configs["waw"], project.target)
    make_topic(project.configs["waw"], project.target, 2, config={"max.message.bytes": "20000"})
    project.write([1])
    project.write([2], payload="".join(f"{n:x}" for n in range(20_000)))
    project.write([3])
    with project.running():
        project.write(range(4), partition=1)
        wait_for(lambda: refused(project) == [{f"waw/{project.name}/0"}], project.statuses)
        project.write(range(4, 8), partition=1)
        project.until("waw", range(8), partition=1)
        listed = " ".join(project.command("dispatcher", "list", exit_code=3).split())
        assert f"partition '{project.name}/0', offset 1," in listed
        assert "'max.message.bytes'): RecordTooLargeException: The request" in listed
        assert f"give {project.target} at waw a larger max.message.bytes" in listed
        make_larger(project)
        wait_for(lambda: sorted(project.numbers("waw")) == [1, 2, 3], project.statuses)
    assert project.numbers("waw", partition=1) == list(range(8))


def test_a_record_without_a_key_is_named_where_the_target_is_compacted(project):
    delete_topic(project.configs["waw"], project.target)
    make_topic(project.configs["waw"], project.target, 2, config={"cleanup.policy": "compact"})
    writer = connected_producer(project.configs["central"])
    writer.produce(project.name, b'{"n": 1}', None, 0, timestamp=BEGAN_MS)
    assert writer.flush(FLUSH_SECONDS) == 0
    said = " ".join(project.once(exit_code=3).split())
    assert f"let {project.target} at waw not be compacted" in said


def make_larger(project):
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, project.target, incremental_configs=[entry]
    )
    admin_request(
        project.configs["waw"],
        lambda client: client.incremental_alter_configs([resource])[resource].result(),
    )


def test_a_second_instance_is_refused(declare, tmp_path):
    project = declare(partitions=1)
    with project.running(exit_codes=[3]):
        project.write([1])
        project.until("waw", [1])
        assert "The dispatcher runs already" in project.once(exit_code=3)
        # On another machine there is no lock: who has begun last goes on, and the other one ends.
        project.write([2])
        project.until("waw", [1, 2])
        project.elsewhere(tmp_path / "elsewhere").once()
        project.until_state("waw", "failed")
    assert project.numbers("waw") == [1, 2]


def test_records_that_retention_took_once_they_were_sent_are_no_loss(declare):
    project = declare(commit_every=timedelta(hours=1))
    with project.running():
        project.write(range(10))
        project.until("waw", range(10))
    place = TopicPartition(project.target, 0)
    group = "headrace.dispatcher.dispatch.waw"
    assert group_offsets(project.configs["waw"], group, [place]) == {place: 0}
    project.write(range(10, 15))
    delete_first(project, 8)
    project.once()
    assert project.numbers("waw") == list(range(15))


def test_a_record_that_is_missing_among_others_is_sent_by_the_next_start(project):
    """As after a record that the target has rejected, with others in flight behind it."""
    project.once()
    project.write(range(6))
    sender = connected_producer(project.configs["waw"])
    for n in (0, 1, 3, 5):
        origin = ("headrace-origin", f"central/{project.name}/0/{n}".encode())
        sender.produce(project.target, json.dumps({"n": n}).encode(), None, 0, headers=[origin])
    assert sender.flush(FLUSH_SECONDS) == 0
    project.once()
    assert project.numbers("waw") == [0, 1, 3, 5, 2, 4]


def test_a_target_topic_that_is_made_again_is_filled_again(project):
    project.write(range(5))
    with project.running():
        project.until("waw", range(5))
        delete_topic(project.configs["waw"], project.target)
        make_topic(project.configs["waw"], project.target, 2)
        project.until("waw", range(5))
    assert project.numbers("waw") == list(range(5))
