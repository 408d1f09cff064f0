import pytest
from tests.unit.ingest.spool.kafka import taking

from headrace.ingest.spool.loader import Loader
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def record():
    def made(text):
        return SpoolRecord("events", b"key", str(text).encode(), (("h", b"v"),), 5, None)

    return made


@pytest.fixture
def texts():
    def of(records):
        return [one.value.decode() for one in records]

    return of


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def open_spool(folder, clock):
    opened = []

    def opening(**limits):
        opened.append(Spool(folder, SpoolLimits(**limits), clock))
        return opened[-1]

    yield opening
    for spool in opened:
        spool.close()


@pytest.fixture
def drain(open_spool, texts):
    """Loads everything with a loader of its own; the texts it sent and its report."""

    def draining():
        sent = []
        loader = Loader(open_spool(), taking(sent.extend))
        report = loader.run_once()
        loader.close()
        return texts(sent), report

    return draining
