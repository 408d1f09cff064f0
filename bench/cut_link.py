"""What the backlog of a site that was cut off costs the live records of another one.

Three brokers stand for the central site and two others, `live` and `cut`. Records are produced at
a steady rate at both all the time, and a mirror each, run by `headrace mirror run` at the central
site, copies them there. Then the link to `cut` is cut. Only the link is: the broker has a listener
of its own for the mirror, whose advertised port is that of a TCP forwarder, and the forwarder is
frozen (SIGSTOP). Producers at the site go on, with more records than before, so that there is a
backlog to copy when the link is back. A consumer at the central site notes all the while how long
each record of `live` took. Both copies must hold every record once, in order; otherwise there are
no figures.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from bench.cluster import WORK, Broker, opened_in
from bench.command import exit_code, show
from bench.driver import SystemFailedError
from bench.events import impressions_topic
from bench.forwarder import Link, linked
from bench.live_traffic import PARTITIONS, Arrival, Arrivals, Traffic, quantile
from bench.mirror_copies import check, contents
from bench.peers.programs import running
from bench.results import Row, row
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.clients import client_config
from headrace.kafka.client.offsets import group_offsets, latest_offsets
from headrace.kafka.embedded.layout import LAYOUT_FILE, broker_config, settled_layout
from headrace.model import TopicPartition
from headrace.runtime.files.json_files import write_json
from headrace.runtime.java.installation import Java, find_java
from headrace.runtime.servers.ports import LOOPBACK, free_ports
from headrace.settings.model import EmbeddedKafka, KafkaSettings

BENCHMARK = "cut-link"
LIVE, CUT = "live", "cut"
TOPIC = "clicks"
RATE = 1_000
BACKLOG_RATE = 10_000
WARM_UP_SECONDS = 30
BEFORE_SECONDS = 60
CUT_SECONDS = 120
QUICK_WARM_UP_SECONDS = 5
QUICK_BEFORE_SECONDS = 10
QUICK_CUT_SECONDS = 15
CAUGHT_UP_SECONDS = 300.0
LOOK_SECONDS = 0.1
PHASES = ("before", "cut", "catching-up")
LAG_UNITS = {"p50_ms": "ms", "p99_ms": "ms", "max_ms": "ms"}
CATCH_UP_UNITS = {"caught_up_after_seconds": "s", "backlog_messages_per_second": "messages/s"}


@dataclass(frozen=True)
class Lengths:
    """How many seconds each part takes; catching up takes what it takes."""

    warm_up: int
    before: int
    cut: int


FULL = Lengths(WARM_UP_SECONDS, BEFORE_SECONDS, CUT_SECONDS)
QUICK = Lengths(QUICK_WARM_UP_SECONDS, QUICK_BEFORE_SECONDS, QUICK_CUT_SECONDS)


@dataclass(frozen=True)
class Sites:
    """The brokers of the sites, as those at the site itself reach them.

    Attributes:
        center: the central site, where mirrors run.
        others: the other sites, by name.
        addresses: of the others, as the mirrors reach them.
        link: to the site that is cut off.
    """

    center: Broker
    others: Mapping[str, Broker]
    addresses: Mapping[str, str]
    link: Link


class CopiedTopic:
    """How far a mirror is, as its committed offsets tell: those are of the source."""

    def __init__(self, sites: Sites, site: str) -> None:
        self._source = client_config(KafkaSettings(), sites.others[site].bootstrap)
        self._target = client_config(KafkaSettings(), sites.center.bootstrap)
        self._group = f"headrace.mirror.{site}"
        numbers = range(PARTITIONS)
        self._partitions = [TopicPartition(TOPIC, number) for number in numbers]
        self._copies = [TopicPartition(copy_name(site), number) for number in numbers]

    def look(self) -> tuple[int, int]:
        """Returns how many records are copied, and how many are not yet."""
        copied = sum(group_offsets(self._target, self._group, self._copies).values())
        ends = latest_offsets(self._source, self._partitions).values()
        return copied, sum(end for end, _ in ends) - copied

    def await_lag(self, records: int, check: Callable[[], None]) -> None:
        """Returns once some are copied, and no more than these are missing.

        ``check`` raises when a mirror has ended.

        Raises:
            SystemFailedError: more are missing for too long.
        """
        deadline = time.monotonic() + CAUGHT_UP_SECONDS
        copied, lag = self.look()
        while not copied or lag > records:
            check()
            if time.monotonic() > deadline:
                raise SystemFailedError(f"{self._group}: {copied} copied, {lag} missing")
            time.sleep(LOOK_SECONDS)
            copied, lag = self.look()


def copy_name(site: str) -> str:
    """The topic that the topic of a site is copied to."""
    return f"{site}.{TOPIC}"


@dataclass(frozen=True)
class CatchUp:
    """How the mirror of the cut site caught up.

    Attributes:
        copied: records, from the moment when the link was back.
        seconds: from that moment.
        copying_seconds: from the first commit after it.
    """

    copied: int
    seconds: float
    copying_seconds: float

    def figures(self) -> dict[str, float]:
        """By metric of :data:`CATCH_UP_UNITS`."""
        rate = self.copied / self.copying_seconds
        return dict(zip(CATCH_UP_UNITS, (self.seconds, rate), strict=True))


def await_caught_up(topic: CopiedTopic, check: Callable[[], None]) -> CatchUp:
    """Returns once no more than a second's live records are missing.

    Raises:
        SystemFailedError: more are missing for too long.
    """
    began = copying_since = time.monotonic()
    copied_before, lag = topic.look()
    copied = copied_before
    while lag > RATE:
        check()
        now = time.monotonic()
        if copied == copied_before:
            copying_since = now
        if now - began > CAUGHT_UP_SECONDS:
            raise SystemFailedError(
                f"{lag} records are missing {CAUGHT_UP_SECONDS:g} s after a cut"
            )
        time.sleep(LOOK_SECONDS)
        copied, lag = topic.look()
    ended = time.monotonic()
    return CatchUp(copied - copied_before, ended - began, ended - copying_since)


def measure(sites: Sites, lengths: Lengths, out: Path) -> dict[str, dict[str, float]]:
    """The figures of each phase, by metric."""
    for name, broker in sites.others.items():
        make_topic(broker, TOPIC)
        make_topic(sites.center, copy_name(name))
    live = Traffic(sites.others[LIVE], TOPIC, RATE)
    cut = Traffic(sites.others[CUT], TOPIC, RATE)
    topics = [CopiedTopic(sites, site) for site in sites.others]
    with ExitStack() as stack:
        check_mirrors = stack.enter_context(running_mirrors(sites, out))
        arrivals = stack.enter_context(closing(Arrivals(sites.center, copy_name(LIVE))))
        with taking(arrivals, live) as taken, cut.sending(), live.sending():
            for topic in topics:
                topic.await_lag(RATE, check_mirrors)
            time.sleep(lengths.warm_up)
            marks, catch_up = cut_off(sites, lengths, check_mirrors)
        for topic in topics:
            topic.await_lag(0, check_mirrors)
    for name, broker in sites.others.items():
        copied = contents(sites.center.bootstrap, copy_name(name), PARTITIONS)
        check(copied, contents(broker.bootstrap, TOPIC, PARTITIONS))
    found = dict(zip(PHASES, lags(taken.result(), marks), strict=True))
    found[PHASES[-1]] |= catch_up.figures()
    return found


def cut_off(sites: Sites, lengths: Lengths, check: Callable[[], None]) -> tuple[list[int], CatchUp]:
    """Goes through the phases; returns when each began and the last ended, in microseconds."""
    topic, marks = CopiedTopic(sites, CUT), [_now_us()]
    time.sleep(lengths.before)
    check()
    sites.link.cut()
    marks.append(_now_us())
    with Traffic(sites.others[CUT], TOPIC, BACKLOG_RATE).sending():
        time.sleep(lengths.cut)
    check()
    sites.link.mend()
    marks.append(_now_us())
    catch_up = await_caught_up(topic, check)
    return [*marks, _now_us()], catch_up


def _now_us() -> int:
    return time.time_ns() // 1000


def lags(taken: Iterable[Arrival], marks: Sequence[int]) -> list[dict[str, float]]:
    """The figures of :data:`LAG_UNITS` of the records that were produced between two marks each."""
    arrivals = list(taken)
    return [
        _lag(sorted(arrival.lag_ms for arrival in arrivals if first <= arrival.sent_us < end))
        for first, end in itertools.pairwise(marks)
    ]


def _lag(ordered: Sequence[float]) -> dict[str, float]:
    if not ordered:
        raise SystemFailedError("no record was produced in a phase")
    found = quantile(ordered, 0.5), quantile(ordered, 0.99), ordered[-1]
    return dict(zip(LAG_UNITS, found, strict=True))


@contextmanager
def taking(arrivals: Arrivals, traffic: Traffic) -> Iterator[Future[list[Arrival]]]:
    """Takes records beside the block, in which they are sent; at its end, waits for the rest."""
    ending = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(_take, arrivals, traffic, ending)
        try:
            yield taken
        finally:
            ending.set()


def _take(arrivals: Arrivals, traffic: Traffic, ending: threading.Event) -> list[Arrival]:
    found: list[Arrival] = []
    while not ending.is_set():
        found += arrivals.take(LOOK_SECONDS)
    return found + arrivals.take_rest(traffic)


def make_topic(broker: Broker, name: str) -> None:
    """Makes a topic at a site."""
    config = client_config(KafkaSettings(), broker.bootstrap)
    apply_changes(config, plan_topics([impressions_topic(name, PARTITIONS)], {}))


@contextmanager
def running_mirrors(sites: Sites, out: Path) -> Iterator[Callable[[], None]]:
    """Runs a mirror of each other site; gives what raises when one has ended."""
    out.mkdir()
    for name, text in project(sites).items():
        (out / name).write_text(text)
    command = (sys.executable, "-m", "headrace.cli", "mirror", "run")
    with running([(*command, site) for site in sites.others], out) as check:
        yield check


def project(sites: Sites) -> dict[str, str]:
    """The files of the central site's project, by name."""
    kafka = "".join(
        f'\n[sites.{name}.kafka]\nbootstrap_servers = "{address}"\n'
        for name, address in sites.addresses.items()
    )
    mirrors = "".join(
        f'{name}_copy = Topic("{copy_name(name)}", partitions={PARTITIONS})\n'
        f'{name} = Mirror("{name}", source="{name}", topics={{"{TOPIC}": {name}_copy}})\n'
        for name in sites.addresses
    )
    return {
        "headrace.toml": (
            '[project]\nname = "bench"\nsite = "central"\nmodules = ["flow"]\n\n'
            f'[kafka]\nbootstrap_servers = "{sites.center.bootstrap}"\n{kafka}'
        ),
        "flow.py": (
            f'"""The mirrors of a run."""\n\nfrom headrace import Mirror, Topic\n\n{mirrors}'
        ),
    }


