"""Several processes on one spool: one order, one loader, and none is stopped by a killed one."""

import contextlib
import json
import multiprocessing
import os
import signal
import time

import pytest
from tests.unit.ingest.spool.kafka import taking
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.ingest.spool.loader import Loader
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits

LIMITS = SpoolLimits(segment_bytes=20_000)
SPAWN = multiprocessing.get_context("spawn")
APPENDERS = 3


def note(path, texts):
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(texts).encode() + b"\n")


def noted(path):
    """What is in whole lines: the last may be half written."""
    whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    lines = whole.splitlines()
    return [text for line in lines for text in json.loads(line)]


def send_events(folder, name):
    """A worker: behind pending records, else straight to Kafka, which is away half of the time."""
    spool, acked = Spool(folder, LIMITS), folder.parent / f"{name}.acked"
    number = 0
    while not (folder.parent / "stop").exists():  # an Event is held by whoever is killed in it
        texts = [f"{name}.{number + n}" for n in range(3)]
        number += len(texts)
        records = [SpoolRecord("t", None, text.encode(), (), 0, None) for text in texts]
        if not spool.append_if_pending(records):
            if number % 30 < 15:
                spool.append(records)
            else:
                note(folder.parent / "kafka", texts)
        note(acked, texts)


def load(folder):
    loader = Loader(
        Spool(folder, LIMITS),
        taking(
            lambda records: note(folder.parent / "kafka", [one.value.decode() for one in records])
        ),
    )
    while not (folder.parent / "stop").exists():
        loader.run_once()
        time.sleep(0.005)


@pytest.fixture
def start():
    started = []

    def starting(target, *arguments):
        process = SPAWN.Process(target=target, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return process

    yield starting
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join()


def test_order_holds_over_the_switch_while_workers_and_loaders_are_killed(folder, start):
    place = folder.parent
    workers = [start(send_events, folder, f"w{n}") for n in range(APPENDERS)]
    loaders = [start(load, folder) for _ in range(2)]
    for loader, worker in zip(loaders[:2], workers[:2], strict=True):
        before = len(noted(place / "kafka"))
        wait_for(lambda before=before: len(noted(place / "kafka")) > before + 150)
        os.kill(worker.pid, signal.SIGKILL)
        os.kill(loader.pid, signal.SIGKILL)
        loaders.append(start(load, folder))
    wait_for(lambda: len(noted(place / "w2.acked")) > 300)
    (place / "stop").touch()
    for process in (*workers, *loaders):
        process.join()
    last = Loader(
        Spool(folder, LIMITS),
        taking(lambda records: note(place / "kafka", [one.value.decode() for one in records])),
    )
    last.run_once()
    arrived = list(dict.fromkeys(noted(place / "kafka")))
    for name in ("w0", "w1", "w2"):
        acked = noted(place / f"{name}.acked")
        of_worker = [text for text in arrived if text.startswith(f"{name}.")]
        assert of_worker[: len(acked)] == acked
        assert len(of_worker) - len(acked) in (0, 3)
    assert list((folder / "quarantine").iterdir()) == []


def hold(folder, held):
    spool = Spool(folder, LIMITS)
    with spool.store.exclusive():
        held.set()
        time.sleep(600)


def test_a_worker_killed_with_the_lock_stops_nobody(folder, start, record, open_spool):
    held = SPAWN.Event()
    holder = start(hold, folder, held)
    assert held.wait(LIMIT_SECONDS)
    os.kill(holder.pid, signal.SIGKILL)
    spool = open_spool()
    spool.append([record(1)])
    assert spool.waiting == 1
