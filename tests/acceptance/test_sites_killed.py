"""Instances, links and brokers of two sites fail; what is at each place is judged to the record.

Clicks of site waw are mirrored to a central site, merged there with its own, and dispatched to waw
and to a third site, par, whose cluster is the central one. A pipeline keeps them in a lake, another
one the latest of each user in profiles.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
from confluent_kafka import TopicPartition
from tests.acceptance.project import kill_session
from tests.drills.hanging_transactions import end_hanging_transactions
from tests.drills.run import DrillRun
from tests.integration.redis_server import RedisServer
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.clients import client_config, consumer, producer
from headrace.kafka.group.groups import describe_group
from headrace.kafka.origin import origins
from headrace.settings.model import KafkaSettings

HEADRACE = (sys.executable, "-m", "headrace.cli")
PARTITIONS = 2
HOMES = ("waw", "par", None)
LOOK_AFTER_SECONDS = 20
WINDOW_SECONDS = 60
UNBALANCED = 6
MAX_MEMORY_BYTES = 700_000_000  # of a merger
CENTRAL, SITE = "central", "waw"
KILLED, FROZEN = signal.SIGKILL, signal.SIGSTOP
Run = tuple[str, ...]
MIRROR: Run = (CENTRAL, "mirror", "run", "waw")
MERGER: Run = (CENTRAL, "merger", "run", "merge")
DISPATCHER: Run = (CENTRAL, "dispatcher", "run", "dispatch")
PIPELINES: tuple[Run, ...] = ((CENTRAL, "run", "clicks-to-lake"), (SITE, "run", "users"))
LINKS = (MIRROR, MIRROR, MERGER, MERGER)
GROUPS = {MIRROR: "headrace.mirror.waw", MERGER: "headrace.merger.merge"}
# Each topic with its site; the merger takes its sources in the order of SOURCES.
SENT = (SITE, "clicks")
COPY, LOCAL = (CENTRAL, "waw.clicks"), (CENTRAL, "local.clicks")
OUT, LATE = (CENTRAL, "clicks"), (CENTRAL, "clicks.late")
DISPATCHED = {"waw": (SITE, "clicks.elsewhere"), "par": (CENTRAL, "clicks.par")}
SOURCES = (SENT, LOCAL)
# What the ledger calls the links: by their targets.
MIRRORED, MERGED = "waw.clicks at central", "clicks"
ELSEWHERE, PAR = "clicks.elsewhere at waw", "clicks.par at par"
LINK_TARGETS = (MIRRORED, MERGED, ELSEWHERE, PAR)
EVENTS = f'''
"""What is clicked, at any site."""

from dataclasses import dataclass
from datetime import datetime

from headrace import Topic


@dataclass(frozen=True)
class Click:
    """A click."""

    event_id: str
    event_time: datetime
    user: str
    home: str | None


def topic(name):
    """A topic of clicks."""
    return Topic(
        name,
        event=Click,
        partitions={PARTITIONS},
        event_id="event_id",
        event_time="event_time",
    )
'''
FLOWS = {
    CENTRAL: """
from datetime import timedelta
from headrace import Dispatcher, Home, Lake, Merger, Mirror, Pipeline
from events import topic

waw_clicks, local_clicks = topic("waw.clicks"), topic("local.clicks")
clicks, late_clicks = topic("clicks"), topic("clicks.late")
waw = Mirror("waw", source="waw", topics={"clicks": waw_clicks})
merge = Merger(
    "merge", [waw_clicks, local_clicks], clicks, late_clicks,
    allowed_lateness=timedelta(seconds=10), idle_timeout=timedelta(minutes=10),
)
clicks_to_lake = Pipeline("clicks-to-lake", clicks, Lake("clicks", partition_by=("day",)))
dispatch = Dispatcher(
    "dispatch",
    clicks,
    {"waw": "clicks.elsewhere", "par": "clicks.par"},
    home=Home("home"),
    commit_every=timedelta(seconds=5),
)
""",
    SITE: """