def second_listener(folder: Path, port: int, advertised_port: int) -> dict[str, str]:
    """Settings of a new broker in a folder: a listener beside its own, advertised elsewhere."""
    layout = settled_layout(folder / "kafka", EmbeddedKafka())
    write_json(folder / "kafka" / LAYOUT_FILE, asdict(layout))
    own = broker_config(layout.brokers[0], layout, folder)
    kinds = "listener.security.protocol.map"
    return {
        "listeners": f"{own['listeners']},LINK://{LOOPBACK}:{port}",
        "advertised.listeners": f"{own['advertised.listeners']},LINK://{LOOPBACK}:{advertised_port}",
        kinds: f"{own[kinds]},LINK:PLAINTEXT",
    }


@contextmanager
def opened_sites(java: Java) -> Iterator[Sites]:
    """The brokers of all sites, and the link that can be cut; gone when the block ends."""
    shutil.rmtree(WORK, ignore_errors=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, WORK, ignore_errors=True)
        center = stack.enter_context(opened_in(WORK / "center", java))
        live = stack.enter_context(opened_in(WORK / LIVE, java))
        port, link_port = free_ports(2)
        config = second_listener(WORK / CUT, port, link_port)
        cut = stack.enter_context(opened_in(WORK / CUT, java, config))
        link = stack.enter_context(linked(link_port, port))
        addresses = {LIVE: live.bootstrap, CUT: f"{LOOPBACK}:{link_port}"}
        yield Sites(center, {LIVE: live, CUT: cut}, addresses, link)


