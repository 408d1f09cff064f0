"""What ingest promises, while what it stands on is killed, frozen and gone.

A 202 is an obligation, a 4xx a ban, anything else unknown: the client sends again, same ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from tests.integration.service import Service, bearer
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.runtime.process_tree import Process, processes
from headrace.settings import Rate

BATCH = 10
EVENTS_AT_ONCE = 5


@dataclass
class Client:
    """Sends batches one after the other, each until it is answered with 202; one bad event in each.

    Attributes:
        accepted: ids that were, in the order of their answers.
        attempted: ids that may be in the topic.
        rejected: ids that must not.
        topic: where to.
        pause: seconds after each batch.
        again: send again what was not accepted.
        spooled: requests that were answered from the spool.
        unknown: answers other than 202, and connections that broke.
    """

    service: Service
    token: str
    name: str
    topic: str = "occurrences"
    again: bool = True
    pause: float = 0.0
    spooled: int = 0
    accepted: list[str] = field(default_factory=list)
    attempted: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    unknown: int = 0

    def run(self, ended: threading.Event) -> None:
        with httpx.Client(headers=bearer(self.token), timeout=30) as client:
            for number in range(1_000_000):
                if ended.is_set():
                    return
                self._send(client, number, ended)
                time.sleep(self.pause)

    def _send(self, client: httpx.Client, number: int, ended: threading.Event) -> None:
        ids = [f"{self.name}-{number}-{place}" for place in range(BATCH)]
        now = datetime.now(UTC).isoformat()
        events = [{"event_id": one, "at": now, "message": "m", "n": 1} for one in ids]
        events[3]["n"] = "bad"
        self.rejected.add(ids.pop(3))
        self.attempted.update(ids)
        while not ended.is_set():
            if self._is_accepted(client, events):
                self.accepted += ids
                return
            self.unknown += 1
            if not self.again:
                return

    def _is_accepted(self, client: httpx.Client, events: list[dict]) -> bool:
        url = f"{self.service.url}/v1/topics/{self.topic}{self.service.suffix}/events"
        try:
            answer = client.post(url, json=events)
        except httpx.TransportError:
            time.sleep(0.05)
            return False
        if answer.status_code == 503:
            if answer.json()["code"] == "overloaded":
                self._not_taken(events)
            return False
        assert answer.status_code == 202, answer.text
        self.spooled += answer.headers.get("headrace-spooled") == "true"
        assert (answer.json()["accepted"], len(answer.json()["rejected"])) == (BATCH - 1, 1)
        return True

    def _not_taken(self, events: list[dict]) -> None:
        """An earlier try may have been."""
        if not self.again:
            self.attempted -= {event["event_id"] for event in events}
        time.sleep(0.05)


def drill(clients: list[Client], faults: Callable[[], None]) -> None:
    """The clients send while the faults happen."""
    ended = threading.Event()
    threads = [threading.Thread(target=one.run, args=(ended,)) for one in clients]
    for one in threads:
        one.start()
    try:
        faults()
    finally:
        ended.set()
        for one in threads:
            one.join()


def first_occurrences(ids: list[str], name: str) -> list[str]:
    return list(dict.fromkeys(one for one in ids if one.rsplit("-", 2)[0] == name))


def check(service: Service, clients: list[Client]) -> list[str]:
    """Nothing accepted is lost, nothing invented, nothing rejected is there, order is kept."""
    there = service.ids(clients[0].topic)
    found = set(there)
    for one in clients:
        assert set(one.accepted) <= found
        assert not one.rejected & found
        kept = set(one.accepted)
        order = [event for event in first_occurrences(there, one.name) if event in kept]
        assert order == one.accepted
    attempted = set().union(*(one.attempted for one in clients))
    assert found <= attempted
    return there


def _workers(main: subprocess.Popen) -> list[Process]:
    children = [one for one in processes().values() if one.parent == main.pid]
    return [one for one in children if b"spawn_main" in _command_line(one.pid)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _memory_mb(main: subprocess.Popen) -> float:
    return sum(one.rss_mb for one in _workers(main))


def _service(folder, bootstrap: str, settings: str = "") -> Service:
    found = Service(folder, bootstrap, f"-{uuid.uuid4().hex[:6]}", settings)
    found.command("apply")
    return found


@pytest.mark.drill(always=True)
def test_workers_killed_and_then_drained_lose_nothing(tmp_path, broker, drill_run):
    kills = drill_run.size(short=2, long=20)
    service = _service(tmp_path, broker.bootstrap_servers)
    with service.running() as main:
        token = service.token()
        clients = [Client(service, token, f"c{number}") for number in range(4)]

        def kill() -> None:
            for number in range(kills):
                sent = sum(len(one.accepted) for one in clients)
                wait_for(lambda: len(_workers(main)) == 2)
                os.kill(_workers(main)[number % 2].pid, signal.SIGKILL)
                wait_for(lambda: sum(len(one.accepted) for one in clients) > sent + 200)  # noqa: B023

        def kill_and_end() -> None:
            kill()
            main.send_signal(signal.SIGTERM)
            assert main.wait(LIMIT_SECONDS) == 0

        drill(clients, kill_and_end)
        assert sum(one.unknown for one in clients) > 0
    assert "were not confirmed" not in service.output.read_text()
    drill_run.report(kills=kills, events=len(check(service, clients)))


@pytest.mark.drill(always=True)
def test_a_service_that_restarts_its_server_ends_when_it_is_asked_to(tmp_path, broker):
    service = _service(tmp_path, broker.bootstrap_servers)
    with service.running() as main:

        def restarts() -> bool:
            for worker in _workers(main):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
            return "restarting the server" in service.output.read_text()

        wait_for(restarts)
        main.send_signal(signal.SIGTERM)
        assert main.wait(LIMIT_SECONDS) == 0


@pytest.fixture(scope="module")
def three(start_cluster) -> Iterator:
    found = start_cluster(brokers=3)
    yield found
    found.cluster.stop()


REPLICATED = ("partitions=4,", 'partitions=4, replication=3, config={"min.insync.replicas": "2"},')


@pytest.fixture(scope="module")
def replicated(three, tmp_path_factory) -> Service:
    """A service whose topic has three copies, two of which must be in sync."""
    folder = tmp_path_factory.mktemp("replicated")
    service = Service(folder, three.bootstrap_servers, f"-{uuid.uuid4().hex[:6]}")
    flow = folder / "flow.py"
    flow.write_text(flow.read_text().replace(*REPLICATED))
    assert "replication=3" in flow.read_text()
    service.command("apply")
    return service


@pytest.mark.drill
def test_two_of_three_brokers_frozen_repeat_and_reorder_nothing(three, replicated, drill_run):
    freezes = drill_run.size(short=1, long=4)
    with replicated.running():
        client = Client(replicated, replicated.token(), "frozen", again=False)

        def freeze() -> None:
            for _ in range(freezes):
                before = client.unknown
                for node in (1, 2):
                    three.cluster.pause(node)
                wait_for(lambda: client.unknown > before)  # noqa: B023 - called at once
                for node in (1, 2):
                    three.cluster.resume(node)
                wait_for(replicated.is_ready)
                sent = len(client.accepted)
                wait_for(lambda: len(client.accepted) > sent + 200)  # noqa: B023 - called at once

        drill([client], freeze)
    there = first_occurrences(all_ids := replicated.ids("occurrences"), "frozen")
    assert len(all_ids) == len(there)
    assert set(there) == client.attempted
    assert there == sorted(there, key=lambda one: tuple(map(int, one.split("-")[1:])))
    drill_run.report(freezes=freezes, events=len(there))


@pytest.mark.drill
@pytest.mark.usefixtures("admitted_meanwhile")
def test_an_outage_loses_nothing_in_bounded_memory(three, replicated, drill_run):
    """Without a spool it is answered with 503, with one it is not noticed."""
    seconds = drill_run.size(short=15, long=60)
    with replicated.running() as main:
        token = replicated.token()
        names = [uuid.uuid4().hex for _ in range(4)]
        plain = [Client(replicated, token, name) for name in names[:2]]
        kept = [Client(replicated, token, name, topic="kept", pause=0.03) for name in names[2:]]
        clients = [*plain, *kept]
        memory: list[float] = []

        def more_from(group: list[Client], count: int) -> None:
            before = [len(one.accepted) for one in group]
            wait_for(
                lambda: all(
                    len(one.accepted) > sent + count
                    for one, sent in zip(group, before, strict=True)
                )
            )

        def outage() -> None:
            more_from(clients, 100)
            memory.append(_memory_mb(main))
            for node in (1, 2, 3):
                three.cluster.kill(node)
            began = time.monotonic()
            wait_for(lambda: all(one.spooled for one in kept))
            more_from(kept, 300)
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            assert httpx.get(f"{replicated.url}/healthz", timeout=LIMIT_SECONDS).status_code == 200
            memory.append(_memory_mb(main))
            three.cluster.start()
            more_from(clients, 100)
            wait_for(lambda: _answered_by_kafka(kept))

        drill(clients, outage)
    assert all(one.unknown > 0 for one in plain)
    assert all(one.unknown == 0 for one in kept)
    assert memory[1] - memory[0] < 256
    check(replicated, kept)
    copies = Counter(replicated.ids("occurrences"))
    found = set(copies)
    assert max(copies.values()) <= 2  # sent again and again for a minute
    for one in plain:
        assert set(one.accepted) <= found
        assert not one.rejected & found


def _answered_by_kafka(clients: list[Client]) -> bool:
    """No answer of a second came from the spool."""
    before = [(one.spooled, len(one.accepted)) for one in clients]
    time.sleep(1)
    after = [(one.spooled, len(one.accepted)) for one in clients]
    return all(
        spooled == now_spooled and accepted < now_accepted
        for (spooled, accepted), (now_spooled, now_accepted) in zip(before, after, strict=True)
    )


@pytest.mark.drill
def test_eight_workers_admit_what_the_limit_says(admitted_meanwhile):
    assert 95 <= admitted_meanwhile.result() <= 105


@pytest.fixture(scope="module")
def admitted_meanwhile(request, tmp_path_factory, broker) -> Iterator[Future[float]]:
    """Events a second that a limit of 100 admits, in some time that another test may share.

    The bucket holds as much as comes in that time, so that nothing overflows while the machine or
    the broker stands still, and is empty in the end: what it held at first counts as time.
    """
    seconds = 60 if request.config.option.drills == "long" else 20
    service = _service(tmp_path_factory.mktemp("limited"), broker.bootstrap_servers)
    with ThreadPoolExecutor() as executor:
        yield executor.submit(_admitted_a_second, service, seconds)


def _admitted_a_second(service: Service, seconds: int) -> float:
    file = service.folder / "headrace.toml"
    settings = f"workers = 8\nlimits.burst_seconds = {seconds}"
    file.write_text(file.read_text().replace("workers = 2", settings))
    with service.running() as main:
        assert len(_workers(main)) == 8
        token = service.token(rate=Rate(events_per_second=100))
        began = time.monotonic()
        admitted = [0] * 8
        senders = [
            threading.Thread(
                target=_send_until, args=(service, token, began + seconds, admitted, place)
            )
            for place in range(8)
        ]
        for one in senders:
            one.start()
        for one in senders:
            one.join()
        return sum(admitted) / (seconds + time.monotonic() - began)


def _send_until(service: Service, token: str, end: float, admitted: list[int], place: int) -> None:
    url = f"{service.url}/v1/topics/derived{service.suffix}/events"
    with httpx.Client(headers=bearer(token), timeout=30) as client:
        while True:
            now = datetime.now(UTC).isoformat()
            events = [{"at": now, "message": uuid.uuid4().hex} for _ in range(EVENTS_AT_ONCE)]
            answer = client.post(url, json=events)
            if answer.status_code == 429:
                if time.monotonic() > end:
                    return
                time.sleep(0.02)
                continue
            admitted[place] += EVENTS_AT_ONCE
            if answer.status_code == 503:  # the broker stood still: the limit has let them through
                assert json.loads(answer.text)["code"] in {"overloaded", "unknown-outcome"}
            else:
                assert answer.status_code == 202
