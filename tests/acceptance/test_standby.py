"""Drivers with a standby are killed, frozen, handed over and ended while events come."""

import signal
import time
from collections import Counter

import pytest
from tests.acceptance.project import EVENTS, LAKE, Project
from tests.acceptance.standby_drivers import Drivers, Traffic
from tests.waiting import wait_for_drill

FLOW = EVENTS + LAKE
FAULTS = ("kill", "freeze", "handover", "end")


@pytest.mark.drill(always=True)
@pytest.mark.timeout(1800)
def test_a_standby_takes_over_and_each_event_is_in_the_table_once(
    broker, topic, tmp_path, drill_run
):
    """Each fault comes at a random moment; a frozen driver wakes up and finds itself replaced."""
    rounds = drill_run.size(short=1, long=5)
    project = Project(tmp_path / "drill", broker.bootstrap_servers, topic=topic(), batch=2_000)
    project.call("apply")
    faults = [fault for _ in range(rounds) for fault in FAULTS]
    drill_run.random.shuffle(faults)
    gaps: dict[str, list[float]] = {fault: [] for fault in FAULTS}
    with Drivers(project) as drivers, Traffic(project) as traffic:
        active, standby = drivers.start(), None
        drivers.committed_after(0.0)
        for fault in faults:
            standby = standby or drivers.start()
            time.sleep(drill_run.random.uniform(0.0, 1.0))
            began = max(drivers.commits())
            _take_over(drivers, project, fault, active, standby)
            gaps[fault].append(round(drivers.longest_gap(began), 1))
            active, standby = standby, _standby_after(drivers, project, fault, active)
        drivers.end(active)
        assert drivers.ended(active) == 0, project.output()
    project.call("run", "fused", "--once")
    assert project.ids("fused") == Counter(f"e{n}" for n in range(traffic.events))
    assert project.committed("fused") == project.ends()
    drill_run.report(events=traffic.events, faults=len(faults), gaps_seconds=gaps)


def _take_over(drivers, project, fault, active, standby):
    """Has the standby take over, and waits for a commit of it."""
    if fault == "kill":
        drivers.kill(active)
    elif fault == "freeze":
        drivers.signal(active, signal.SIGSTOP)
    elif fault == "handover":
        assert "is its standby" in project.call("handover", "fused")
    else:
        drivers.end(active)
    wait_for_drill(lambda: drivers.is_active(standby), project.output)
    drivers.committed_after(time.time())


def _standby_after(drivers, project, fault, replaced):
    """Returns the driver that was active, warm; None if it has ended."""
    if fault == "kill":
        return None
    if fault == "end":
        assert drivers.ended(replaced) == 0, project.output()
        return None
    if fault == "freeze":
        drivers.signal(replaced, signal.SIGCONT)
    wait_for_drill(lambda: drivers.is_warm(replaced), project.output)
    return replaced
