"""Which column of its input an operator with state holds against the watermark."""

from types import SimpleNamespace

import pytest

from headrace.pipelines.late_data.behind_watermark import _time_column


def sequence(*values):
    """As Scala's."""
    return SimpleNamespace(size=lambda: len(values), apply=values.__getitem__)


def column(number, *, has_watermark):
    return SimpleNamespace(
        nodeName=lambda: "AttributeReference",
        exprId=lambda: SimpleNamespace(id=lambda: number),
        metadata=lambda: SimpleNamespace(contains=lambda _: has_watermark),
    )


CHILD = SimpleNamespace(
    output=lambda: sequence(column(1, has_watermark=False), column(2, has_watermark=True))
)


@pytest.mark.parametrize(("mode", "found"), [("EventTime", 1), ("ProcessingTime", None)])
def test_spark_drops_rows_of_transform_with_state_by_event_time_alone(mode, found):
    node = SimpleNamespace(
        nodeName=lambda: "TransformWithStateInPySpark",
        timeMode=lambda: SimpleNamespace(toString=lambda: mode),
    )
    assert _time_column(node, CHILD) == found


@pytest.mark.parametrize(("timeout", "found"), [("EventTimeTimeout", 1), ("NoTimeout", None)])
def test_and_so_of_functions_with_state(timeout, found):
    node = SimpleNamespace(
        nodeName=lambda: "FlatMapGroupsInPandasWithState",
        timeout=lambda: SimpleNamespace(toString=lambda: timeout),
    )
    assert _time_column(node, CHILD) == found
