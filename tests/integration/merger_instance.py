"""An instance of a merger as a process of its own, to be killed or frozen."""

import json
import signal
import sys
from dataclasses import asdict

from headrace.links.merger.instance import MergerInstance
from headrace.links.merger.plan import ClockSource, MergerPlan


def arguments(plan: MergerPlan) -> list[str]:
    """Arguments of Python's that run an instance, until SIGTERM."""
    return ["-m", "tests.integration.merger_instance", json.dumps(asdict(plan), default=_value)]


def _value(source: ClockSource) -> str:
    return source.value


def _plan(text: str) -> MergerPlan:
    fields = json.loads(text)
    sources = {name: ClockSource(value) for name, value in fields.pop("sources").items()}
    return MergerPlan(sources=sources, **fields)


if __name__ == "__main__":
    running = MergerInstance(_plan(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: running.stop())
    running.run(lambda _: None)
