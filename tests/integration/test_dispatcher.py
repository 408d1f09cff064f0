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
from tests.integration.dispatcher_project import BEGAN_MS, DispatcherProject
from tests.kafka_topics import grow_topic, make_topic

from headrace import DispatchMode
from headrace.kafka.client import admin_request, producer
from headrace.kafka.topics import delete_topic

RELATED = {"central": ["waw"], "par": ["waw"], "waw": ["par"]}


@pytest.fixture(scope="module")
def servers(broker, start_cluster):
    other = start_cluster().bootstrap_servers
    return {"central": broker.bootstrap_servers, "waw": other, "par": other}


@pytest.fixture
def project(tmp_path, servers, topic):
    """A dispatcher to one site, in real-time mode."""
    name = topic("clicks")
    made = DispatcherProject(tmp_path, servers, name, targets={"waw": f"{name}.events"})
    made.make_topics()
    return made


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
    with project.running(end=signal.SIGKILL):
        project.write(range(50))
        project.until("waw", range(50))
    project.write(range(50, 60))
    with project.running():
        project.until("waw", range(60))
        project.write(range(60, 70))
        project.until("waw", range(70))
    assert project.numbers("waw") == list(range(70))


def test_a_site_that_is_away_holds_up_nobody_else(tmp_path, servers, topic, start_cluster):
    folder = tmp_path / "par"
    par = start_cluster(folder=folder)
    places = servers | {"par": par.bootstrap_servers}
    project = DispatcherProject(tmp_path / "project", places, topic("clicks"))
    project.make_topics()
    project.write(range(5))
    with project.running(end=signal.SIGINT):
        for site in ("waw", "par"):
            project.until(site, range(5))
        par.cluster.stop()
        project.write(range(5, 10))
        project.until("waw", range(10))
        project.until_state("par", "waiting")
        project.write(range(10, 15))
        project.until("waw", range(15))
        ports = tuple(int(server.rpartition(":")[2]) for server in par.bootstrap_servers.split(","))
        start_cluster(folder=folder, ports=ports)
        project.until_state("par", "running")
        project.write(range(15, 20))
        project.until("waw", range(20))
        project.until("par", range(20))


def test_what_came_in_at_a_site_is_not_sent_back_there(tmp_path, servers, topic):
    project = DispatcherProject(tmp_path, servers, topic("clicks"), related=RELATED)
    project.options["targets"] = {"waw": project.target, "par": f"{project.target}.par"}
    project = DispatcherProject(tmp_path, servers, project.name, **project.options)
    make_topic(project.configs["par"], f"{project.target}.par", 2)
    make_topic(project.configs["central"], project.name, 2)
    make_topic(project.configs["waw"], project.target, 2)
    project.write([1])
    project.write([2], headers=[("headrace-origin", b"waw/clicks/0/1")])
    project.write([3], headers=[("headrace-origin", b"par/clicks/0/1")])
    project.once()
    at_par = project.records("par", topic=f"{project.target}.par")
    assert project.numbers("waw") == [1, 3]
    assert [json.loads(value)["n"] for _, value, _ in at_par] == [2]


@pytest.mark.parametrize("mode", [DispatchMode.REAL_TIME, DispatchMode.MICRO_BATCH])
def test_committed_records_alone_are_sent(tmp_path, servers, topic, mode):
    """Markers of transactions, and records of those that were given up, are among the offsets."""
    name = topic("clicks")
    project = DispatcherProject(
        tmp_path,
        servers,
        name,
        targets={"waw": f"{name}.events"},
        mode=mode,
        commit_every=timedelta(seconds=5),
    )
    project.make_topics()
    writer = confluent_kafka.Producer(
        project.configs["central"] | {"transactional.id": topic("writer")}
    )
    writer.init_transactions(30)

    def write(number, *, is_kept=True):
        writer.begin_transaction()
        writer.produce(name, json.dumps({"n": number}).encode(), partition=0)
        assert writer.flush(30) == 0
        writer.commit_transaction(30) if is_kept else writer.abort_transaction(30)

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
    assert "2 offsets are gone, 5 to 6" in " ".join(listed.split())
    with project.running():
        project.write([5], partition=1)
        project.until("waw", range(6), partition=1)
        [status] = [one for one in project.statuses() if one["state"] == "running"]
        assert status["refused"].keys() == {f"waw/{project.name}/0"}
        assert project.numbers("waw") == list(range(5))
        project.command("dispatcher", "accept", "dispatch", "waw", f"{project.name}/0")
        project.until("waw", [0, 1, 2, 3, 4, 7, 8])
    project.command("dispatcher", "accept", "dispatch", "waw", f"{project.name}/0", exit_code=3)


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


def test_a_partition_that_is_added_is_dispatched(project):
    with project.running():
        project.write(range(3))
        project.until("waw", range(3))
        for site, name in (("waw", project.target), ("central", project.name)):
            grow_topic(project.configs[site], name, 3)
        project.write([7], partition=2)
        project.until("waw", [7], partition=2)
    assert project.numbers("waw") == [0, 1, 2]


def test_a_target_without_the_topic_is_refused_by_name(tmp_path, servers, topic):
    name = topic("clicks")
    project = DispatcherProject(tmp_path, servers, name, targets={"waw": f"{name}.events"})
    make_topic(project.configs["central"], name, 2)
    project.write([1])
    refused = project.once(exit_code=3)
    assert "does not exist, or does not have the partition" in refused
    assert f"{name}.events/0" in refused
    make_topic(project.configs["waw"], project.target, 2)
    project.once()
    assert project.numbers("waw") == [1]


def test_a_record_that_is_too_large_for_the_target_is_named_and_not_lost(tmp_path, servers, topic):
    name = topic("clicks")
    project = DispatcherProject(tmp_path, servers, name, targets={"waw": f"{name}.events"})
    make_topic(project.configs["central"], name, 2)
    make_topic(project.configs["waw"], project.target, 2, config={"max.message.bytes": "20000"})
    project.write([1])
    project.write([2], payload="".join(f"{n:x}" for n in range(20_000)))
    project.write([3])
    assert "The topic of a target does not take a record" in project.once(exit_code=3)
    # Records behind it may have been on their way already; they are not sent again.
    assert set(project.numbers("waw")) <= {1, 3}
    make_larger(project)
    project.once()
    assert sorted(project.numbers("waw")) == [1, 2, 3]


def make_larger(project):
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, project.target, incremental_configs=[entry]
    )
    admin_request(
        project.configs["waw"],
        lambda client: client.incremental_alter_configs([resource])[resource].result(),
    )


def test_a_second_instance_is_refused(project, tmp_path):
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


def test_records_that_retention_took_once_they_were_sent_are_no_loss(project):
    with project.running(end=signal.SIGKILL):
        project.write(range(10))
        project.until("waw", range(10))
    project.write(range(10, 15))
    delete_first(project, 8)
    project.once()
    assert project.numbers("waw") == list(range(15))


def test_a_record_that_is_missing_among_others_is_sent_by_the_next_start(project):
    """As after a record that the target has rejected, with others in flight behind it."""
    project.once()
    project.write(range(6))
    sender = producer(project.configs["waw"])
    for n in (0, 1, 3, 5):
        origin = ("headrace-origin", f"central/{project.name}/0/{n}".encode())
        sender.produce(project.target, json.dumps({"n": n}).encode(), None, 0, headers=[origin])
    assert sender.flush(30) == 0
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
