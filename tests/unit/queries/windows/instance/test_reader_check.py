"""A reader that gets nothing of one partition, though others go on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.queries.windows.instance import reader_check as reader_check_module
from headrace.queries.windows.instance.reader_check import ReaderCheck, ReaderStalledError


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(reader_check_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_partition_of_which_nothing_is_read_for_long_is_named(clock):
    check = ReaderCheck("ads.ended", [4, 5])
    for _ in range(89):
        clock.now += 1
        check.received(4)
        check.check()
    clock.now += 1
    with pytest.raises(ReaderStalledError, match=r"ads\.ended\[5\]"):
        check.check()


def test_partitions_that_are_read_are_not_silent(clock):
    check = ReaderCheck("ads.ended", [4, 5])
    for _ in range(100):
        clock.now += 1
        check.received(4)
        check.received(5)
        check.check()


def test_an_instance_that_was_busy_for_long_looks_once(clock):
    check = ReaderCheck("ads.ended", [4])
    clock.now += 600
    check.check()
    for _ in range(1_000):
        clock.now += 0.001
        check.check()
