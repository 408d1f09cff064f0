"""Three brokers in two racks: where the copies of a partition are."""

import pytest
from tests.kafka_topics import make_topic

from headrace.kafka.embedded import cluster as embedded
from headrace.operations.planning.plan import make_plan
from headrace.project.check import load_project
from headrace.settings import load_settings

RACKS = {1: "a", 2: "b", 3: "b"}


@pytest.fixture(scope="module")
def three(start_cluster):
    plain = embedded.broker_config

    def in_rack(broker, layout, data):
        return plain(broker, layout, data) | {"broker.rack": RACKS[broker.node]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "broker_config", in_rack)
        yield start_cluster(brokers=3)


def test_a_plan_warns_of_one_copy_and_of_copies_that_are_all_in_one_rack(three, tmp_path):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "racks"\nmodules = ["flow"]\n'
        f'[kafka]\nbootstrap_servers = "{three.bootstrap_servers}"\n'
    )
    (tmp_path / "flow.py").write_text(
        "from headrace import Topic\n"
        'once = Topic("once")\n'
        'twice = Topic("twice", partitions=2, replication=2)\n'
    )
    client = {"bootstrap.servers": three.bootstrap_servers}
    make_topic(client, "twice", 2, replica_assignment=[[1, 2], [2, 3]])
    warnings = make_plan(load_project(load_settings(tmp_path, environ={}))).warnings
    one, equal, rack = (warning.message for warning in warnings)
    assert "'once': replication is 1 (the default) on 3 brokers" in one
    assert "'twice': min.insync.replicas equals replication 2" in equal
    assert "'twice': all copies of 1 of 2 partition(s) (1) are in rack 'b'" in rack
