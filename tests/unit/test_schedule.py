"""Files with Spark stay in half of the processes, and every file runs once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.schedule import SparkApart, tell_files_with_spark


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


def files_of_processes(number, *, with_spark, without, folder):
    """Runs a test of each file, a round of all processes at a time; returns each one's files."""
    found = items(with_spark, fixtures=["broker", "spark"]) + items(without, fixtures=["broker"])
    tell_files_with_spark(found, folder)
    options = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(getvalue=lambda name: ["popen"] * number, option=options)
    scheduler = SparkApart(config, None, folder)
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


def test_files_with_spark_stay_in_half_of_the_processes(tmp_path):
    with_spark, without = [f"s{n}" for n in range(6)], [f"o{n}" for n in range(6)]
    files = files_of_processes(4, with_spark=with_spark, without=without, folder=tmp_path)
    assert sorted(files[0] + files[1]) == with_spark
    assert sorted(files[2] + files[3]) == without


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize(("spark", "others"), [(9, 2), (2, 9), (9, 0), (0, 9)])
def test_each_file_runs_once(number, spark, others, tmp_path):
    with_spark, without = [f"s{n}" for n in range(spark)], [f"o{n}" for n in range(others)]
    files = files_of_processes(number, with_spark=with_spark, without=without, folder=tmp_path)
    assert sorted(file for own in files for file in own) == sorted(with_spark + without)
