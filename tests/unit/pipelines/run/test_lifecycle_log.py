"""What an operator reads of a pipeline at INFO."""

import logging

import pytest

from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.run.lifecycle_log import log_batch, log_changes, log_dead_letters
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State

RUNNING = PipelineStatus("p", State.RUNNING)


@pytest.fixture
def lines(caplog):
    """``(level, text)`` of the lines that are logged."""
    caplog.set_level(logging.DEBUG, "headrace.pipelines")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"state": State.STOPPED}, ("INFO", "The pipeline is stopped")),
        (
            {"state": State.REFUSED, "reason": "a reason"},
            ("ERROR", "The pipeline is refused: a reason"),
        ),
        (
            {"reason": "no broker"},
            ("WARNING", "The pipeline reads nothing until this has passed: no broker"),
        ),
        ({"paused_partitions": ("clicks/3",)}, ("INFO", "Paused partitions: clicks/3")),
    ],
)
def test_a_change_is_one_line(lines, changes, line):
    log_changes(RUNNING, RUNNING.after(**changes))
    assert lines() == [line]


def test_the_end_of_an_outage_is_logged(lines):
    log_changes(RUNNING.after(reason="no broker"), RUNNING)
    assert lines() == [("INFO", "The pipeline reads again, this has passed: no broker")]


def test_another_reason_of_a_restart_is_logged(lines):
    restarting = RUNNING.after(state=State.RESTARTING, reason="no broker")
    log_changes(restarting, restarting.after(reason="no topic"))
    assert lines() == [("WARNING", "The pipeline is restarting: no topic")]


def test_partitions_that_go_on_are_logged(lines):
    log_changes(RUNNING.after(paused_partitions=("clicks/3",)), RUNNING)
    assert lines() == [("INFO", "Paused partitions: none")]


def test_figures_alone_are_not_logged(lines):
    log_changes(RUNNING, RUNNING.after(batches=7, rows_in=5))
    assert lines() == []


def test_a_batch_names_the_next_offsets_of_the_partitions_that_it_read(lines):
    idle, read = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
    log_batch(7, {"records": 5, "rows": 4}, {idle: 3, read: 10}, {idle: 3, read: 15})
    text = "Batch 7 is committed: 5 records, 4 rows; next offsets: clicks/1 at 15"
    assert lines() == [("INFO", text)]


def test_a_batch_that_read_nothing_is_a_detail(lines):
    idle = TopicPartition("clicks", 0)
    log_batch(8, {"records": 0}, {idle: 3}, {idle: 3})
    assert [level for level, _ in lines()] == ["DEBUG"]


def test_dead_letters_are_counted_by_reason(lines):
    letters = [
        DeadLetter(TopicPartition("clicks", 0), offset, reason, "", None, b"")
        for offset, reason in enumerate(("not-json", "wrong-type", "wrong-type"))
    ]
    log_dead_letters(letters)
    log_dead_letters([])
    assert lines() == [("INFO", "3 records are dead letters: 2 wrong-type, 1 not-json")]