from datetime import timedelta
from headrace import Latest, Pipeline, Profiles
from events import topic

clicks_elsewhere = topic("clicks.elsewhere")
users = Pipeline(
    "users",
    clicks_elsewhere,
    Profiles(
        "users", key="user", ttl=timedelta(days=1), lists={"clicks": Latest(3)}, event_id="event_id"
    ),
)
""",
}
pytestmark = pytest.mark.timeout(1500)


class Row(NamedTuple):
    """A record, in the order of a merger: by time, place of its source, and number there."""

    time_ms: int
    place: int
    number: int

    @property
    def home(self) -> str | None:
        return HOMES[self.number // PARTITIONS % len(HOMES)]

    @property
    def value(self) -> bytes:
        at = datetime.fromtimestamp(self.time_ms / 1000, UTC).isoformat()
        click = {"event_id": f"{self.place}-{self.number}", "event_time": at, "home": self.home}
        return json.dumps(click | {"user": f"u{self.number % 50}"}).encode()


class Traffic:
    """Records into the topics of both sites, 200 a second, until the block ends."""

    def __init__(self, senders: dict[tuple[str, str], Any]) -> None:
        self._senders = senders
        self.acknowledged = dict.fromkeys(senders, 0)
        self.number = self._more = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        assert [sender.flush(FLUSH_SECONDS) for sender in self._senders.values()] == [0, 0]

    def send_at_once(self, records: int) -> None:
        """So many more into each topic."""
        self._more += records

    def acknowledged_number(self) -> int:
        """The number that all records have which are not acknowledged yet, or a higher one."""
        number = self.number
        wait_for_drill(lambda: min(self.acknowledged.values()) >= number)
        return number

    def _run(self) -> None:
        while not self._end.wait(0.1):
            more, self._more = self._more, 0
            last = self.number + 10 + more
            for place, (topic, sender) in enumerate(self._senders.items()):
                for number in range(self.number, last):
                    row = Row(int(time.time() * 1000), place, number)
                    sender.produce(
                        topic[1],
                        row.value,
                        b"%d-%d" % (place, number),
                        partition=number % PARTITIONS,
                        timestamp=row.time_ms,
                        on_delivery=self._reports(topic),
                    )
                sender.poll(0)
            self.number = last

    def _reports(self, topic: tuple[str, str]) -> Any:
        def delivered(error: object, _: object) -> None:
            self.acknowledged[topic] += error is None

        return delivered


class Read:
    """The committed records of a topic, by partition in order.

    Each is checked to be as it was sent; ``origins``: by partition, the offsets at the first site.
    """

    def __init__(self, config: dict[str, str], topic: str, *, keeps_time: bool = True) -> None:
        self.rows: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self.origins: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._keeps_time = keeps_time
        self._reader = consumer(config, tuning={"enable.partition.eof": "false"})
        self._reader.assign(
            [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        )

    def more(self, seconds: float = 0.2) -> bool:
        """Reads what comes in that time; returns whether there was something."""
        messages = self._reader.consume(100_000, seconds)
        for message in messages:
            if message.error() is None:  # else the client has lost a broker that was killed
                self._take(message)
        return bool(messages)

    @property
    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows for row in rows]

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    def _take(self, message: Any) -> None:
        headers = dict(message.headers() or ())
        time_ms = message.timestamp()[1]
        if not self._keeps_time:
            time_ms = int(headers["headrace-timestamp"])
        row = Row(time_ms, *map(int, message.key().split(b"-")))
        assert message.value() == row.value
        self.rows[message.partition()].append(row)
        first = origins(message.headers() or ())[:1]
        self.origins[message.partition()] += [origin.offset for origin in first]


class Sites:
    """A project for each site, and what runs between them; without profiles, waw has none."""

    def __init__(self, folder: Path, clusters: dict[str, Any], redis_url: str = "") -> None:
        self.folder = folder
        self.clusters = {site: running.cluster for site, running in clusters.items()}
        self.servers = {site: running.bootstrap_servers for site, running in clusters.items()}
        self.configs = {
            site: client_config(KafkaSettings(), address) for site, address in self.servers.items()
        }
        self.ended: list[tuple[str, ...]] = []
        self.running: dict[Run, list[subprocess.Popen[bytes]]] = {}
        self.peak_bytes = 0
        self._reads: dict[tuple[str, str], Read] = {}
        servers = {"waw": self.servers[SITE], "par": self.servers[CENTRAL]}
        targets = [
            f'[sites.{site}.kafka]\nbootstrap_servers = "{address}"\n'
            for site, address in servers.items()
        ]
        settings = {CENTRAL: "".join(targets)}
        if redis_url:
            settings[SITE] = f'[sinks.profiles]\nurl = "{redis_url}"'
        for site, topic in (SENT, DISPATCHED["par"]):
            make_topic(self.configs[site], topic, PARTITIONS)
        for site, text in settings.items():
            self._write_project(site, text)
            subprocess.run((*HEADRACE, "apply"), cwd=self.folder / site, check=True)

    @contextlib.contextmanager
    def running_all(self, *runs: Run) -> Iterator[None]:
        """They run until the block ends, and none ends by itself."""
        try:
            for run in runs:
                self.running.setdefault(run, []).append(self._start(run))
            yield
            assert all(process.poll() is None for process in self._processes), self.logs()
        finally:
            for process in self._processes:
                process.send_signal(signal.SIGTERM)
            for process in self._processes:
                process.wait(LIMIT_SECONDS)

    def traffic(self) -> Traffic:
        return Traffic({source: producer(self.configs[source[0]]) for source in SOURCES})

    def _write_project(self, site: str, settings: str) -> None:
        folder = self.folder / site
        folder.mkdir()
        (folder / "headrace.toml").write_text(
            f'[project]\nname = "drill"\nmodules = ["flow"]\nsite = "{site}"\n'
            f'[kafka]\nbootstrap_servers = "{self.servers[site]}"\n'
            f"[ledger]\nwindow_seconds = {WINDOW_SECONDS}\n[restart]\nbudget = 100\n"
            f'[spark.config]\n"spark.driver.memory" = "512m"\n{settings}\n'
        )
        (folder / "events.py").write_text(EVENTS)
        (folder / "flow.py").write_text(FLOWS[site])

    @property
    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [process for running in self.running.values() for process in running]

    def _start(self, run: Run) -> subprocess.Popen[bytes]:
        site, *command = run
        with (self.folder / f"{'-'.join(run)}.log").open("ab") as log:
            return subprocess.Popen(
                (*HEADRACE, *command),
                cwd=self.folder / site,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, run: Run) -> None:
        """Kills the instance that runs longest, and starts another one."""
        victim = self.running[run].pop(0)
        self.note_memory()
        kill_session(victim)
        self.running[run].append(self._start(run))

    def freeze(self, *runs: Run) -> None:
        """Freezes an instance of each until others have its partitions, and lets it wake up."""
        for run in runs:
            os.killpg(self.running[run][0].pid, signal.SIGSTOP)
        for run in runs:
            self.until_members(run, len(self.running[run]) - 1)
        for run in runs:
            os.killpg(self.running[run][0].pid, signal.SIGCONT)

    def until_members(self, run: Run, members: int) -> None:
        """Waits until so many instances share the partitions, and none besides."""

        def is_shared() -> bool:
            group = describe_group(self.configs[CENTRAL], GROUPS[run])
            return group.state == "stable" and len(group.members) == members

        wait_for_drill(is_shared, self.logs)

    def kill_broker(self, site: str, away_seconds: float) -> None:
        self.clusters[site].kill(1)
        time.sleep(away_seconds)
        self.clusters[site].start_broker(1)

    def cut(self, site: str, seconds: float) -> None:
        """Nobody hears of the site: neither those who are connected nor those who try to be."""
        self.clusters[site].pause(1)
        time.sleep(seconds)
        self.clusters[site].resume(1)

    def note_memory(self) -> None:
        """Notes the most memory that a merger has had."""
        for process in self.running[MERGER]:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
            self.peak_bytes = max(self.peak_bytes, int(peak) * 1024)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob("*.log"))

    def read(self, place: tuple[str, str]) -> Read:
        """The records of a topic up to now."""
        if place not in self._reads:
            site, topic = place
            keeps_time = place not in DISPATCHED.values()
            self._reads[place] = Read(self.configs[site], topic, keeps_time=keeps_time)
        self._reads[place].more()
        return self._reads[place]

    def until_more(self, *places: tuple[str, str]) -> None:
        """Waits until each partition of these topics has more records."""
        before = {place: [*map(len, self.read(place).rows)] for place in places}

        def has_more() -> bool:
            now = {place: map(len, self.read(place).rows) for place in places}
            return all(
                count > past
                for place in places
                for count, past in zip(now[place], before[place], strict=True)
            )

        wait_for_drill(has_more, self.logs)

    def until_all(self, sent: dict[tuple[str, str], int], *targets: str) -> None:
        """Waits until everything is where it belongs, and nothing else comes."""
        places = [*SOURCES, COPY, OUT, LATE, *(DISPATCHED[site] for site in targets)]
        look_at, seen = time.monotonic() + LOOK_AFTER_SECONDS, 0

        def is_there() -> bool:
            nonlocal look_at, seen
            counts = {place: len(self.read(place)) for place in places}
            if sum(counts.values()) > seen:
                look_at, seen = time.monotonic() + LOOK_AFTER_SECONDS, sum(counts.values())
            elif time.monotonic() > look_at:  # brokers forget some that are killed at their end
                self.ended += end_hanging_transactions(self.servers[CENTRAL])
                look_at = time.monotonic() + LOOK_AFTER_SECONDS
            if (
                any(counts[source] < count for source, count in sent.items())
                or counts[COPY] < sent[SENT]
                or counts[OUT] + counts[LATE] < sum(sent.values())
            ):
                return False
            out = self._reads[OUT].all_rows
            return all(
                set(self._reads[DISPATCHED[site]].all_rows) >= set(wanted_at(site, out))
                for site in targets
            )

        wait_for_drill(is_there, self.logs)
        while any(read.more(seconds=1.0) for read in self._reads.values()):
            pass  # what is too many

    def reconcile(self, site: str, *options: str) -> dict[str, Any]:
        """Links by their targets, and pipelines by their names."""
        command = (*HEADRACE, "reconcile", *options, "--json")
        ended = subprocess.run(
            command, cwd=self.folder / site, check=False, capture_output=True, text=True
        )
        assert ended.returncode in {0, UNBALANCED}, ended.stderr
        answer = json.loads(ended.stdout)
        links = {link["target"]: link for link in answer["links"]}
        return links | {pipeline["pipeline"]: pipeline for pipeline in answer["pipelines"]}

    def settled(self) -> dict[str, Any]:
        """All hops, when nothing is on its way any more and the last window is over."""
        hops: dict[str, Any] = {}
        last = time.time() // WINDOW_SECONDS
        wait_for_drill(lambda: time.time() // WINDOW_SECONDS > last)

        def is_settled() -> bool:
            hops.update(self.reconcile(CENTRAL, "--recount") | self.reconcile(SITE))
            states = {window["state"] for link in LINK_TARGETS for window in hops[link]["windows"]}
            return (
                hops["clicks-to-lake"]["unknown"] == hops["users"]["unknown"] == ""
                and read(hops["clicks-to-lake"]) == written(hops[MERGED])
                and read(hops["users"]) == written(hops[ELSEWHERE])
                and not states & {"open", "closing"}
            )

        wait_for_drill(is_settled, lambda: f"{hops}\n{self.logs()}")
        return hops


def wanted_at(site: str, rows: list[Row]) -> list[Row]:
    """What a dispatcher sends to a site of these records: nothing that came from there."""
    return [
        row
        for row in rows
        if row.home in {site, None} and not (site == SITE and SOURCES[row.place] == SENT)
    ]


def read(hop: dict[str, Any]) -> int:
    return sum(window["read"] for window in hop["windows"])


def written(hop: dict[str, Any]) -> int:
    return sum(window["rows"] for window in hop["windows"])


def wrong(hop: dict[str, Any]) -> list[Any]:
    return [
        (window["state"], window["unknown"], window["differences"], window["fates"])
        for window in hop["windows"]
        if window["state"] in {"unbalanced", "unknown"}
    ]


def total(link: dict[str, Any], *names: str) -> int:
    return sum(window["fates"].get(name, 0) for window in link["windows"] for name in names)


def check_copies(sites: Sites, sent: dict[tuple[str, str], int]) -> None:
    """Each record is in the mirror's copy once and in order, as it was sent."""
    for place, source in enumerate(SOURCES):
        numbers = [[row[1:] for row in rows] for rows in sites.read(source).rows]
        wanted = [
            [(place, number) for number in range(partition, sent[source], PARTITIONS)]
            for partition in range(PARTITIONS)
        ]
        assert numbers == wanted
    copy = sites.read(COPY)
    assert copy.rows == sites.read(SENT).rows
    assert copy.origins == [list(range(len(rows))) for rows in copy.rows]


