"""Log lines: where they go, what each says, and how often one that repeats is written."""

import json
import logging
import os
import re
import subprocess
import sys

import pytest

from headrace.runtime.logs import REQUEST_ID, Repeats, Subject, log_to, logging_about
from headrace.workers.failures.failure_log import FailureLog
from headrace.workers.tasks.task import WorkerRecord

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\w+) (\d+) ([\w.]+):(.*)")


@pytest.fixture
def logged(tmp_path):
    """Lines of the log file; the logger is as it was afterwards."""
    level = logging.getLogger("headrace").level
    file = tmp_path / "folder" / "headrace.log"
    log_to(file, stderr=False)
    yield lambda: file.read_text().splitlines()
    log_to(None, stderr=False)
    logging.getLogger("headrace").setLevel(level)


def test_a_line_says_when_how_bad_which_process_who_and_what(logged):
    logging.getLogger("headrace.kafka").error("gone: %s", "x")
    (line,) = logged()
    assert LINE.fullmatch(line).groups() == (
        "ERROR",
        str(os.getpid()),
        "headrace.kafka",
        " gone: x",
    )


def test_a_line_of_a_request_names_it(logged):
    token = REQUEST_ID.set("abc-1")
    logging.getLogger("headrace.ingest").warning("slow")
    REQUEST_ID.reset(token)
    logging.getLogger("headrace.ingest").warning("none")
    assert [LINE.fullmatch(line)[4] for line in logged()] == [" [abc-1] slow", " none"]


def test_failed_attempts_that_a_worker_has_limited_are_all_written(logged):
    record = WorkerRecord("clicks", 2, 7, None, b"", (), 1)
    log = FailureLog("enrich", lambda: 0.0)
    for _ in range(12):
        log.failed(record, OSError("away"))
    assert sum(" failed" in line for line in logged()) == 10


def test_lines_after_a_rotation_go_to_a_new_file(logged, tmp_path):
    log = logging.getLogger("headrace")
    log.info("before")
    rotated = (tmp_path / "folder" / "headrace.log").rename(tmp_path / "headrace.log.1")
    log.info("after")
    assert rotated.read_text().endswith(" before\n")
    assert [LINE.fullmatch(line)[4] for line in logged()] == [" after"]


def test_a_line_whose_folder_is_gone_is_on_stderr_and_fails_nothing(logged, tmp_path, capsys):
    log = logging.getLogger("headrace")
    log.info("before")
    (tmp_path / "folder").rename(tmp_path / "gone")
    log.info("lost")
    assert "lost" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    log.info("after")
    assert [LINE.fullmatch(line)[4] for line in logged()] == [" after"]


def test_setting_up_again_repeats_no_line(logged, tmp_path):
    log_to(tmp_path / "folder" / "headrace.log", stderr=False)
    logging.getLogger("headrace").info("once")
    assert len(logged()) == 1


def test_a_process_that_set_up_nothing_else_has_every_module_in_file_and_stderr(tmp_path):
    """As a worker of ingest, which is spawned: it inherits no logging."""
    code = (
        "import logging, pathlib, headrace.kafka.client.clients\n"
        "from headrace.runtime.logs import log_to\n"
        f"log_to(pathlib.Path({str(tmp_path / 'log')!r}), stderr=True)\n"
        "logging.getLogger('headrace.kafka').error('from kafka')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert LINE.fullmatch(done.stderr.strip())[4] == " from kafka"
    assert (tmp_path / "log").read_text() == done.stderr


def repeated(repeats, count, level=logging.WARNING, message="again: %s"):
    records = [
        logging.LogRecord("headrace", level, "", 0, message, (number,), None)
        for number in range(count)
    ]
    return [record.left_out for record in records if repeats.filter(record)]


def test_of_what_repeats_five_lines_a_minute_pass_and_the_next_says_how_many_did_not():
    now = 0.0
    repeats = Repeats(lambda: now)
    assert repeated(repeats, 105) == [""] * 5
    assert repeated(repeats, 3, message="another: %s") == [""] * 3
    now = 60.0
    assert repeated(repeats, 2) == [" (100 lines like this were left out)", ""]
    now = 120.0
    assert repeated(repeats, 1) == [""]


def test_of_lines_of_info_sixty_a_minute_pass():
    now = 0.0
    repeats = Repeats(lambda: now)
    assert repeated(repeats, 100, logging.INFO) == [""] * 60
    now = 60.0
    assert repeated(repeats, 1, logging.INFO) == [" (40 lines like this were left out)"]


def test_what_one_pipeline_repeats_leaves_out_nothing_of_another(logged):
    log = logging.getLogger("headrace.pipelines")
    for name in ("a", "b"):
        with logging_about(Subject("pipeline", name)):
            for _ in range(7):
                log.warning("away")
    texts = [LINE.fullmatch(line)[4] for line in logged()]
    assert texts == [" [pipeline a] away"] * 5 + [" [pipeline b] away"] * 5


def test_lines_of_a_process_name_what_it_runs_unless_they_are_about_another(tmp_path, logged):
    log_to(tmp_path / "folder" / "headrace.log", stderr=False, subject=Subject("worker", "w"))
    log = logging.getLogger("headrace.workers")
    log.info("begun")
    with logging_about(Subject("pipeline", "p")):
        log.info("other")
    assert [LINE.fullmatch(line)[4] for line in logged()] == [
        " [worker w] begun",
        " [pipeline p] other",
    ]


def test_a_json_line_has_the_same_facts_as_fields(tmp_path, logged):
    log_to(tmp_path / "folder" / "headrace.log", stderr=False, log_format="json")
    log = logging.getLogger("headrace.ingest")
    token = REQUEST_ID.set("abc-1")
    log.error("%s failed", "it", exc_info=ZeroDivisionError("by zero"))
    REQUEST_ID.reset(token)
    with logging_about(Subject("pipeline", "p")):
        log.info("two\nlines")
    first, second = (json.loads(line) for line in logged())
    assert "ZeroDivisionError: by zero" in first.pop("exception")
    for line in (first, second):
        assert line.pop("time").endswith("Z")
        assert (line.pop("process"), line.pop("logger")) == (os.getpid(), "headrace.ingest")
    assert first == {"level": "ERROR", "message": "it failed", "request": "abc-1"}
    assert second == {"level": "INFO", "message": "two\nlines", "pipeline": "p"}
