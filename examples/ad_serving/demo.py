"""The whole example at once: a week with all that goes wrong in it, and the proof of its sums.

``make demo`` runs it. Every step is a ``headrace`` command that you can give yourself in this
folder. Exit code 0 only if lake and PostgreSQL hold what the raw file says.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postgres
import proof
import psycopg
import replay
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace import HeadraceError

PROJECT = Path(__file__).resolve().parent
STATE = ".headrace"
HEADRACE = Path(sys.executable).with_name("headrace")
# The second stage reads the topic that the first one writes, so it runs when that one has ended.
STAGES = (
    ("impressions-to-lake", "impressions-to-stats", "clicks-with-impressions"),
    ("clicks-to-lake", "clicks-to-stats", "conversions-with-clicks"),
)
CHILD_GRACE_SECONDS = 60
INTERRUPTED = 130
UNBALANCED = 6

console = Console(highlight=False)


def main() -> int:
    """Runs the demo; whatever happens, what it started is stopped at the end."""
    with postgres.database() as url, broker_stopped_at_end(PROJECT):
        return demo(url)


def run_alone(program: str, main: Callable[[], int]) -> int:
    """Returns the exit code of a demo, which runs once at a time and may be interrupted."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler)
    with Path(program).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("[red]This demo is already running.")
            return 1
        return _guarded(main)


def _guarded(main: Callable[[], int]) -> int:
    try:
        return main()
    except KeyboardInterrupt:
        console.print("\n[yellow]Interrupted.")
        return INTERRUPTED
    except (HeadraceError, RuntimeError, psycopg.Error) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    except subprocess.CalledProcessError as error:
        console.print(f"[red]{Path(error.cmd[0]).name} {error.cmd[1]} failed.")
        return error.returncode


@contextmanager
def broker_stopped_at_end(project: Path) -> Iterator[None]:
    """Stops the project's broker behind the block; from there on, signals are ignored."""
    try:
        yield
    finally:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        stop_broker(project)


def demo(url: str) -> int:
    """Replays the week, runs the pipelines, compares; 0 only if every sum is right."""
    os.environ["AD_SERVING_POSTGRES"] = url
    step("Clean start")
    stop_broker(PROJECT)
    shutil.rmtree(PROJECT / STATE, ignore_errors=True)
    step("Start a Kafka broker", "headrace up")
    headrace("up")
    step("Create the declared topics", "headrace apply")
    headrace("apply")
    step("Replay a week of impressions, clicks and conversions", "python replay.py")
    acknowledged = with_progress_bar(replay.replay)
    step("Run the pipelines until they have caught up", "headrace run --once")
    headrace("run", "--once")
    step("Compare lake and PostgreSQL with the raw file")
    return verdict(acknowledged, url)


def step(title: str, command: str = "") -> None:
    """Says what comes next, and the command that does it."""
    console.print(f"\n[bold cyan]{title}[/]  [dim]{command}")


def headrace(*arguments: str, project: Path = PROJECT) -> None:
    """A headrace command in a project's folder, as a user gives it.

    It is a process group of its own, so that Ctrl-C reaches it once, through us.

    Raises:
        CalledProcessError: it failed.
    """
    process = subprocess.Popen([str(HEADRACE), *arguments], cwd=project, process_group=0)
    try:
        code = process.wait()
    finally:
        end(process)
    if code:
        raise subprocess.CalledProcessError(code, process.args)


def end(process: subprocess.Popen[bytes]) -> None:
    """Lets a command stop in order; a second Ctrl-C, or a minute, and it is killed."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(CHILD_GRACE_SECONDS)
    finally:
        process.kill()


def answer(*arguments: str, codes: tuple[int, ...] = (0,), project: Path = PROJECT) -> Any:
    """What a headrace command says in JSON.

    Raises:
        CalledProcessError: its exit code is none of ``codes``.
    """
    command = [str(HEADRACE), *arguments, "--json"]
    run = subprocess.run(command, cwd=project, stdout=subprocess.PIPE, check=False)
    if run.returncode not in codes:
        raise subprocess.CalledProcessError(run.returncode, command)
    return json.loads(run.stdout)


def stop_broker(project: Path) -> None:
    """Stops a project's broker, where one was ever started."""
    if (project / STATE).exists():
        command = [str(HEADRACE), "down"]
        subprocess.run(command, cwd=project, stdout=subprocess.DEVNULL, check=False)


