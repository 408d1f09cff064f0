"""What every transform must do, on the real broker and Spark.

A test module subclasses :class:`TransformContract`, or :class:`TimedTransformContract` where the
transform goes by event time, and gives the fixture ``case``.
"""

import json
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from tests.integration.flow import Flow

from headrace import Lake
from headrace.model import FieldType
from headrace.pipelines.transforms.transform import Transform
from headrace.service.status import State

COLUMNS = {
    "event_id": FieldType.STRING,
    "event_time": FieldType.MILLIS,
    "category": FieldType.STRING,
    "n": FieldType.LONG,
    "price": FieldType.DOUBLE,
}


@dataclass(frozen=True)
class TransformCase:
    """A transform and what it makes of some events.

    Attributes:
        step: the transform.
        runs: the events of each run of the pipeline; between two of them the driver is another.
        columns: of the rows to look at.
        rows: the rows that come out of all runs, with their numbers.
        figures: of the transform, after the last run.
        late: an event that is behind the watermark of the last run; needed where there is one.
    """

    step: Transform
    runs: Sequence[Sequence[bytes]]
    columns: Sequence[str]
    rows: Mapping[tuple[object, ...], int]
    figures: Mapping[str, int]
    late: bytes | None = None


class TransformContract:
    @pytest.fixture
    def flow(self, broker, spark, tmp_path):
        return Flow(broker, spark, tmp_path, partitions=1)

    def run(self, flow, case):
        name = "transformed"
        outcome = flow.run(flow.pipeline(name, sink=Lake(name), steps=[case.step]))[name]
        assert outcome.state is State.FINISHED, outcome.reason
        return outcome

    def rows(self, flow, case):
        table = flow.rows("transformed")
        return Counter(tuple(row[name] for name in case.columns) for row in table)

    def test_it_is_a_value_without_faults(self, case):
        assert pickle.loads(pickle.dumps(case.step)) == case.step
        assert list(case.step.faults(COLUMNS)) == []
        assert list(case.step.faults(None)) == []

    def test_its_figures_have_metrics(self, case):
        assert case.figures.keys() == {metric.name for metric in case.step.all_metrics}

    def test_a_restart_in_the_middle_and_a_replay_change_nothing(self, flow, case):
        for events in case.runs:
            flow.send(events)
            outcome = self.run(flow, case)
        assert {name: outcome.figures[name] for name in case.figures} == case.figures
        assert self.rows(flow, case) == case.rows
        flow.forget_newest_commit("transformed")
        self.run(flow, case)
        assert self.rows(flow, case) == case.rows


class TimedTransformContract(TransformContract):
    """Contract of transforms that name their columns, and take nothing behind the watermark."""

    def test_a_column_that_is_not_there_is_a_fault(self, case):
        faults = list(case.step.faults({"other": FieldType.STRING}))
        assert faults
        assert all("columns: other" in fault.remedy for fault in faults)

    def test_a_restart_in_the_middle_and_a_replay_change_nothing(self, flow, case):
        """Then an event behind the watermark is a dead letter, and Spark has none to drop."""
        super().test_a_restart_in_the_middle_and_a_replay_change_nothing(flow, case)
        flow.send([case.late])
        outcome = self.run(flow, case)
        assert (outcome.rows_in, outcome.behind_watermark_rows, outcome.dead_letters) == (1, 1, 1)
        assert outcome.dropped_by_watermark_rows == 0
        [stored] = flow.dead()
        assert stored.letter.reason == "behind-watermark"
        assert json.loads(stored.letter.value)["event_id"] == json.loads(case.late)["event_id"]
        assert self.rows(flow, case) == case.rows
