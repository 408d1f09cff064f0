"""What the embedded cluster decides before it starts anything."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from headrace.errors import ServerStartError
from headrace.kafka.embedded.cluster import EmbeddedCluster, cluster_status, stop_cluster
from headrace.kafka.embedded.layout import Broker, Layout, broker_config, properties, settled_layout
from headrace.runtime.java.installation import Java
from headrace.runtime.servers.ports import free_ports
from headrace.settings.model import EmbeddedKafka

NO_JAVA = Java(Path("/nonexistent"), 17, bundled=False)


def cluster(folder: Path, **settings) -> EmbeddedCluster:
    return EmbeddedCluster(folder, EmbeddedKafka(**settings), NO_JAVA, [])


def layout(brokers: int) -> Layout:
    return Layout("id", tuple(Broker(n, 20_000 + n, 21_000 + n) for n in range(1, brokers + 1)))


def try_start(folder: Path, **settings) -> None:
    """Fails for want of a Java, once the ports are chosen."""
    with pytest.raises(ServerStartError, match="nonexistent"):
        cluster(folder, **settings).start()


def test_a_folder_without_a_cluster_has_nothing_to_show_or_stop(tmp_path):
    stop_cluster(tmp_path)
    status = cluster_status(tmp_path)
    assert (status.bootstrap_servers, status.brokers, status.running) == ("", (), False)
    assert list(tmp_path.iterdir()) == []


def test_ports_are_chosen_once_for_a_folder(tmp_path):
    try_start(tmp_path)
    first = cluster_status(tmp_path)
    try_start(tmp_path)
    assert cluster_status(tmp_path) == first
    assert first.bootstrap_servers == f"127.0.0.1:{first.brokers[0].port}"


@pytest.mark.parametrize("text", ["", '{"cluster_id": "h', "[]", '{"cluster_id": "h"}', "\xff"])
def test_a_damaged_layout_is_refused_by_name_and_left_alone(tmp_path, text):
    file = tmp_path / "kafka" / "cluster.json"
    file.parent.mkdir()
    file.write_bytes(text.encode("latin-1"))
    for action in (cluster(tmp_path).start, lambda: cluster_status(tmp_path)):
        with pytest.raises(ServerStartError, match=r"cluster\.json is damaged"):
            action()
    assert file.read_bytes() == text.encode("latin-1")


def test_an_id_is_never_taken_for_an_option(tmp_path, monkeypatch):
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=2**128 - 2**123))
    layout = settled_layout(tmp_path, EmbeddedKafka())
    assert not layout.cluster_id.startswith("-")


def test_configured_ports_win_over_chosen_ones(tmp_path):
    try_start(tmp_path, brokers=2)
    one, other = free_ports(2)
    try_start(tmp_path, brokers=2, ports=(one, other))
    assert cluster_status(tmp_path).bootstrap_servers == f"127.0.0.1:{one},127.0.0.1:{other}"


def test_the_number_of_brokers_of_a_folder_does_not_change(tmp_path):
    try_start(tmp_path, brokers=1)
    with pytest.raises(ServerStartError, match=r"made with 1 broker.*set brokers = 1"):
        cluster(tmp_path, brokers=3).start()


@pytest.mark.parametrize("brokers", [0, 4])
def test_there_are_one_to_three_brokers(tmp_path, brokers):
    with pytest.raises(ServerStartError, match="1 to 3 brokers"):
        cluster(tmp_path, brokers=brokers).start()


def test_each_broker_needs_a_port_of_its_own(tmp_path):
    with pytest.raises(ServerStartError, match=r"1 port\(s\) are set for 3 broker"):
        cluster(tmp_path, brokers=3, ports=(29_999,)).start()


@pytest.mark.parametrize(
    ("brokers", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")]
)
def test_offsets_and_transactions_are_kept_as_safely_as_the_brokers_allow(brokers, copies, in_sync):
    whole = layout(brokers)
    config = broker_config(whole.brokers[0], whole, Path("/data"))
    assert config["offsets.topic.replication.factor"] == copies
    assert config["transaction.state.log.replication.factor"] == copies
    assert config["transaction.state.log.min.isr"] == in_sync
    assert config["min.insync.replicas"] == in_sync


def test_every_listener_is_on_loopback_and_no_topic_is_created_unasked():
    whole = layout(3)
    config = broker_config(whole.brokers[1], whole, Path("/data"))
    assert config["listeners"] == "PLAINTEXT://127.0.0.1:20002,CONTROLLER://127.0.0.1:21002"
    assert config["controller.quorum.voters"].count("@127.0.0.1:") == 3
    assert config["auto.create.topics.enable"] == "false"


def test_settings_reach_java_whatever_is_in_them():
    text = properties({"log.dirs": "/d\u00e9mo \\ \U0001f600", "jaas": 'a="b"\nc'})
    assert text == 'log.dirs=/d\\u00e9mo \\\\ \\ud83d\\ude00\njaas=a=\\"b\\"\\nc\n'
