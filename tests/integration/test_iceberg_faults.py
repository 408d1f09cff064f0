"""What the comparison of Iceberg sinks under faults counts and holds up, in a real catalog."""

import os
import socket
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from bench.iceberg_faults.answers import LosingProxy
from bench.iceberg_faults.catalog import NAME, NAMESPACE, Catalog, Tally, python_uri, tally
from bench.iceberg_faults.processes import Member
from bench.iceberg_faults.system import System
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError
from tests.waiting import wait_for


@pytest.fixture
def catalog(postgres, tmp_path):
    with closing(Catalog(postgres, tmp_path / "warehouse")) as catalog:
        yield catalog


@pytest.fixture
def table(catalog):
    name = f"t{uuid.uuid4().hex[:8]}"
    with opened(catalog) as own:
        own.create_table((NAMESPACE, name), pa.schema([("event_id", pa.string())]))
    return name


def opened(catalog, port=None):
    url = catalog.url.replace(f":{catalog.port}/", f":{port or catalog.port}/")
    return SqlCatalog(NAME, uri=python_uri(url), warehouse=catalog.warehouse)


def append(catalog, name, *ids, port=None):
    with opened(catalog, port) as own:
        own.load_table((NAMESPACE, name)).append(pa.table({"event_id": ids}))


def test_rows_are_counted(catalog, table):
    assert catalog.count(table) == 0
    append(catalog, table, "a", "b")
    append(catalog, table, "b")
    assert catalog.count(table) == 3
    assert tally(["a", "b", "c"], catalog.ids(table)) == Tally(rows=3, lost=1, doubled=1)


def test_a_commit_that_is_dropped_never_happens(catalog, table):
    with ThreadPoolExecutor(1) as pool, catalog.commits_held(table) as held:
        appended = pool.submit(append, catalog, table, "a")
        backend, _ = wait_for(held.waiting)
        held.drop(backend)
        assert isinstance(appended.exception(), OperationalError)
    assert catalog.ids(table) == []


def test_a_commit_that_is_released_has_happened(catalog, table):
    with ThreadPoolExecutor(1) as pool, catalog.commits_held(table) as held:
        appended = pool.submit(append, catalog, table, "a")
        wait_for(held.waiting)
        held.release()
        assert catalog.ids(table) == ["a"]
        appended.result()


def test_a_commit_whose_answer_is_lost_has_happened(catalog, table):
    with LosingProxy(catalog.port) as proxy:
        proxy.lose_next()
        with pytest.raises(OperationalError):
            append(catalog, table, "a", port=proxy.port)
        assert (proxy.lost, catalog.ids(table)) == (1, ["a"])
        append(catalog, table, "b", port=proxy.port)
    assert (proxy.lost, sorted(catalog.ids(table))) == (1, ["a", "b"])


def test_a_process_is_known_by_the_port_of_its_connection(tmp_path):
    program = "import socket; s = socket.create_connection(('127.0.0.1', {})); s.recv(1)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [sys.executable, "-c", program.format(port)]
        members = [Member(name, command, tmp_path / name, tmp_path) for name in "ab"]
        try:
            for member in members:
                member.start()
                connection, (_, own_port) = server.accept()
                with connection:
                    owners = [member for member in members if member.has_connection(own_port, port)]
                assert owners == [member]
        finally:
            for member in members:
                member.kill()


class Sleepers(System):
    """Processes that do not end by SIGTERM; each interrupts the test when it gets one."""

    join = leave = has_joined = take_over = lose = start = tend = None
    group = "none"
    members = ()


def sleepers(tmp_path, count):
    program = (
        "import os, signal, time;"
        f"signal.signal(signal.SIGTERM, lambda *_: os.kill({os.getpid()}, signal.SIGINT));"
        "print('ready', flush=True); time.sleep(3600)"
    )
    system = Sleepers(None)
    system.members = [
        Member(name, [sys.executable, "-c", program], tmp_path / name, tmp_path)
        for name in map(str, range(count))
    ]
    for member in system.members:
        member.start()
        wait_for(member.log.read_text)
    return system


def test_a_frozen_process_is_ended_without_a_wait(tmp_path):
    system = sleepers(tmp_path, 1)
    [member] = system.members
    [pid] = member.pids()
    member.freeze()
    system.stop()
    assert not Path(f"/proc/{pid}").exists()


def test_an_interruption_of_the_end_leaves_no_process(tmp_path):
    system = sleepers(tmp_path, 2)
    pids = [pid for member in system.members for pid in member.pids()]
    with pytest.raises(KeyboardInterrupt):
        system.stop()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
