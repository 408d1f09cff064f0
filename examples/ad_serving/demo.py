"""The whole example at once: broker, replay, pipelines, and the proof that nothing is missing.

``make demo`` runs it. Every step is a ``headrace`` command that you can give yourself in this
folder. Exit code 0 only if the lake holds what the raw file holds.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flow
import polars as pl
import replay
from deltalake import DeltaTable
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace import HeadraceError, Pipeline, Topic

PROJECT = Path(__file__).resolve().parent
STATE = PROJECT / ".headrace"
LAKE = STATE / "lake"
HEADRACE = Path(sys.executable).with_name("headrace")
PIPELINES = (flow.impressions_to_lake, flow.clicks_to_lake)
CHILD_GRACE_SECONDS = 60
INTERRUPTED = 130

console = Console()


@dataclass(frozen=True)
class Landed:
    """What one table of the lake holds, and how it got there."""

    table: str
    events_in: int
    rows_out: int
    files: int
    duplicates: int
    dead_letters: int
    messages_per_second: float
    campaigns: Counter[str]

    @property
    def complete(self) -> bool:
        """Every event once, none refused."""
        return self.rows_out == self.events_in and not self.duplicates and not self.dead_letters


def main() -> int:
    """Runs the demo; whatever happens, what it started is stopped at the end."""
    for name in (signal.SIGTERM, signal.SIGHUP):
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
        return demo()
    except KeyboardInterrupt:
        console.print("\n[yellow]Interrupted.")
        return INTERRUPTED
    except HeadraceError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    except subprocess.CalledProcessError as error:
        console.print(f"[red]`headrace {error.cmd[1]}` failed with exit code {error.returncode}.")
        return error.returncode
    finally:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        stop_broker()


def demo() -> int:
    """Replays the week, runs the pipelines, compares; 0 only if raw file and lake agree."""
    step("Clean start")
    stop_broker()
    shutil.rmtree(STATE, ignore_errors=True)
    step("Start a Kafka broker", "headrace up")
    headrace("up")
    step("Create the declared topics", "headrace apply")
    headrace("apply")
    step("Replay a week of impressions and clicks", "python replay.py")
    sent = replayed()
    step("Run the pipelines until they have caught up", "headrace run --once")
    headrace("run", "--once")
    step("Read the lake back")
    return verdict(sent)


def step(title: str, command: str = "") -> None:
    """Says what comes next, and the command that does it."""
    console.print(f"\n[bold cyan]{title}[/]  [dim]{command}", highlight=False)


def headrace(*arguments: str) -> None:
    """A headrace command in the project's folder, as a user gives it.

    It is a process group of its own, so that Ctrl-C reaches it once, through us.

    Raises:
        CalledProcessError: it failed.
    """
    process = subprocess.Popen([str(HEADRACE), *arguments], cwd=PROJECT, process_group=0)
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


def answer(*arguments: str) -> Any:
    """What a headrace command says in JSON."""
    command = [str(HEADRACE), *arguments, "--json"]
    run = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def stop_broker() -> None:
    """Stops the project's broker, where one was ever started."""
    if STATE.exists():
        command = [str(HEADRACE), "down"]
        subprocess.run(command, cwd=PROJECT, stdout=subprocess.DEVNULL, check=False)


def replayed() -> replay.Replayed:
    """The week, sent, with a progress bar."""
    total = sum(1 for _ in replay.rows())
    columns = (TextColumn("  rows"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("rows", total=total)
        return replay.replay(lambda count: progress.update(task, completed=count))


def verdict(sent: replay.Replayed) -> int:
    """Shows what landed beside what the raw file says; 0 only if they agree."""
    counts = (sent.impressions, sent.clicks)
    landed = [landing(*expected) for expected in zip(PIPELINES, counts, strict=True)]
    raw = raw_counts()
    show_landed(landed)
    show_campaigns(raw, landed)
    complete = all(table.complete for table in landed)
    agree = complete and raw == [table.campaigns for table in landed]
    console.print("[bold green]They agree." if agree else "[bold red]They do not agree.")
    return 0 if agree else 1


def landing(pipeline: Pipeline, events_in: int) -> Landed:
    """One pipeline's table as it is in the lake now."""
    table = str(LAKE / pipeline.sink.table)
    rows = pl.scan_delta(table).select("event_id", "campaign").collect()
    return Landed(
        table=pipeline.sink.table,
        events_in=events_in,
        rows_out=rows.height,
        files=len(DeltaTable(table).file_uris()),
        duplicates=rows.height - rows["event_id"].n_unique(),
        dead_letters=dead_letters(pipeline.sources[0].topic),
        messages_per_second=progress(pipeline)["records_per_second"],
        campaigns=Counter(rows["campaign"].to_list()),
    )


def dead_letters(topic: Topic) -> int:
    """What `headrace dead-letters list` counts of a topic."""
    topics = answer("dead-letters", "list")["topics"]
    return next(counts["count"] for counts in topics if counts["topic"] == topic.name)


def progress(pipeline: Pipeline) -> dict[str, Any]:
    """What `headrace status` says of a pipeline."""
    figures: list[dict[str, Any]] = answer("status")["pipelines"]
    return next(shown for shown in figures if shown["pipeline"] == pipeline.name)


def raw_counts() -> list[Counter[str]]:
    """Impressions and clicks per campaign, counted in the raw file."""
    rows = list(replay.rows())
    clicked = (row["campaign"] for row in rows if row["click"] == "1")
    return [Counter(row["campaign"] for row in rows), Counter(clicked)]


def show_landed(landed: list[Landed]) -> None:
    """What went in and what came out, a column a table."""
    names = (result.table for result in landed)
    table = Table("", *names, title="What landed", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in (
        "events_in",
        "rows_out",
        "files",
        "duplicates",
        "dead_letters",
        "messages_per_second",
    ):
        values = (f"{getattr(result, name):,.0f}" for result in landed)
        table.add_row(name.replace("_", " "), *values)
    console.print(table)
    console.print("[dim]messages per second: of the last batch, Python workers and JVM still cold")


def show_campaigns(raw: list[Counter[str]], landed: list[Landed]) -> None:
    """Clicks per campaign, from the lake and from the raw file."""
    (_, raw_clicks), (_, lake) = raw, landed
    table = Table("campaign", title="Clicks per campaign", title_justify="left")
    table.add_column("in the lake", justify="right")
    table.add_column("in the raw file", justify="right")
    for campaign in sorted(raw_clicks | lake.campaigns):
        table.add_row(campaign, str(lake.campaigns[campaign]), str(raw_clicks[campaign]))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
