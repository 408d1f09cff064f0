"""The whole path at once: HTTP, Kafka, offline files, lake and PostgreSQL, and then the sums.

``make demo-errors`` runs it. Every step but the sending is a ``headrace`` command that you can
give yourself in this folder. Exit code 0 only if nothing is missing, and nothing is there twice.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import commands
import postgres
import proof
import psycopg
import traffic
from client import Client
from rich.console import Console
from rich.table import Table

OFFLINE = commands.STATE / "offline"
EVENTS = 1_000
BATCH = 250
SLOW_EVENTS = 750
SLOW_RATE = 125
SPOOL_SECONDS = 60.0
INTERRUPTED = 130

console = Console(highlight=False)


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
        with postgres.database() as url:
            return _tidy(url)
    except KeyboardInterrupt:
        console.print("\n[yellow]Interrupted.")
        return INTERRUPTED
    except (RuntimeError, psycopg.Error) as error:
        console.print(f"[red]{error}")
        return 1
    except subprocess.CalledProcessError as error:
        console.print(f"[red]{Path(error.cmd[0]).name} {error.cmd[1]} failed. {error.stdout or ''}")
        return error.returncode


def _tidy(url: str) -> int:
    try:
        return demo(url)
    finally:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        commands.stop()


def demo(url: str) -> int:
    """Sends, loads, runs, and compares; 0 only if every sum is right."""
    step("Clean start")
    commands.stop()
    shutil.rmtree(commands.STATE, ignore_errors=True)
    step("Create the tables in PostgreSQL", "psql --file schema.sql")
    prepare(url)
    step("Start Kafka and the HTTP service", "headrace up")
    commands.run("up")
    step("Create the declared topics", "headrace apply")
    commands.run("apply")
    clients = sent()
    loads = loaded(url)
    wait_for_spool(clients[0])
    step("Run the pipelines until they have caught up", "headrace run --once")
    commands.run("run", "--once")
    step("Compare the sums")
    return verdict([*proof.of_http(clients), *proof.of_files(loads, url)])


def step(title: str, command: str = "") -> None:
    """Says what comes next, and the command that does it."""
    console.print(f"\n[bold cyan]{title}[/]  [dim]{command}")


def sent() -> list[Client]:
    """Sends events of three programs over HTTP, of the last more than its token allows."""
    step(
        "Create a token for each project",
        "headrace tokens create NAME --project-id ... --account ...",
    )
    address = commands.ingest_address()
    limits = ((), (), ("--events-per-second", str(SLOW_RATE)))
    shop, warehouse, app = clients = [
        Client(address, project, commands.new_token(project, *limit))
        for project, limit in zip(traffic.PROJECTS, limits, strict=True)
    ]
    step("Send occurrences over HTTP", "POST /v1/topics/occurrences/events")
    now = datetime.now(UTC)
    for client, count, compress in (shop, EVENTS, False), (warehouse, EVENTS, True):
        for batch in batches(client.project, count, now):
            client.send(batch, compress=compress)
    console.print(f"  shop and warehouse: {2 * EVENTS} accepted, the warehouse's in gzip")
    send_a_bad_one(shop, now)
    send_again(shop, now)
    for batch in batches(app.project, SLOW_EVENTS, now):
        app.send(batch)
    if not app.waits:
        raise RuntimeError("nothing was answered with 429")
    waits = ", ".join(f"{seconds} s" for seconds in app.waits)
    console.print(f"  app, {SLOW_RATE} events/s allowed: 429, Retry-After {waits}; then accepted")
    return clients


def batches(project: traffic.Project, count: int, now: datetime) -> Iterator[list[traffic.Event]]:
    """Yields ``count`` occurrences in batches, one for each request."""
    for start in range(0, count, BATCH):
        yield [traffic.occurrence(project, start + i, now) for i in range(BATCH)]


def send_a_bad_one(shop: Client, now: datetime) -> None:
    """Sends a batch of two events, one of them invalid: the other is accepted."""
    good, bad = (traffic.occurrence(shop.project, EVENTS + i, now) for i in range(2))
    shop.send([good, bad | {"level": "catastrophe"}])
    (verdict_,) = shop.rejected
    console.print(f"  an invalid event in a batch: {verdict_['code']}: {verdict_['detail']}")


def send_again(shop: Client, now: datetime) -> None:
    """Sends the same events with the same ids, like a client that got no answer."""
    shop.send(next(batches(shop.project, EVENTS, now)))
    console.print(f"  {BATCH} events sent a second time, with the same ids: accepted again")


def loaded(url: str) -> dict[str, list[proof.Load]]:
    """Loads the offline files into Kafka and into PostgreSQL, two times each."""
    traffic.write_offline_files(OFFLINE)
    folder = str(OFFLINE.relative_to(commands.FOLDER))
    step("Load offline files into Kafka, twice", "headrace load-offline-files DIR --into ...")
    into_kafka = ("--into", "raw_item=raw-items")
    kafka = [show_load(commands.load(folder, *into_kafka)) for _ in range(2)]
    step("Load them into PostgreSQL, twice", "headrace load-offline-files DIR --postgres URL")
    tables = [show_load(commands.load(folder, url=proof.in_schema(url))) for _ in range(2)]
    return {"Kafka": kafka, "PostgreSQL": tables}


def prepare(url: str) -> None:
    """Creates the example's schema, empty."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((commands.FOLDER / "schema.sql").read_bytes())


def show_load(load: proof.Load) -> proof.Load:
    """Prints what a load did, on one line."""
    dead = ", ".join(f"{count} {reason}" for reason, count in load["dead"].items()) or "none"
    count = sum(load["loaded"].values())
    console.print(f"  {count} loaded, {load['skipped']} done before, dead letters: {dead}")
    return load


def wait_for_spool(client: Client) -> None:
    """Waits until the topic has the events that were spooled while Kafka was slow."""
    give_up = time.monotonic() + SPOOL_SECONDS
    while client.metric("headrace_ingest_spool_events") and time.monotonic() < give_up:
        time.sleep(0.2)


def verdict(sums: list[proof.Sum]) -> int:
    """Shows what is there beside what must be; 0 only if they agree."""
    table = Table("", "actual", "expected", "missing", "too many")
    for column in table.columns[1:]:
        column.justify = "right"
    for proved in sums:
        figures = proved.actual.total(), proved.expected.total(), proved.missing, proved.extra
        wrong = proved.missing or proved.extra
        table.add_row(proved.what, *map(str, figures), style="bold red" if wrong else "")
    console.print(table)
    right = not any(proved.missing or proved.extra for proved in sums)
    console.print("[bold green]All sums are right." if right else "[bold red]A sum is wrong.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
