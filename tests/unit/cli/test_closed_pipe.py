"""A reader that has what it wants, such as ``head``, ends a command without a complaint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.cli import main
from headrace.cli.closed_pipe import ReaderGoneError, end_output, interrupt_when_closed

_TAIL = """
import sys, time
import headrace.topics.tail
from headrace.kafka.read.tail import TailedRecord

def records(*_):
    yield TailedRecord("views", 0, 1, -1, None, (), b"{}")
    while True:
        time.sleep(0.1)

headrace.topics.tail.tail_topic = records
from headrace.cli import main
main(["tail", "page-views", "--project", *sys.argv[1:]])
"""


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(writer)


def close_and_wait(reader: int) -> None:
    os.close(reader)
    threading.Event().wait(LIMIT_SECONDS)


def test_a_wait_ends_when_the_reader_goes(pipe):
    reader, writer = pipe
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(ReaderGoneError), interrupt_when_closed(writer):
            close_and_wait(reader)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_after_the_write_that_met_the_closed_pipe_cuts_no_cleanup_short(
    pipe, monkeypatch
):
    reader, writer = pipe
    cut_short: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", cut_short.append)

    def records():
        try:
            yield 1
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def look() -> None:
        with interrupt_when_closed(writer):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            (watching,) = (each for each in threading.enumerate() if each.name == "closed-pipe")
            for _ in records():
                os.close(reader)
                watching.join(LIMIT_SECONDS)
                end_output(writer)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(ReaderGoneError):
            look()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    assert not cut_short


def test_while_the_reader_is_there_nothing_happens_and_ctrl_c_is_ctrl_c(pipe):
    reader, writer = pipe
    with interrupt_when_closed(writer):
        os.write(writer, b"x")
    with pytest.raises(KeyboardInterrupt), interrupt_when_closed(writer):
        raise KeyboardInterrupt
    os.close(reader)


@pytest.mark.parametrize("options", [(), ("--json",), ("--once",)])
def test_tail_ends_with_its_reader_also_while_no_record_comes(tmp_path, options):
    folder = str(tmp_path / "ads")
    with pytest.raises(SystemExit):
        main(["init", folder])
    command = [sys.executable, "-c", _TAIL, folder, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert b"{}" in tail.stdout.readline()
        tail.stdout.close()
        assert tail.stderr.read() == b""
        assert tail.wait(LIMIT_SECONDS) == 0
