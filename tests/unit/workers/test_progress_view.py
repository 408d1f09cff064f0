"""What a command shows of an instance that runs."""

import io

import pytest
from rich.console import Console

from headrace.service.status import State
from headrace.workers.progress_view import line, reporting
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
