"""Each process runs files of its kind first, and every file runs once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.schedule import SchedulingByKind, tell_files_with_spark


class Process:
    """What the scheduler knows of a process of ``pytest -n``."""

    shutting_down = False

    def __init__(self, number):
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.tests = []

    def send_runtest_some(self, indices):
        self.tests += indices

    def shutdown(self):
        self.shutting_down = True


def items(names, *, fixtures):
    return [SimpleNamespace(nodeid=f"{name}::test", fixturenames=fixtures) for name in names]


def files_of_processes(number, folder, *, spark, units, servers):
    """Runs a test of each file, a round of all processes at a time; returns each one's files."""
    found = items(servers, fixtures=["broker"]) + items(units, fixtures=[])
    found += items(spark, fixtures=["broker", "spark"])
    tell_files_with_spark(found, folder)
    options = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(getvalue=lambda name: ["popen"] * number, option=options)
    scheduler = SchedulingByKind(config, None, folder)
    processes = [Process(n) for n in range(number)]
    names = [item.nodeid for item in found]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, names)
    scheduler.schedule()
    done = dict.fromkeys(processes, 0)
    while scheduler.has_pending:
        for process in processes:
            if done[process] < len(process.tests):
                scheduler.mark_test_complete(process, process.tests[done[process]])
                done[process] += 1
    return [[names[index].partition("::")[0] for index in process.tests] for process in processes]


def test_each_process_runs_files_of_its_kind(tmp_path):
    spark = [f"tests/integration/spark_{n}.py" for n in range(6)]
    units = [f"tests/unit/{n}.py" for n in range(3)]
    servers = [f"tests/integration/{n}.py" for n in range(3)]
    files = files_of_processes(4, tmp_path, spark=spark, units=units, servers=servers)
    assert sorted(files[0] + files[1]) == spark
    assert files[2:] == [servers, units]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("numbers", [(9, 2, 1), (1, 9, 2), (0, 0, 9), (0, 9, 0), (9, 0, 0)])
def test_each_file_runs_once(number, numbers, tmp_path):
    kinds = {
        kind: [f"{kind}/{n}.py" for n in range(files)]
        for kind, files in zip(("spark", "units", "servers"), numbers, strict=True)
    }
    files = files_of_processes(number, tmp_path, **kinds)
    expected = sorted(file for names in kinds.values() for file in names)
    assert sorted(file for own in files for file in own) == expected
