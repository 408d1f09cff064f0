"""A figure is declared once, and is in JSON and in metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.metrics import Metric
from headrace.service.figures import Derived, counter, derived_gauge, gauge
from headrace.service.metrics import exposition
from headrace.service.status import InstanceStatus, State


@dataclass(frozen=True)
class CopyStatus(InstanceStatus):
    copied: int = counter("records", "records that were copied", "standing still")
    plain: int = 0
    age: float | None = gauge("s", "age of the last record", "rising", default=None)

    @derived_gauge("records", "twice as many", "never")
    def doubled(self) -> int:
        return 2 * self.copied

    @Derived
    def name_length(self) -> int:
        return len(self.name)

    kind: ClassVar[str] = "copy"
    folder: ClassVar[str] = "copies"
    states: ClassVar = (State.RUNNING, State.STOPPED)


@dataclass(frozen=True)
class FarCopyStatus(CopyStatus):
    far: int = counter("records", "records from afar", "never")
    copied: int = counter("records", "records that were copied from afar", "standing still")
    doubled = CopyStatus.doubled.gauge("records", "twice as many from afar", "never")

    kind: ClassVar[str] = "far_copy"


STATUS = CopyStatus("ab", copied=3, plain=4, instance="i", updated_ms=5)


def test_a_figure_is_in_json_and_is_read_again():
    assert STATUS.to_json() == {
        "copy": "ab",
        "state": "running",
        "reason": "",
        "updated_ms": 5,
        "instance": "i",
        "copied": 3,
        "plain": 4,
        "age": None,
        "doubled": 6,
        "name_length": 2,
    }
    assert CopyStatus.from_json(STATUS.to_json()) == STATUS


def test_metrics_are_those_of_the_class_in_its_order():
    assert CopyStatus.metrics == (
        Metric("copied", "records", "records that were copied", "standing still", is_counter=True),
        Metric("age", "s", "age of the last record", "rising"),
        Metric("doubled", "records", "twice as many", "never"),
    )
    samples = [line for line in exposition(CopyStatus, [STATUS]).splitlines() if "{" in line]
    assert samples == [
        'headrace_copy_copied_total{copy="ab",instance="i"} 3',
        'headrace_copy_doubled{copy="ab",instance="i"} 6',
        'headrace_copy_state{copy="ab",instance="i",state="running"} 1',
        'headrace_copy_state{copy="ab",instance="i",state="stopped"} 0',
    ]


def test_a_kind_says_of_inherited_figures_what_they_are_for_it():
    assert [(metric.name, metric.meaning) for metric in FarCopyStatus.metrics] == [
        ("far", "records from afar"),
        ("copied", "records that were copied from afar"),
        ("doubled", "twice as many from afar"),
        ("age", "age of the last record"),
    ]
    status = FarCopyStatus("a", copied=2, far=1)
    assert (status.doubled, status.to_json()["doubled"], status.to_json()["far"]) == (4, 4, 1)
