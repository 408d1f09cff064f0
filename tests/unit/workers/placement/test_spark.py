"""What the driver shows of instances on Spark, without Spark and without a broker."""

from __future__ import annotations

import urllib.request
from dataclasses import replace

import pytest

from headrace import Topic, Worker, WorkerTask
from headrace.errors import BrokerUnreachableError
from headrace.kafka.group.groups import ConsumerGroup
from headrace.kafka.group.subscription import Membership
from headrace.runtime.prometheus import serving
from headrace.service.status import State, StatusFolder
from headrace.settings import Settings, load_settings
from headrace.workers.placement import spark as workers_on_spark
from headrace.workers.placement.distributed_run import DistributedRun
from headrace.workers.placement.spark import _Overview
from headrace.workers.run import PartitionStanding, WorkerStanding
from headrace.workers.status import WorkerStatus

WORKER = Worker("enrich", Topic("clicks", partitions=2), WorkerTask)
INSTANCE = WorkerStatus(
    "enrich",
    State.RUNNING,
    instance="enrich-0",
    processed=12,
    lag_records=3,
    paused_partitions={"clicks/0": ("requested", "lane")},
)
STANDING = WorkerStanding(
    "enrich",
    ("clicks",),
    "at least once",
    ConsumerGroup("stable", ()),
    2000,
    9.5,
    tuple(PartitionStanding(f"clicks/{n}", 0, 0, 1000, paused=True) for n in range(2)),
    (),
)


class Told:
    """A follower of what two instances have told."""

    def __init__(self, *_: object) -> None:
        self.excused = False

    def seen(self):
        return [INSTANCE, replace(INSTANCE, instance="enrich-1", processed=30)]

    def reset_liveness_timeout(self) -> None:
        self.excused = True

    def close(self) -> None:
        """Nothing follows."""


@pytest.fixture
def settings(tmp_path) -> Settings:
    (tmp_path / "headrace.toml").write_text('[project]\nname = "ads"\nmodules = ["flow"]\n')
    return load_settings(tmp_path, {})


@pytest.fixture
def overview(settings, monkeypatch):
    """Shows to ``overview.observed`` and, over HTTP, at ``overview.port``."""
    monkeypatch.setattr(workers_on_spark, "ProgressFollower", Told)
    run = DistributedRun(WORKER, {}, Membership("headrace.enrich"), "run")
    observed = []
    with serving("127.0.0.1", 0) as server:
        overview = _Overview(settings, run, observed.append, server)
        overview.observed, overview.port = observed, server.port
        yield overview


def test_all_instances_are_shown_as_one_and_each_in_status_and_metrics(
    settings, overview, monkeypatch
):
    monkeypatch.setattr(workers_on_spark, "standings", lambda *_: [STANDING])
    overview.show("2 of 2 on Spark", State.RUNNING)
    [whole] = overview.observed
    assert (whole.instance, whole.state, whole.processed) == ("2 of 2 on Spark", "running", 42)
    assert (whole.partitions, whole.lag_records, whole.lag_seconds) == (2, 2000, 9.5)
    assert whole.paused_partitions == {
        "clicks/0": ("lane", "requested"),
        "clicks/1": ("requested",),
    }
    shown = {
        one.instance: one.processed for one in StatusFolder(settings.state, WorkerStatus).read()
    }
    assert shown == {"enrich-0": 12, "enrich-1": 30}
    with urllib.request.urlopen(f"http://127.0.0.1:{overview.port}/metrics") as answer:
        text = answer.read().decode()
    for name, processed in shown.items():
        who = f'{{worker="enrich",instance="{name}"}}'
        assert f"headrace_worker_processed_total{who} {processed}\n" in text


def test_what_kafka_knows_is_not_asked_at_each_look(overview, monkeypatch):
    asked = []
    monkeypatch.setattr(workers_on_spark, "standings", lambda *_: asked.append(1) or [STANDING])
    for _ in range(3):
        overview.show("2 of 2 on Spark", State.RUNNING)
    assert len(asked) == 1
    assert {one.lag_records for one in overview.observed} == {2000}


def test_while_kafka_is_away_nobody_is_taken_for_lost(overview, monkeypatch):
    def away(*_: object):
        raise BrokerUnreachableError("127.0.0.1:9", "no answer")

    monkeypatch.setattr(workers_on_spark, "standings", away)
    overview.show("2 of 2 on Spark", State.RUNNING)
    [whole] = overview.observed
    assert (whole.processed, whole.lag_records) == (42, 6)
    assert "does not respond" in whole.reason
    assert overview._follower.excused


def test_a_run_that_failed_says_why_at_its_end(overview, monkeypatch):
    monkeypatch.setattr(workers_on_spark, "standings", lambda *_: [STANDING])
    overview.show("0 of 2 on Spark", State.FAILED, "enrich-0: no such campaign")
    [whole] = overview.observed
    assert (whole.state, whole.reason) == (State.FAILED, "enrich-0: no such campaign")
