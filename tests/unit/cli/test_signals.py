"""A signal is handled while the main thread waits, whatever a library did to the handlers."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.cli.json_output import JsonOutput
from headrace.cli.signals import interrupt_on_sigterm, stop_on_signal
from headrace.cli.view import Stopping
from headrace.operations.sizing.views import measuring

PROGRAM = """
import signal
import sys
from headrace.cli.signals import beside_main_thread, stop_on_signal

def act(stop):
    {disturb}
    print("ready", flush=True)
    stop.wait()
    {after}
    return 7

with stop_on_signal(lambda: print("stopping\\n", end="", flush=True)) as stop:
    sys.exit(beside_main_thread(act, stop))
"""
RESTARTED = "signal.siginterrupt(signal.SIGINT, False); signal.siginterrupt(signal.SIGTERM, False)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("disturb", ["import polars", RESTARTED], ids=["polars", "SA_RESTART"])
def test_a_signal_stops_the_action_although_waits_are_restarted_after_it(disturb, number):
    with _started(disturb, "pass") as process:
        process.send_signal(number)
        rest, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert (rest, process.returncode) == ("stopping\n", 7)


def test_a_second_signal_ends_the_process():
    deaf = r"print('deaf\n', end='', flush=True); __import__('time').sleep(600)"
    with _started(RESTARTED, deaf) as process:
        process.send_signal(signal.SIGINT)
        told = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_SECONDS) == 128 + signal.SIGINT
    assert sorted(told) == ["deaf\n", "stopping\n"]


READS = """
import time
from headrace.cli.signals import until_signal

def act():
    print("ready", flush=True)
    time.sleep(600)

until_signal(act)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_only_reads_ends_at_once(number):
    command = [sys.executable, "-c", READS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=LIMIT_SECONDS) == (b"", b"")
    assert process.returncode == 128 + number


class SignalledStream(io.RawIOBase):
    """Gets a signal in the middle of its first write."""

    def __init__(self):
        self.written = b""

    def writable(self):
        return True

    def write(self, content):
        if not self.written:
            signal.raise_signal(signal.SIGTERM)
        self.written += bytes(content)
        return len(content)


def test_a_signal_in_the_middle_of_a_print_is_shown_after_it(monkeypatch):
    stream, output = SignalledStream(), JsonOutput()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(stream)))
    with output.live(measuring), stop_on_signal(lambda: output.show(Stopping())) as stop:
        output.show({"event": "progress"})
        stop.wait()
    output.show({"event": "ended"})
    events = [json.loads(line)["event"] for line in stream.written.splitlines()]
    assert events == ["progress", "stopping", "ended"]


def test_what_the_reaction_to_a_signal_raises_is_raised_at_the_end():
    def fail():
        raise ConnectionError

    with pytest.raises(ConnectionError), stop_on_signal(fail):
        signal.raise_signal(signal.SIGTERM)


@contextmanager
def _started(disturb: str, after: str) -> Iterator[subprocess.Popen[str]]:
    program = PROGRAM.format(disturb=disturb, after=after)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def _something_made(made: list[str]) -> Iterator[None]:
    try:
        yield
    finally:
        made.clear()


def test_sigterm_lets_go_of_what_was_made_for_the_while():
    before, made = signal.getsignal(signal.SIGTERM), ["topic"]
    with pytest.raises(KeyboardInterrupt), interrupt_on_sigterm(), _something_made(made):
        signal.raise_signal(signal.SIGTERM)
    assert made == []
    assert signal.getsignal(signal.SIGTERM) == before
