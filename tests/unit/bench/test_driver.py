"""A system under test as a process of its own."""

import os
from functools import partial

import pytest
from bench.driver import Driver, SystemFailedError
from bench.setup import Setup


def opened(setup, commits):
    def write_once(out, on_commit):
        for committed in commits:
            on_commit(committed)

    return write_once


def driver(tmp_path, commits):
    setup = Setup(
        bootstrap="",
        topic="t",
        messages=10,
        partitions=1,
        threads=1,
        batch_records=5,
        heap_mb=64,
        java=dict(os.environ),
        connector=(),
        logs=tmp_path,
    )
    return Driver("one", partial(opened, commits=commits), setup, tmp_path / "log")


def test_it_waits_for_the_commit_that_makes_it_enough(tmp_path):
    with driver(tmp_path, [1, 3, 8, 10]) as one:
        one.await_ready()
        for run in ("a", "b"):
            one.begin(tmp_path / run)
            assert [one.await_committed(2), one.await_committed(4)] == [3, 8]
            one.finish()


def test_a_run_that_ends_too_soon_has_failed(tmp_path):
    with driver(tmp_path, [1, 3]) as one:
        one.await_ready()
        one.begin(tmp_path / "a")
        with pytest.raises(SystemFailedError, match="ended before 4"):
            one.await_committed(4)
