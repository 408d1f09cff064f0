"""The week of impressions in OpenSearch, BigQuery and Iceberg, each impression exactly once.

``make demo-sinks`` runs it, on the servers of the tests. The pipelines are killed in the middle of
the week and started again. Exit code 0 only if each store holds what the raw file says, day by day.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import astuple

import demo
import proof_sinks
import replay
from demo import answer, console, figures_table, headrace, step
from proof_sinks import Week
from tests.integration.bigquery_server import BigQueryServer
from tests.integration.opensearch_server import OpenSearchServer

from headrace import Project

PROJECT = demo.PROJECT / "sinks"
STATE = PROJECT / demo.STATE
CATALOG = f"sqlite:///{STATE / 'lake' / '_iceberg' / 'catalog.db'}"
PIPELINES = tuple(f"impressions-to-{store}" for store in ("opensearch", "bigquery", "iceberg"))
POLL_SECONDS = 0.5


def main() -> int:
    """Runs the demo; whatever happens, what it started is stopped at the end."""
    with ExitStack() as servers, demo.broker_stopped_at_end(PROJECT):
        return demo_sinks(servers)


def demo_sinks(servers: ExitStack) -> int:
    """Sends the week, runs and kills the pipelines, compares; 0 only if every sum is equal."""
    step("Clean start")
    demo.stop_broker(PROJECT)
    shutil.rmtree(STATE, ignore_errors=True)
    step("Start OpenSearch, and a stand-in for BigQuery")
    opensearch = start_opensearch(servers)
    bigquery = start_bigquery(servers)
    step("Start a Kafka broker", "headrace up")
    headrace("up", project=PROJECT)
    step("Create the topic, the index template and the table of BigQuery", "headrace apply")
    headrace("apply", project=PROJECT)
    step("Send a week of impressions")
    sent = demo.with_progress_bar(send_week)
    step("Run the pipelines, and kill them in the middle", "headrace run --once; kill -9")
    committed = run_until_killed()
    console.print("  By then they had committed", counted(committed), soft_wrap=True)
    step("Run them again until they have caught up", "headrace run --once")
    headrace("run", "--once", project=PROJECT)
    step("Compare the stores with the raw file")
    stores = {
        "OpenSearch": proof_sinks.of_opensearch(opensearch.call),
        "BigQuery": proof_sinks.of_bigquery(bigquery.query),
        "Iceberg": proof_sinks.of_iceberg(CATALOG),
    }
    agree = verdict(sent["impressions"], proof_sinks.of_raw_file(), stores)
    step("Let the ledger say the same", "headrace reconcile")
    reconciled = answer("reconcile", codes=(0, demo.UNBALANCED), project=PROJECT)["pipelines"]
    demo.show_ledger(reconciled)
    return 0 if demo.ledger_line(reconciled) and agree else 1


def start_opensearch(servers: ExitStack) -> OpenSearchServer:
    """Starts the server that the tests use. The first time, its jars are fetched."""
    server = OpenSearchServer(STATE / "opensearch")
    servers.callback(server.kill)
    server.run()
    os.environ["AD_SINKS_OPENSEARCH"] = server.url
    return server


def start_bigquery(servers: ExitStack) -> BigQueryServer:
    """Starts the stand-in that the tests use. The first time, its environment is made."""
    folder = STATE / "bigquery"
    folder.mkdir(parents=True)
    server = BigQueryServer(folder)
    servers.callback(server.kill)
    server.start()
    os.environ["AD_SINKS_BIGQUERY"] = server.settings["endpoint"].reveal()
    os.environ["AD_SINKS_BIGQUERY_STORAGE"] = server.settings["storage_endpoint"].reveal()
    return server


def send_week(on_progress: Callable[[int, int], None]) -> Counter[str]:
    """Sends each row of the raw file as an event; see :func:`replay.replay`."""
    rows = list(replay.rows())
    with Project.open(PROJECT).producer() as producer:
        for number, row in enumerate(rows, start=1):
            exact = {"propensity_score": str(proof_sinks.score(row))}
            producer.send(proof_sinks.TABLE, vars(replay.impression(row)) | exact)
            if number % replay.PROGRESS_EVERY_EVENTS == 0:
                on_progress(number, len(rows))
    return producer.acknowledged


def run_until_killed() -> Counter[str]:
    """Kills the driver and its JVM once each pipeline has committed rows; returns how many.

    Raises:
        RuntimeError: the run ended before.
    """
    command = [str(demo.HEADRACE), "run", "--once"]
    process = subprocess.Popen(command, cwd=PROJECT, process_group=0)
    try:
        while process.poll() is None:
            committed = rows_out()
            if len(committed) == len(PIPELINES):
                return committed
            time.sleep(POLL_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    raise RuntimeError("the run ended before it could be killed")


def counted(rows: Counter[str]) -> str:
    """Returns how many rows each pipeline has written, for people."""
    return ", ".join(f"{rows[name]:,} rows ({name})" for name in PIPELINES)


def rows_out() -> Counter[str]:
    """Returns how many rows each pipeline has written, by `headrace status`."""
    status = answer("status", project=PROJECT)["pipelines"]
    return +Counter({shown["pipeline"]: shown["rows_out"] for shown in status})


def verdict(sent: int, raw: Week, stores: Mapping[str, Week]) -> bool:
    """Shows each day of each store beside the raw file; True only if all are equal."""
    table = figures_table(
        "Side by side: counts and sums", "", "rows", "event ids", "items", "positions", "scores"
    )
    differing = {store: proof_sinks.differing_days(raw, week) for store, week in stores.items()}
    for day in sorted(raw):
        for store, week in {"raw file": raw, **stores}.items():
            values = [f"{value:,}" for value in astuple(week[day])] if day in week else []
            style = "bold red" if day in differing.get(store, ()) else ""
            table.add_row(f"{day:%d %b}  {store}", *values, style=style)
        table.add_section()
    console.print(table)
    for store, days in differing.items():
        if days:
            console.print(f"[red]{store} differs on {', '.join(map(str, days))}", soft_wrap=True)
    agree = sent == sum(day.rows for day in raw.values()) and not any(differing.values())
    console.print("[bold green]They agree." if agree else "[bold red]They do not agree.")
    return agree


if __name__ == "__main__":
    sys.exit(demo.run_alone(__file__, main))
