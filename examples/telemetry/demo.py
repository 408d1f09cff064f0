"""The whole example at once: events, two hundred standing queries, and the proof of their results.

``make demo-telemetry`` runs it. Every step is a command that you can give yourself in this folder.
Exit code 0 only if each result is that of DuckDB over the same events.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import dashboards
import proof
import traffic
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headrace import HeadraceError, Project

HERE = Path(__file__).resolve().parent
STATE = HERE / ".headrace"
EVENTS = STATE / "events"
HEADRACE = Path(sys.executable).with_name("headrace")
INSTANCES = 2
PIPELINES = ("match-page-views", "match-errors", "match-transactions")
RESULTS_TOPIC = "telemetry.results"
SHOWN_QUERY, EXPLAINED_QUERY = "pages-by-app", "apdex-a000"
# The events after them let event time pass the ends of the windows that are compared.
COMPARED = timedelta(seconds=traffic.SECONDS - 10)
START_SECONDS = 180.0
STOP_SECONDS = 60
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

console = Console(highlight=False)


def main() -> int:
    """Runs the demo; whatever happens, what it started is stopped at the end."""
    for name in SIGNALS:
        signal.signal(name, signal.default_int_handler)
    with Path(__file__).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("[red]This demo is already running.")
            return 1
        return _guarded()


def _guarded() -> int:
    try:
        with ExitStack() as stack:
            return _tidy(stack)
    except KeyboardInterrupt:
        console.print("\n[yellow]Interrupted.")
        return INTERRUPTED
    except (HeadraceError, RuntimeError) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    except subprocess.CalledProcessError as error:
        console.print(f"[red]{Path(error.cmd[0]).name} {' '.join(error.cmd[1:])} failed.")
        return error.returncode


def _tidy(stack: ExitStack) -> int:
    stack.callback(stop_broker)
    try:
        return demo(stack)
    finally:
        for name in SIGNALS:
            signal.signal(name, signal.SIG_IGN)


def demo(stack: ExitStack) -> int:
    """All steps; 0 only if every result is right."""
    began = time.monotonic()
    step("Clean start")
    stop_broker()
    shutil.rmtree(STATE, ignore_errors=True)
    step("Start a Kafka broker", "headrace up")
    headrace("up")
    step("Create the topics", "headrace apply")
    headrace("apply")
    step(f"Start {INSTANCES} instances that answer queries", "headrace query run")
    instances = [
        stack.enter_context(background(f"instance-{number}", "query", "run"))
        for number in range(1, INSTANCES + 1)
    ]
    step("Start the pipelines that match events with queries", "headrace run")
    pipelines = stack.enter_context(background("pipelines", "run"))
    register()
    step("Wait until all of it runs", "headrace status, headrace query instances")
    await_running([*instances, pipelines])
    headrace("query", "instances")
    begin = send()
    step("Explain one of the queries", f"headrace query explain {EXPLAINED_QUERY}")
    headrace("query", "explain", EXPLAINED_QUERY)
    step("Compare all results with those of DuckDB over the same events")
    agree = show(comparisons(begin + COMPARED))
    console.print(f"[dim]{time.monotonic() - began:.0f} s")
    return 0 if agree else 1


def step(title: str, command: str = "") -> None:
    """Says what comes next, and the command that does it."""
    console.print(f"\n[bold cyan]{title}[/]  [dim]{command}", soft_wrap=True)


def headrace(*arguments: str) -> None:
    """A headrace command in the project's folder, as a user gives it.

    Raises:
        CalledProcessError: it failed.
    """
    with started(*arguments) as process:
        code = process.wait()
    if code:
        raise subprocess.CalledProcessError(code, process.args)


def answer(*arguments: str) -> Any:
    """What a headrace command says in JSON.

    Raises:
        CalledProcessError: it failed.
    """
    command = [str(HEADRACE), *arguments, "--json"]
    run = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, check=True, process_group=0)
    return json.loads(run.stdout)


@contextmanager
def background(log: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A headrace command that runs beside the block, and writes to a log file."""
    with (STATE / f"{log}.log").open("wb") as file, started(*arguments, output=file) as process:
        yield process


