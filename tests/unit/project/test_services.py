from __future__ import annotations

import os

import pytest

from headrace.errors import BrokerUnreachableError, ExtraMissingError, ServerStartError
from headrace.project import services
from headrace.runtime import extras
from headrace.service.reservation import only_service
from headrace.settings import IngestSettings, KafkaSettings, Settings


def settings(tmp_path, lake="/lake", **changes) -> Settings:
    return Settings(tmp_path, "ads", ("flow",), lake, **changes)


def test_a_cluster_of_ones_own_is_taken_as_it_is_and_never_started(tmp_path):
    own = settings(tmp_path, kafka=KafkaSettings("b:1"))
    found = services.up(own, {}, lambda *_: None)
    assert found.clusters == (services.ClusterAddress("central", "b:1", embedded=False),)
    assert found.servers == ()
    assert services.bootstrap_servers(own) == "b:1"


def test_what_was_never_started_has_no_address(tmp_path):
    [cluster] = services.status(settings(tmp_path)).clusters
    assert cluster == services.ClusterAddress("central", "", embedded=True)
    with pytest.raises(BrokerUnreachableError, match="headrace up"):
        services.bootstrap_servers(settings(tmp_path))


def test_a_lake_on_an_hdfs_that_is_down_is_an_error(tmp_path):
    with pytest.raises(ServerStartError, match="headrace up"):
        services.lake_uri(settings(tmp_path, "embedded-hdfs", embedded_hdfs=True))
    assert services.lake_uri(settings(tmp_path)) == "/lake"


def test_stopping_what_never_ran_is_harmless(tmp_path):
    assert services.down(settings(tmp_path)).servers == ()


def test_a_service_that_was_started_by_hand_is_shown_where_it_answers_and_stays_up(tmp_path):
    declared = settings(tmp_path, ingest=IngestSettings())
    [server] = services.status(declared).servers
    assert (server.address, server.pid) == ("http://127.0.0.1:8080", None)
    with only_service(declared.state / services.INGEST_FOLDER, "http://0.0.0.0:9000"):
        for project in (declared, settings(tmp_path)):
            [server] = services.down(project).servers
            assert (server.address, server.pid) == ("http://0.0.0.0:9000", os.getpid())


def test_a_lake_on_s3_names_its_extra_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(extras, "MODULES", {"s3": ("obstore_2",)})
    with pytest.raises(ExtraMissingError, match=r"headrace\[s3\]"):
        services.lake_uri(settings(tmp_path, "s3://bucket/lake"))


def test_clusters_of_other_sites_are_shown_by_their_sites(tmp_path):
    sites = {"warsaw": KafkaSettings("w:1"), "london": KafkaSettings()}
    found = services.status(settings(tmp_path, sites=sites)).to_json()
    assert {site: cluster.to_json() for site, cluster in found["sites"].items()} == {
        "warsaw": {"bootstrap_servers": "w:1", "embedded": False},
        "london": {"bootstrap_servers": "", "embedded": True},
    }
