"""Random histories of two pipelines on one table, beside a reference of a few lines."""

import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sinks.lake.unique.test_unique_table import NOON, made, row

HOURS = [0, 1, 47, 60, 110, 24 * 40]
ROWS = st.tuples(
    st.sampled_from([None, "a", "b", "c", "d"]), st.integers(0, 1), st.sampled_from(HOURS)
)
TASKS = st.lists(st.lists(ROWS, max_size=5), min_size=1, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 1), TASKS),
    st.tuples(st.just("crash before the commit"), st.integers(0, 1), TASKS),
    st.tuples(st.just("crash after the commit"), st.integers(0, 1), TASKS),
    st.tuples(st.just("lose what the driver knows"), st.integers(0, 1), st.none()),
    st.tuples(st.just("compact"), st.integers(0, 1), st.none()),
)


@dataclass
class Reference:
    """Keeps the first row of a key: event times are near that are at most eight slices apart."""

    kept: list = field(default_factory=list)

    def add(self, rows):
        for key, n, hours in rows:
            if key is None or not any(k == key and self.near(h, hours) for k, _, h in self.kept):
                self.kept.append((key, n, hours))

    @staticmethod
    def near(first, second):
        # Noon is where a slice of six hours begins.
        return abs(first // 6 - second // 6) <= 8


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=8))
def test_the_table_holds_the_first_row_of_each_key_whatever_happens(steps):
    reference = Reference()
    with tempfile.TemporaryDirectory() as folder:
        pipelines = [made(Path(folder)) for _ in range(2)]
        pipelines[1].name = "b"
        for what, which, tasks in steps:
            do(pipelines[which], what, tasks)
            if tasks is not None:
                reference.add(each for task in tasks for each in task)
            assert found(pipelines[0]) == sorted(map(str, reference.kept))


def do(pipeline, what, tasks):
    rows = [[row(key, n, hours) for key, n, hours in task] for task in tasks or ()]
    match what:
        case "commit":
            before = len(pipeline.read())
            dropped, rejected = pipeline.add(*rows)
            kept = len(pipeline.read()) - before
            assert len(dropped) + len(rejected) + kept == sum(map(len, rows))
        case "crash before the commit":
            pipeline.attempt_once(*rows)
            pipeline.open()
            pipeline.add(*rows)
        case "crash after the commit":
            pipeline.add(*rows)
            pipeline.open()
            pipeline.batch -= 1
            files = pipeline.write(*rows)
            assert pipeline.attempt(files) is not bool(files)
            pipeline.batch += 1
        case "lose what the driver knows":
            pipeline.open()
        case "compact":
            pipeline.compact()


def found(pipeline):
    rows = pipeline.read()
    hours = [(each["at"] - NOON) // timedelta(hours=1) for each in rows]
    return sorted(str((each["id"], each["n"], at)) for each, at in zip(rows, hours, strict=True))