def run(lengths: Lengths, console: Console) -> list[Row]:
    """The whole benchmark."""
    console.print("starting the brokers")
    with opened_sites(find_java(os.environ)) as sites:
        console.print(f"{RATE:,} records/s at each site; the cut takes {lengths.cut} s")
        found = measure(sites, lengths, WORK / "project")
    return [
        row(BENCHMARK, phase, metric, unit, [figures[metric]])
        for phase, figures in found.items()
        for metric, unit in (LAG_UNITS | CATCH_UP_UNITS).items()
        if metric in figures
    ]


def settings(lengths: Lengths) -> dict[str, object]:
    """What the figures were measured with."""
    work = (
        f"{RATE:,} records/s at each site, {BACKLOG_RATE:,} more at the cut one during the cut; "
        f"{lengths.before} s before it, {lengths.cut} s cut off"
    )
    return {"work": work, "rounds": 1, "partitions": PARTITIONS}


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.cut_link", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help=f"a cut of {QUICK_CUT_SECONDS} s, nothing kept"
    )
    chosen = parser.parse_args(given)
    lengths = QUICK if chosen.quick else FULL

    def work(console: Console) -> int:
        rows = run(lengths, console)
        show(console, BENCHMARK, rows, None if chosen.quick else settings(lengths))
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
