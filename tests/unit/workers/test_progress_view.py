"""What a command shows of an instance that runs."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from headrace.service.status import State
from headrace.workers.progress_view import line, reporting, summary
from headrace.workers.status import WorkerStatus

FAILED = WorkerStatus("enrich", State.FAILED, "the broker said no")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_why_an_instance_failed_is_left_to_the_error_of_the_command(is_terminal):
    text = io.StringIO()
    with reporting(Console(file=text, force_terminal=is_terminal, width=200)) as observe:
        observe(FAILED)
    assert "failed" in text.getvalue()
    assert "the broker said no" not in text.getvalue()


def test_a_status_shows_why_an_instance_failed():
    assert line(FAILED, 0).endswith("; the broker said no")


def test_a_killed_instance_has_nothing_of_what_it_had():
    running = WorkerStatus("enrich", processed=7, partitions=2, waiting=34, lag_records=226)
    killed = running.killed("it was killed")
    assert (killed.state, killed.processed) == (State.FAILED, 7)
    assert (killed.partitions, killed.waiting, killed.lag_records) == (0, 0, 0)


def test_remarks_name_the_instance_where_a_worker_has_several():
    text = io.StringIO()
    others = [replace(FAILED, instance=name) for name in ("host-1", "host-2")]
    Console(file=text, width=200).print(summary([*others, replace(FAILED, name="other")]))
    lines = [row.rstrip() for row in text.getvalue().splitlines()[-3:]]
    remark = ": the broker said no"
    assert lines == [f"enrich (host-1){remark}", f"enrich (host-2){remark}", f"other{remark}"]
