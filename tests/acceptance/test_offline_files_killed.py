"""The loader of offline files is ended at any moment, and every counter is there once."""

import json
import signal
import subprocess
import threading
import time
import uuid

import psycopg
import pytest
from tests.integration.service import HEADRACE
from tests.integration.test_offline_files_topics import Flow
from tests.offline_lines import line, write
from tests.waiting import wait_for_drill

from headrace.cli.session import INTERRUPTED

LINES = 2000
pytestmark = pytest.mark.drill
BAD = {n for n in range(LINES) if n % 37 == 0}


@pytest.fixture
def flow(broker, tmp_path):
    flow = Flow(tmp_path, broker.bootstrap_servers)
    lines = [line(n, body="?") if n in BAD else line(n) for n in range(LINES)]
    for number in range(10):
        write(flow.files / f"offline.{number}", *lines[number::10])  # counters in no order
    return flow


class RotatingWriter(threading.Thread):
    """Writes until it is stopped: each line in two parts, and a new file after every 20 lines."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.lines, self.stop = folder, 0, threading.Event()

    def run(self):
        while not self.stop.wait(0.005):
            number = self.lines
            content = line(number, body="?") if number % 37 == 0 else line(number)
            with self.path(number).open("ab", buffering=0) as file:
                file.write(content[:50])
                file.write(content[50:] + b"\n")
            self.lines += 1

    def path(self, number):
        return self.folder / f"offline.{number // 20}"


def load_and_kill(command, written, drill_run):
    """Ends the loader again and again while it writes, then lets it finish."""
    kills = [signal.SIGKILL] * drill_run.size(short=3, long=12)
    moments = drill_run.random
    ends = [_ended(command, written, one, moments) for one in (signal.SIGINT, *kills)]
    assert ends[0] == INTERRUPTED
    assert ends.count(-signal.SIGKILL) > 1
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["skipped"] > 0
    assert found["holes"] == []
    drill_run.report(kills=len(kills), lines=LINES)


def _ended(command, written, number, moments):
    """Exit code of a loader that gets this signal while it writes."""
    before = written()
    loader = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while written() == before and loader.poll() is None:
        time.sleep(0.01)
    time.sleep(moments.uniform(0, 0.1))
    loader.send_signal(number)
    return loader.wait()


def test_into_topics_each_counter_is_there_once_for_readers_of_committed_records(flow, drill_run):
    load_and_kill(flow.command("--batch-size", "5"), lambda: flow.written, drill_run)
    assert sorted(flow.counters) == sorted(set(range(LINES)) - BAD)
    letters = [int(dict(one.letter.headers)["counter"] or b"") for one in flow.letters]
    assert sorted(letters) == sorted(BAD)


def test_into_tables_each_counter_is_there_once(flow, postgres, drill_run):
    url = postgres.create_database(f"kill_{uuid.uuid4().hex[:8]}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE raw_item (project_id int, body jsonb, counter bigint)")

        def counters(table):
            rows = connection.execute(f"SELECT counter FROM {table}").fetchall()
            return sorted(one for (one,) in rows)

        command = [HEADRACE, "load-offline-files", flow.files, "--postgres", url, "--json"]
        command += ["--into", "raw_item"]
        load_and_kill([*command, "--batch-size", "1"], lambda: len(counters("raw_item")), drill_run)
        assert counters("raw_item") == sorted(set(range(LINES)) - BAD)
        assert counters("headrace_dead_letters") == sorted(BAD)


def test_a_loader_that_follows_is_killed_and_each_counter_is_there_once_in_order(
    postgres, tmp_path, drill_run
):
    url = postgres.create_database(f"kill_{uuid.uuid4().hex[:8]}")
    folder = tmp_path / "offline"
    folder.mkdir()
    writer = RotatingWriter(folder)
    command = [HEADRACE, "load-offline-files", folder, "--postgres", url, "--into", "raw_item"]
    command += ["--json", "--batch-size", "5", "--follow", "--complete-after", "1s"]
    command += ["--remove-done", "--source", "host"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE raw_item (id serial, project_id int, body jsonb, counter bigint)"
        )

        def counters(table):
            query = f"SELECT counter FROM {table} ORDER BY id"
            return [counter for (counter,) in connection.execute(query)]

        def written():
            return len(counters("raw_item"))

        writer.start()
        try:
            kills = drill_run.size(short=3, long=12)
            for _ in range(kills):
                assert _ended(command, written, signal.SIGKILL, drill_run.random) == -signal.SIGKILL
        finally:
            writer.stop.set()
            writer.join()
        bad = set(range(0, writer.lines, 37))
        loader = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_for_drill(lambda: written() == writer.lines - len(bad))
        loader.send_signal(signal.SIGTERM)
        assert loader.wait() == 0
        assert counters("raw_item") == sorted(set(range(writer.lines)) - bad)
        assert counters("headrace_dead_letters") == sorted(bad)
    assert list(folder.iterdir()) == [writer.path(writer.lines - 1)]
    drill_run.report(kills=kills, lines=writer.lines)
