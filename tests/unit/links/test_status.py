"""Counters of engines are figures of their statuses."""

from typing import get_args

import pytest

from headrace.links.merger.status import MergerCounter, MergerStatus
from headrace.links.mirror.status import MirrorCounter, MirrorStatus


@pytest.mark.parametrize(
    ("counter", "status"), [(MirrorCounter, MirrorStatus), (MergerCounter, MergerStatus)]
)
def test_each_counter_of_an_engine_is_one_of_its_status(counter, status):
    counters = {metric.name for metric in status.metrics if metric.is_counter}
    assert counters == {*get_args(counter), "restarts"}