@contextmanager
def started(*arguments: str, output: BinaryIO | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A headrace command that is ended with the block.

    It is a process group of its own, so that Ctrl-C reaches it once, through us.
    """
    command = [str(HEADRACE), *arguments]
    with ExitStack() as stack:
        with uninterrupted():
            process = subprocess.Popen(
                command, cwd=HERE, stdout=output, stderr=output, process_group=0
            )
            stack.callback(end, process)
        yield process


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Lets signals wait until the end of the block: a process that starts is not forgotten."""
    received: list[int] = []
    handlers = {name: signal.getsignal(name) for name in SIGNALS}
    for name in SIGNALS:
        signal.signal(name, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
    if received:
        raise KeyboardInterrupt


def end(process: subprocess.Popen[bytes]) -> None:
    """Lets a command stop in order; a second Ctrl-C, or a minute, and it is killed."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    finally:
        process.kill()


def stop_broker() -> None:
    """Stops the project's broker, where one was ever started."""
    if STATE.exists():
        command = [str(HEADRACE), "down"]
        subprocess.run(command, cwd=HERE, stdout=subprocess.DEVNULL, check=False)


def register() -> None:
    """Registers the queries, while Spark starts."""
    queries = dashboards.dashboards()
    step(f"Register {len(queries)} queries", "python dashboards.py")
    dashboards.register(queries, Project.open(HERE))
    shapes = {query.name for query in queries}
    console.print(f"  {len(queries)} queries of {len(shapes)} shapes; {EXPLAINED_QUERY} is")
    (text,) = (query.text for query in queries if query.id == EXPLAINED_QUERY)
    console.print(f"  {text}", markup=False, soft_wrap=True)


def await_running(processes: list[subprocess.Popen[bytes]]) -> None:
    """Returns when all pipelines run, and the instances have all partitions.

    Raises:
        RuntimeError: if a process has ended, or not all of them run within three minutes.
    """
    deadline = time.monotonic() + START_SECONDS
    while not is_running(answer("status")):
        if any(process.poll() is not None for process in processes):
            raise RuntimeError(f"A process has ended too early; see the logs in {STATE}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"Not all of it runs within {START_SECONDS:.0f} s; see {STATE}")
        time.sleep(1)


def is_running(status: Any) -> bool:
    """Returns whether a status says that all pipelines run, and instances have partitions."""
    running = {shown["pipeline"] for shown in status["pipelines"] if shown["state"] == "running"}
    instances = [shown for shown in status["queries"] if shown["state"] == "running"]
    owning = [shown for shown in instances if shown["owned"]]
    return running == set(PIPELINES) and len(owning) == INSTANCES


def send() -> datetime:
    """Sends the events, beside a view of the results of one query; returns when they began."""
    begin = traffic.next_begin()
    events = traffic.sendings(begin)
    traffic.write(events, EVENTS)
    step(
        f"Send {len(events):,} events, {traffic.EVENTS_PER_SECOND:,} in a second, and watch",
        f"python traffic.py, headrace query results {SHOWN_QUERY} --follow",
    )
    with started("query", "results", SHOWN_QUERY, "--follow"):
        traffic.send(events, Project.open(HERE))
    return begin


def comparisons(until: datetime) -> list[proof.Comparison]:
    """Returns the results of windows that end by a time, beside those of DuckDB, by shape."""
    queries = dashboards.dashboards()
    database = proof.Database(EVENTS)
    expected = {key: row for query in queries for key, row in database.groups(query, until).items()}
    console.print(f"  DuckDB: {len(expected):,} groups in windows until {until:%H:%M:%S} UTC")
    servers = answer("status")["kafka"]["bootstrap_servers"]
    results = proof.Results(servers, RESULTS_TOPIC, until)
    try:
        with console.status("Waiting for results"):
            results.read(expected)
    finally:
        results.close()
    count = sum(map(len, results.groups.values()))
    console.print(f"  Topic {RESULTS_TOPIC}: {count:,} results of these windows")
    return list(proof.compared(queries, expected, results.groups))


def show(compared: list[proof.Comparison]) -> bool:
    """Shows a row for each shape of queries; whether all of them agree."""
    table = Table(title="Side by side", title_justify="left", box=SIMPLE_HEAD, show_footer=True)
    table.add_column("shape", "all", no_wrap=True)
    for name in proof.FIGURES:
        total = sum(getattr(shape, name) for shape in compared)
        table.add_column(name, f"{total:,}", justify="right")
    for shape in compared:
        figures = (f"{getattr(shape, name):,}" for name in proof.FIGURES)
        table.add_row(shape.name, *figures, style="" if shape.agrees else "bold red")
    console.print(table)
    agree = all(shape.agrees for shape in compared)
    console.print(proof.sentence(compared), style="bold green" if agree else "bold red")
    return agree


if __name__ == "__main__":
    sys.exit(main())
