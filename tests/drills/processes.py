"""A drill: a topic, a ledger, instances that are processes, and their group's offsets over time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, Self

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.drills.checker import (
    Fault,
    History,
    Letter,
    Poison,
    Processed,
    Snapshot,
    id_of,
    windows_of,
)
from tests.drills.instance import VERSION, Spec
from tests.drills.ledger import Ledger, read_topic, topic_ends
from tests.kafka_topics import make_topic
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.admin_requests import admin_request, describe
from headrace.kafka.client.offsets import group_offsets
from headrace.kafka.dead_letters.letters import scan
from headrace.kafka.table.topic_table import table_records
from headrace.model import Topic, TopicPartition
from headrace.runtime.process_tree import parse_stat
from headrace.workers.state.changelog import read_state

ROOT = Path(__file__).parents[2]
POLL_SECONDS = 0.2
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
LINES = 20
TIMED_OUT = Poison("processing-timeout", 2, VERSION)
POISON = {
    "fail": Poison("processing-failed", 2, VERSION),
    "told": Poison("processing-failed", 2, VERSION),
    "bad": Poison("unknown-campaign", 1, VERSION),
    "hang": TIMED_OUT,
    "silent": TIMED_OUT,
}


class Note(NamedTuple):
    """A line of an instance: what, facts, when."""

    what: str
    facts: tuple[str, ...]
    at: int


class Instance:
    """One process, from its start to its end."""

    def __init__(self, folder: Path, spec: Spec, name: str) -> None:
        self.name, self.spec = name, spec
        self.errors = folder / f"{name}.errors"
        file = folder / f"{name}.notes"
        file.touch()
        self._asked = False
        self._written, self._rest = file.open(), ""
        self._noted: defaultdict[str, list[Note]] = defaultdict(list)
        path = folder / f"{name}.json"
        path.write_text(json.dumps(asdict(replace(spec, file=str(file)))))
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.drills.instance", path], cwd=ROOT, stderr=errors
            )

    def notes(self, *what: str) -> list[Note]:
        """What it wrote, but for a line that a kill cut off."""
        *lines, self._rest = (self._rest + self._written.read()).split("\n")
        for line in lines:
            name, *facts, at = line.split("\t")
            self._noted[name].append(Note(name, tuple(facts), int(at)))
        return [one for name in what for one in self._noted[name]]

    @property
    def owned(self) -> set[int]:
        """Partitions that it has."""
        lanes = Counter()
        for one in self.notes("open", "close"):
            lanes[int(one.facts[0])] += 1 if one.what == "open" else -1
        return {partition for partition, count in lanes.items() if count > 0}

    @property
    def processed(self) -> list[Processed]:
        return [
            Processed(self.name, int(p), int(offset), id_, int(attempt), int(lane), int(crc), at)
            for _, (p, offset, id_, attempt, lane, crc), at in self.notes("done")
        ]

    @property
    def rss_mb(self) -> float:
        return parse_stat(Path(f"/proc/{self.process.pid}/stat").read_text()).rss_mb

    def signal(self, number: int) -> None:
        """Not twice SIGTERM: the second may find it beyond its own handler."""
        if self._asked or self.process.poll() is not None:
            return
        self._asked = number == signal.SIGTERM
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def end(self) -> int:
        """Asks it to stop, once; its exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(LIMIT_SECONDS)

    def close(self) -> None:
        """Its file; a process that still runs is killed."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._written.close()


class CommitPoller(threading.Thread):
    """Asks five times a second what is committed."""

    def __init__(self, client: dict[str, str], group: str, topic: str, partitions: int) -> None:
        super().__init__(name=f"commits-{topic}")
        self.snapshots: list[Snapshot] = []
        self.latest: dict[int, int] = {}
        self.ask = lambda: _by_partition(group_offsets(client, group, asked))
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self.look()

    def look(self) -> None:
        try:
            self.latest = self.ask()
        except BrokerUnreachableError:  # of an instance that was frozen within a transaction
            return
        at = time.monotonic_ns()
        self.snapshots += [Snapshot(*one, at) for one in self.latest.items()]

    def end(self) -> None:
        self._ended.set()
        self.join()
        self.look()


def set_session(client: dict[str, str], group: str, seconds: float) -> None:
    """Tells brokers after how long they count a silent member of a group no more."""
    entry = ConfigEntry(
        "consumer.session.timeout.ms",
        str(int(seconds * 1000)),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin_request(
        client, lambda admin: admin.incremental_alter_configs([resource])[resource].result()
    )


def _by_partition(offsets: dict[TopicPartition, int]) -> dict[int, int]:
    return {one.partition: offset for one, offset in offsets.items()}


class Drill:
    """Use it as a context: at its end no process is left.

    Args:
        bootstrap: of a broker.
        folder: for the instances' files.
        most_partitions: that its topic ever has.
        sent: arguments of the ledger.
        rounds: of faults; long drills have several.
        spec: of instances, other than where they are.
    """

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        partitions: int = 4,
        most_partitions: int = 0,
        sent: dict | None = None,
        rounds: int = 1,
        **spec,
    ) -> None:
        self.client = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
        self.rounds = rounds
        self.topic = f"drill-{uuid.uuid4().hex[:8]}"
        self.create(self.topic, partitions)
        self.create(Topic(self.topic).dead_letters, 1)
        own = {"bootstrap.servers": bootstrap}
        if spec.get("protocol") != "consumer":
            own["heartbeat.interval.ms"] = "500"
        self.spec = Spec(own, self.topic, f"worker-{self.topic}", "", **spec)
        if self.spec.exactly_once:
            self.create(self.spec.output, partitions)
        if self.spec.has_state:
            make_topic(self.client, self.state_topic, partitions, config=COMPACTED)
        self.folder = folder / self.topic
        self.folder.mkdir()
        if self.spec.protocol == "consumer":  # there, brokers say how long a session is
            set_session(self.client, f"headrace.{self.spec.worker}", self.spec.session_seconds)
        self.instances: list[Instance] = []
        self.faults: list[Fault] = []
        self.ledger = Ledger(self.client, self.topic, **(sent or {}))
        self.commits = CommitPoller(
            self.client,
            f"headrace.{self.spec.worker}",
            self.topic,
            max(partitions, most_partitions),
        )
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            error.add_note(self.log())
        for thread in (self.ledger, self.commits):
            if thread.is_alive():
                thread.end()
        for one in self.instances:
            one.close()

    @property
    def running(self) -> list[Instance]:
        return [one for one in self.instances if one.process.poll() is None]

    def one_with_partitions(self) -> Instance:
        return next(one for one in self.running if one.owned)

    def kill_at_work(self, one: Instance) -> None:
        """Kills it while something that it has processed is not committed."""
        self.until(lambda: self._is_frozen_at_work(one))
        one.kill()

    def _is_frozen_at_work(self, one: Instance) -> bool:
        """Frozen, it commits no more; what it had sent has arrived after a moment."""
        one.freeze()
        time.sleep(POLL_SECONDS)
        try:
            committed = self.commits.ask()
        except BrokerUnreachableError:  # it is frozen within a transaction
            return True
        if any(done.offset >= committed.get(done.partition, 0) for done in one.processed):
            return True
        one.thaw()
        return False

    def create(self, topic: str, partitions: int) -> None:
        make_topic(self.client, topic, partitions)

    def start(self, **changed) -> Instance:
        """One more instance."""
        spec = replace(self.spec, **changed)
        one = Instance(self.folder, spec, f"{spec.instance_id or 'i'}-{next(self._numbers)}")
        self.instances.append(one)
        return one

    def begin(self, *instances: dict) -> None:
        """These instances, each with partitions, then records."""
        self.open(*instances)
        self.ledger.start()
        self.settle()

    def open(self, *instances: dict) -> None:
        """These instances, each with partitions; no records yet."""
        begun = [self.start(**one) for one in instances]
        self.until(lambda: all(one.owned for one in begun))
        self.commits.start()

    @contextlib.contextmanager
    def fault(
        self, name: str, landed: Callable[[], bool], but: Collection[int] = ()
    ) -> Iterator[None]:
        """Something happens inside; it heals after that, as :meth:`settle` says."""
        began = time.monotonic_ns()
        yield
        self.until(landed)
        self.settle(but)
        self.faults.append(Fault(name, began, time.monotonic_ns(), landed=True))

    def settle(self, but: Collection[int] = ()) -> None:
        """Everything is committed that is there now, and more came meanwhile.

        Args:
            but: partitions that are not to be waited for.
        """
        acked = self.ledger.acked
        ends = topic_ends(self.client, self.topic)
        ends = {partition: end for partition, end in ends.items() if partition not in but}
        self.until(lambda: self.is_committed(ends) and self.ledger.acked >= acked + 20)

    def until(self, condition: Callable[[], bool]) -> None:
        """Unless an instance ends by itself."""

        def checked() -> bool:
            self.check_running()
            return condition()

        wait_for(checked)

    def is_committed(self, ends: dict[int, int]) -> bool:
        latest = self.commits.latest
        return all(latest.get(partition, 0) >= end for partition, end in ends.items())

    def check_running(self) -> None:
        """No instance ended by itself."""
        for one in self.instances:
            ended = one.process.poll()
            assert ended in {None, 0, -signal.SIGKILL}, one.errors.read_text()

    def finish(self, **changed) -> History:
        """Ends the ledger, waits until all is done, and stops the instances."""
        self.until(lambda: all(one.notes("holds") for one in self.running))
        self.ledger.end()
        ends = topic_ends(self.client, self.topic)
        self.until(lambda: self.is_committed(ends))
        for one in self.running:
            assert one.end() == 0, one.errors.read_text()
        self.commits.end()
        return replace(self.history(), ends=ends, **changed)

    def written(self) -> Counter[str]:
        """How often readers of committed records see each id in the output."""
        records = table_records(self.client, self.spec.output, settled=True)
        return Counter(id_of(record.value()) for record in records)

    @property
    def state_topic(self) -> str:
        return f"headrace.{self.spec.worker}.state"

    def counts(self) -> dict[bytes, list[int]]:
        """The counts that readers of committed records see in the output, by key, in order."""
        counts = defaultdict(list)
        for record in table_records(self.client, self.spec.output, settled=True):
            counts[record.key()].append(int(dict(record.headers())["count"]))
        return dict(counts)

    def kept(self) -> dict[bytes, int]:
        """The state of each key."""
        [live] = describe(self.client, [self.state_topic]).values()
        stored = (read_state(self.client, place).values for place in live.all_partitions)
        return {key: int(value) for values in stored for key, value in values.items()}

    def log(self) -> str:
        """The last lines that each instance logged."""
        return "\n".join(
            f"{one.name}: {line}"
            for one in self.instances
            for line in one.errors.read_text().splitlines()[-LINES:]
        )

    def history(self) -> History:
        stored = read_topic(self.client, self.topic)
        processed = [done for one in self.instances for done in one.processed]
        letters = [
            Letter(
                one.letter.partition.partition,
                one.letter.offset,
                one.letter.key,
                one.letter.value,
                one.letter.reason,
                one.letter.attempts,
                one.version,
            )
            for one in scan(self.client, self.topic)
        ]
        deeds = {one.id: one.id.partition(".")[2] for one in stored}
        return History(
            self.ledger.claims,
            stored,
            processed,
            letters,
            self.commits.snapshots,
            windows_of(stored, processed, letters),
            self.faults,
            {name: POISON[deed] for name, deed in deeds.items() if deed in POISON},
            log=self.log(),
        )
