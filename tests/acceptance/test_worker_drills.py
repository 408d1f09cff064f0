"""What workers promise, while their instances are killed, frozen, restarted, and records are bad.

Drills C-1 to C-10. Those of one cluster go on at the same time, each with a topic of its own.
"""

from __future__ import annotations

import signal

from tests.drills.checker import History
from tests.drills.processes import Drill, Instance, until

KILLS = 4
RESTARTS = 5
SHORT_SESSION = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


def taken_over(drill: Drill, partitions: set[int], gone: Instance) -> bool:
    """Others have them all."""
    others = set().union(*(one.owned for one in drill.running if one is not gone))
    return partitions <= others


def killed(drill: Drill) -> History:
    """C-1."""
    with drill:
        drill.begin({}, {}, {})
        for _ in range(KILLS):
            one = next(one for one in drill.running if one.owned)
            owned = one.owned
            with drill.fault("kill", lambda: taken_over(drill, owned, one)):  # noqa: B023
                one.signal(signal.SIGKILL)
                assert one.process.wait() == -signal.SIGKILL
                drill.start()
        return drill.finish()


def restarted(drill: Drill) -> History:
    """C-2."""
    with drill:
        drill.begin({}, {}, {})
        for _ in range(RESTARTS):
            one = next(one for one in drill.running if one.owned)
            owned = one.owned
            with drill.fault("restart", lambda: taken_over(drill, owned, one)):  # noqa: B023
                assert one.end() == 0
                begun = drill.start()
                until(lambda: begun.owned)  # noqa: B023
        return drill.finish(processed_once=True)


def bounced(drill: Drill) -> tuple[History, dict[str, int]]:
    """C-3: also, how often each instance that stayed lost or got a lane meanwhile."""
    with drill:
        drill.begin({"instance_id": "a"}, {"instance_id": "b"}, {"instance_id": "c"})
        drill.settle()
        others = [one for one in drill.running if one.spec.instance_id != "b"]
        moves = {one.name: -len(one.notes("open", "close")) for one in others}
        for number in (signal.SIGTERM, signal.SIGKILL):
            one = next(one for one in drill.running if one.spec.instance_id == "b")
            owned = one.owned
            with drill.fault("bounce", lambda: begun.owned == owned):  # noqa: B023
                one.signal(number)
                one.process.wait()
                begun = drill.start(instance_id="b")
        for one in others:
            moves[one.name] += len(one.notes("open", "close"))
        return drill.finish(), moves


def frozen(drill: Drill) -> History:
    """C-4."""
    with drill:
        drill.begin({}, {})
        for one in list(drill.running):
            owned, closed = one.owned, len(one.notes("close"))
            with drill.fault("freeze", lambda: noticed(one, closed)):  # noqa: B023
                one.signal(signal.SIGSTOP)
                until(lambda: taken_over(drill, owned, one))  # noqa: B023
                drill.settle()
                one.signal(signal.SIGCONT)
        return drill.finish()


def noticed(zombie: Instance, closed: int) -> bool:
    """It gave up what it had, and got partitions anew."""
    return len(zombie.notes("close")) > closed and bool(zombie.owned)