def check_merged(sites: Sites, *, late_from: int) -> None:
    """The output is sorted and whole; late are only records of that number, and of later ones."""
    late = set(sites.read(LATE).all_rows)
    assert all(row.number >= late_from for row in late)
    for partition, merged in enumerate(sites.read(OUT).rows):
        came = [row for source in SOURCES for row in sites.read(source).rows[partition]]
        assert merged == sorted(row for row in came if row not in late)
    assert len(late) == len(sites.read(LATE))
    assert sites.peak_bytes < MAX_MEMORY_BYTES


@pytest.fixture
def redis(tmp_path: Path, stop_at_end: Any) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(folder)
    stop_at_end(folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def clusters(start_cluster):
    return {site: start_cluster() for site in (CENTRAL, SITE)}


def fail_instances(sites: Sites, traffic: Traffic, drill_run: DrillRun) -> dict[str, int]:
    """Kills and freezes instances while they have many records to move, and counts that."""
    rounds = drill_run.size(short=2, long=10)
    counts = {"kills": 0, "freezes": 0}
    for number in range(rounds):
        faults = {run: drill_run.random.choice([KILLED, KILLED, FROZEN]) for run in GROUPS}
        if number in {0, rounds - 1}:  # of each kind one at least
            faults = dict.fromkeys(GROUPS, KILLED if number == 0 else FROZEN)
        frozen = [run for run, fault in faults.items() if fault is FROZEN]
        killed = [DISPATCHER, *(run for run, fault in faults.items() if fault is KILLED)]
        traffic.send_at_once(drill_run.size(short=10_000, long=25_000))
        time.sleep(drill_run.random.uniform(0, 2))
        for run in killed:
            sites.kill(run)
        sites.freeze(*frozen)
        for run in GROUPS:
            sites.until_members(run, len(sites.running[run]))
        sites.until_more(COPY, OUT, *DISPATCHED.values())
        counts["kills"] += len(killed)
        counts["freezes"] += len(frozen)
    return counts


def fail_anything(sites: Sites, drill_run: DrillRun) -> int:
    """Kills what runs and what it runs on, and cuts the link; returns how often."""
    away = drill_run.size(short=10, long=60)
    gone = drill_run.random.uniform(0, away)
    faults: list[tuple[Callable[..., None], Any]] = [
        *((sites.kill, (run,)) for run in PIPELINES),
        *((sites.kill_broker, (site, gone)) for site in sites.clusters),
        (sites.cut, (SITE, away)),
    ]
    if drill_run.long:
        faults += [(sites.kill, (run,)) for run in (*GROUPS, DISPATCHER)]
    rounds = drill_run.size(short=1, long=3)
    for _ in range(rounds):
        drill_run.random.shuffle(faults)
        for fault, arguments in faults:
            fault(*arguments)
            time.sleep(drill_run.random.uniform(0, drill_run.size(short=3, long=15)))
    return rounds * len(faults)


def check_ledger(hops: dict[str, Any], sent: dict[tuple[str, str], int]) -> int:
    """Every hop balances; returns how many records the dispatchers sent again."""
    for link in (MIRRORED, MERGED):
        assert not wrong(hops[link]), link
    assert total(hops[MIRRORED], "out") == sent[SENT]
    assert total(hops[MERGED], "out", "late") == sum(sent.values())
    # At least once: what was in flight at a kill may be there again, and nothing is missing.
    sent_again = [
        -difference["number"]
        for link in (ELSEWHERE, PAR)
        for window in hops[link]["windows"]
        for difference in window["differences"]
    ]
    assert all(number > 0 for number in sent_again), (hops[ELSEWHERE], hops[PAR])
    for link in (ELSEWHERE, PAR):
        assert total(hops[link], "out", "filtered") == total(hops[MERGED], "out")
    for name in ("clicks-to-lake", "users"):
        assert not hops[name]["breaks"]
        assert not wrong(hops[name]), name
    return sum(sent_again)


@pytest.mark.drill(always=True)
def test_a_mirror_and_a_merger_that_are_killed_lose_and_repeat_nothing(clusters, tmp_path):
    sites = Sites(tmp_path, clusters)
    traffic = sites.traffic()
    with sites.running_all(*LINKS):
        with traffic:
            sites.until_more(COPY, OUT)
            traffic.send_at_once(5_000)
            for run in GROUPS:
                sites.kill(run)
            sites.until_more(COPY, OUT)
        sites.until_all(traffic.acknowledged)
        sites.note_memory()
    check_copies(sites, traffic.acknowledged)
    check_merged(sites, late_from=traffic.number)


@pytest.mark.drill
def test_whatever_fails_records_arrive_in_order_and_the_ledger_balances(
    clusters, redis, tmp_path, drill_run
):
    sites = Sites(tmp_path, clusters, redis.url.reveal())
    traffic = sites.traffic()
    with sites.running_all(*LINKS, DISPATCHER, *PIPELINES):
        with traffic:
            sites.until_more(COPY, OUT, *DISPATCHED.values())
            counts = fail_instances(sites, traffic, drill_run)
            # While all brokers respond, a dispatcher that is killed repeats nothing either.
            once = {site: [*map(list, sites.read(at).rows)] for site, at in DISPATCHED.items()}
            late_from = traffic.acknowledged_number()
            faults = fail_anything(sites, drill_run)
        sites.until_all(traffic.acknowledged, *DISPATCHED)
        hops = sites.settled()
        sites.note_memory()
    check_copies(sites, traffic.acknowledged)
    check_merged(sites, late_from=late_from)
    merged = sites.read(OUT).rows
    for site, partitions in once.items():
        for partition, rows in enumerate(partitions):
            assert rows == wanted_at(site, merged[partition])[: len(rows)]
    repeated = check_ledger(hops, traffic.acknowledged)
    drill_run.report(
        records=sum(traffic.acknowledged.values()),
        faults=faults,
        repeated=repeated,
        hanging_transactions=len(sites.ended),
        peak_memory_bytes=sites.peak_bytes,
        **counts,
    )