def with_progress_bar(
    send: Callable[[Callable[[int, int], None]], Counter[str]],
) -> Counter[str]:
    """Sends events by a function that reports how many of how many are sent."""
    columns = (TextColumn("  events"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("events", total=None)
        return send(lambda sent, total: progress.update(task, completed=sent, total=total))


def verdict(acknowledged: Counter[str], url: str) -> int:
    """Shows what is there beside what the raw file says; 0 only if they agree."""
    week = proof.Week()
    status = {shown["pipeline"]: shown for shown in answer("status")["pipelines"]}
    accounts = proof.accounts(week, status)
    sums = list(proof.sums(week, acknowledged, accounts, url))
    show_stages(status)
    show_accounts(accounts)
    show_sums(sums)
    show_clicks(week, url)
    step("Let the ledger say the same, pipeline by pipeline", "headrace reconcile --recount")
    reconciled = ledger()
    show_ledger(reconciled)
    agree = not any(sum_.missing or sum_.extra for sum_ in sums)
    agree = agree and not any(account.unaccounted for account in accounts)
    agree = agree and not any(status[name]["dead_letters"] for name in status)
    balanced = ledger_line(reconciled)
    console.print("[bold green]They agree." if agree else "[bold red]They do not agree.")
    return 0 if agree and balanced else 1


def figures_table(title: str, *columns: str) -> Table:
    """A table whose columns are numbers, but for the first one."""
    first, *others = columns
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def show_stages(status: proof.Status) -> None:
    """What each pipeline read and wrote, as `headrace status` has it."""
    shown = {
        "in": ("rows_in",),
        "out": ("rows_out",),
        "late": ("late_side_rows",),
        "unmatched": ("join_unmatched_rows",),
        "duplicates": ("lake_duplicate_rows", "duplicate_rows", "join_repeated_events"),
    }
    table = figures_table("What each pipeline did", "pipeline", *shown)
    for stage in STAGES:
        for name in stage:
            values = (
                sum(status[name].get(figure, 0) for figure in names) for names in shown.values()
            )
            table.add_row(name, *(f"{value:,}" for value in values))
        table.add_section()
    console.print(table)


def show_accounts(accounts: list[proof.Account]) -> None:
    """Shows where every event is, to the last one."""
    columns = ("sent", "table", "late or unmatched", "duplicates", "unaccounted")
    table = figures_table("Where every event is", "topic", *columns)
    for account in accounts:
        values = (
            account.sent,
            account.table,
            account.beside,
            account.duplicates,
            account.unaccounted,
        )
        style = "bold red" if account.unaccounted else ""
        table.add_row(account.topic, *(f"{value:,}" for value in values), style=style)
    console.print(table)


def show_sums(sums: list[proof.Sum]) -> None:
    """What is there beside what must be there, compared by ids and values."""
    table = figures_table("Side by side", "", "here", "raw file", "missing", "extra")
    for sum_ in sums:
        values = sum_.actual.total(), sum_.expected.total(), sum_.missing, sum_.extra
        style = "bold red" if sum_.missing or sum_.extra else ""
        table.add_row(sum_.what, *(f"{value:,}" for value in values), style=style)
    console.print(table)


def show_clicks(week: proof.Week, url: str) -> None:
    """Clicks per campaign in the raw file, in the lake and in PostgreSQL."""
    table = figures_table("Clicks per campaign", "", "raw file", "lake", "PostgreSQL")
    raw = Counter(click.campaign for click in week.clicks.values())
    lake = Counter(proof.lake("clicks")["campaign"].to_list())
    counted: Counter[str] = Counter()
    for (_, campaign), clicks in proof.counts(url, proof.CLICKS).items():
        counted[campaign] += clicks
    for name in sorted(raw | lake | counted):
        table.add_row(name, str(raw[name]), str(lake[name]), str(counted[name]))
    console.print(table)


def show_ledger(reconciled: list[dict[str, Any]]) -> None:
    """How many windows of each pipeline are in which state."""
    states = ("balanced", "closing", "open", "unknown", "unbalanced")
    table = figures_table("Windows of the ledger", "pipeline", *states)
    for pipeline in reconciled:
        counted = Counter(window["state"] for window in pipeline["windows"])
        values = (str(counted[state] or "") for state in states)
        table.add_row(pipeline["pipeline"], *values)
    console.print(table)


def ledger() -> list[dict[str, Any]]:
    """Returns what `headrace reconcile` says of each pipeline, with its table counted again."""
    names = [name for stage in STAGES for name in stage]
    balances = answer("reconcile", "--recount", codes=(0, UNBALANCED))["pipelines"]
    return sorted(balances, key=lambda pipeline: names.index(pipeline["pipeline"]))


def ledger_line(reconciled: list[dict[str, Any]]) -> bool:
    """Says in words what the ledger knows; True if it knows something, and of no difference."""
    balanced, unknown, unbalanced = [], [], []
    for pipeline in reconciled:
        name, states = pipeline["pipeline"], {window["state"] for window in pipeline["windows"]}
        if pipeline["breaks"] or pipeline["letters"]["differences"] or "unbalanced" in states:
            unbalanced.append(name)
        elif "balanced" in states and "unknown" not in states:
            balanced.append(name)
        else:
            unknown.append(f"{name} ({next(reasons(pipeline))})")
    console.print(
        f"Ledger, balanced in every window that is over: {', '.join(balanced)}", soft_wrap=True
    )
    for line in unknown:
        console.print(f"Ledger, [yellow]unknown[/]: {line}", soft_wrap=True)
    for name in unbalanced:
        console.print(
            f"Ledger, [bold red]unbalanced[/]: {name}; see `headrace reconcile`", soft_wrap=True
        )
    return bool(balanced) and not unbalanced


def reasons(pipeline: dict[str, Any]) -> Iterator[str]:
    """Why the ledger does not know whether a pipeline balances."""
    yield from (window["unknown"] for window in pipeline["windows"] if window["unknown"])
    yield pipeline["unknown"] or "no window is over"


if __name__ == "__main__":
    sys.exit(run_alone(__file__, main))
