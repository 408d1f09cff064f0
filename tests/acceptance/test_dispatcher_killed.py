"""A dispatcher is killed while records come in; what a target wants is there once, in order."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest
from tests.integration.dispatcher_project import PARTITIONS, DispatcherProject

from headrace import Home
from headrace.kafka.client import producer

HOMES = ("waw", "par", None)
WAIT_SECONDS = 300
pytestmark = pytest.mark.drill


class Traffic:
    """Numbered events in turn into all partitions, of users at home at one site or another."""

    def __init__(self, project, random, count):
        self._sender = producer(project.configs["central"])
        self._topic, self._count = project.name, count
        self.homes = [random.choice(HOMES) for _ in range(count)]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()

    @property
    def is_sending(self):
        return self._thread.is_alive()

    def _run(self):
        for number, home in enumerate(self.homes):
            value = json.dumps({"n": number, "home": home}).encode()
            self._sender.produce(self._topic, value, partition=number % PARTITIONS)
            if number % 20 == 0:
                self._sender.poll(0)
                time.sleep(0.01)
        assert self._sender.flush(60) == 0

    def wanted_at(self, site, partition):
        return [
            number
            for number in range(partition, self._count, PARTITIONS)
            if self.homes[number] in {site, None}
        ]


@pytest.fixture
def project(tmp_path, broker, start_cluster, topic):
    servers = {
        "central": broker.bootstrap_servers,
        "waw": start_cluster().bootstrap_servers,
        "par": broker.bootstrap_servers,
    }
    made = DispatcherProject(tmp_path, servers, topic("clicks"), home=Home("home"))
    made.make_topics()
    return made


def test_kills_leave_every_record_once_and_in_order_at_its_sites(project, drill_run):
    records = drill_run.size(short=30_000, long=200_000)
    kills = drill_run.size(short=2, long=10)
    with Traffic(project, drill_run.random, records) as traffic:
        for _ in range(kills):
            before = len(project.records("waw"))
            with project.running(end=signal.SIGKILL):
                deadline = time.monotonic() + WAIT_SECONDS
                while len(project.records("waw")) == before and traffic.is_sending:
                    assert time.monotonic() < deadline
                time.sleep(drill_run.random.uniform(0, 3))
    project.once()
    for site in ("waw", "par"):
        for partition in range(PARTITIONS):
            project.until(site, traffic.wanted_at(site, partition), partition)
    drill_run.report(records=records, kills=kills)
