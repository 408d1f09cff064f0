"""CPU and memory of a tree of processes."""

import os
import subprocess
import sys

from headrace.runtime.process_tree import Process, Watch, parse_stat, processes, remembered, tree

SPIN = "import time\nwhile time.process_time() < {seconds}: pass"


def process(pid, parent, *, cpu_seconds=0.0, started=1):
    return Process(pid, parent, started, "python3", False, cpu_seconds, 1.0)


def on(*found):
    return {one.pid: one for one in found}


def spinning(seconds):
    return [sys.executable, "-c", SPIN.format(seconds=seconds)]


def test_a_command_name_may_hold_spaces_and_parentheses():
    ticks = os.sysconf("SC_CLK_TCK")
    numbers = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 * ticks, 2 * ticks, 3 * ticks, 4 * ticks]
    numbers += [20, 0, 1, 0, 555, 10_000, 100]
    found = parse_stat(f"42 (a (b) c) S {' '.join(map(str, numbers))} 0 0\n")
    assert (found.pid, found.name, found.parent, found.started) == (42, "a (b) c", 7, 555)
    assert found.cpu_seconds == 10.0
    assert found.rss_mb == 100 * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_a_tree_is_a_process_and_all_its_descendants():
    machine = on(process(1, 0), process(2, 1), process(3, 2), process(9, 1))
    assert {one.pid for one in tree(2, machine)} == {2, 3}


def test_a_process_that_lost_its_parent_still_belongs_to_the_tree():
    known = [process(3, 2)]
    machine = on(process(1, 0), process(2, 1), process(3, 1), process(4, 3))
    assert {one.pid for one in tree(2, machine, known)} == {2, 3, 4}


def test_another_process_with_a_known_pid_does_not_belong_to_the_tree():
    machine = on(process(2, 1), process(3, 1, started=2))
    assert {one.pid for one in tree(2, machine, [process(3, 2)])} == {2}


def test_a_child_that_ended_counts_through_its_parent_only():
    before = [process(2, 1), process(3, 2, cpu_seconds=5.0)]
    assert [one.pid for one in remembered(before, [process(2, 1, cpu_seconds=5.0)])] == [2]


def test_a_child_that_ended_together_with_its_parent_counts_once():
    before = [process(2, 1), process(3, 2), process(4, 3)]
    assert [one.pid for one in remembered(before, [process(2, 1)])] == [2]


def test_an_orphan_that_ended_keeps_its_last_figure():
    orphan = process(3, 1, cpu_seconds=5.0)
    assert remembered([process(2, 1), orphan], [process(2, 1)]) == [process(2, 1), orphan]


def test_cpu_of_children_that_came_and_went_is_counted():
    with Watch(os.getpid()) as watch:
        subprocess.run(spinning(0.3), check=True)
    assert watch.usage.cpu_seconds > 0.25
    assert watch.usage.peak_memory_mb > 0


def test_a_root_that_only_looks_at_the_others_is_left_out():
    with subprocess.Popen(spinning(0.3)) as root, Watch(root.pid, counts_root=False) as watch:
        root.wait()
    assert watch.usage.cpu_seconds == watch.usage.peak_memory_mb == 0.0


def test_only_processes_below_the_root_are_workers():
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as alone, Watch(alone.pid) as watch:
        alone.communicate(b"\n")
    assert watch.usage.peak_memory_mb > 0
    assert watch.usage.peak_worker_memory_mb == 0.0


def test_only_the_processes_asked_for_are_looked_at():
    assert list(processes([os.getpid(), 2**22 + 1])) == [os.getpid()]


def test_cpu_that_a_child_has_used_until_now_is_read_while_it_is_watched():
    with Watch(os.getpid()) as watch:
        subprocess.run(spinning(0.3), check=True)
        assert watch.cpu_seconds() > 0.25
