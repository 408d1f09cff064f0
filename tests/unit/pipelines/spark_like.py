"""Batches without Spark: its checkpoint format, the real end of batches, real tables."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from headrace import Lake, Pipeline
from headrace.errors import CheckpointBehindTableError, CheckpointLostError
from headrace.events.event_hash import hash_positions
from headrace.ledger.sums import Fate, Hop
from headrace.model import DeadLetter, Topic
from headrace.pipelines.batch.batch_claim import BatchClaim
from headrace.pipelines.batch.committer import BatchCommitter
from headrace.pipelines.batch.derived_letters import DerivedLetters
from headrace.pipelines.batch.manifest import manifest_table, write_rows
from headrace.pipelines.batch.positions import CheckpointIds, TablePositions
from headrace.pipelines.late_data.side_table import SideTable
from headrace.pipelines.ledger.counting.tally import (
    LedgerColumns,
    LedgerRule,
    RangeTally,
    SinkTally,
)
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.recording import CountedRows, Ledger, PausedLedger
from headrace.pipelines.ledger.reprocessed import ReprocessedFolder
from headrace.pipelines.source.offsets import SourceOffset, ranges_between
from headrace.pipelines.source.planning.initial import read_initial, write_initial
from headrace.pipelines.source.report import LateCounts, RangeReport
from headrace.pipelines.source.staging import Staging
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.start.checkpoint import CheckpointFolder
from headrace.pipelines.start.checks import StartChecks
from headrace.pipelines.start.resets import Resets
from headrace.sinks.api import SinkContext, SinkDriver, WriterFactory
from headrace.sinks.lake.delta.log import DeltaLog
from headrace.sinks.lake.delta.table import read_table
from headrace.storage import files as storage
from headrace.testing import MemoryCluster

ROWS = pa.schema([("partition", pa.int64()), ("offset", pa.int64())])
BAD_EVERY = 7
CRASHES = ("planned", "files written", "letters written", "committed", "group shown")
CHECKPOINTS, TABLE = "_headrace/checkpoints", "clicks"
LEDGER_RULE = LedgerRule(60, None, None)
PIPELINE = Pipeline("clicks-to-lake", Topic("clicks", partitions=2), Lake("clicks"))


class Crashed(Exception):  # noqa: N818  what it stands for is no error
    """The driver was killed here."""


@dataclass
class Frame:
    """A batch as Spark hands it over: its tasks run when it is collected."""

    site: "Site"
    writers: WriterFactory
    start: SourceOffset
    end: SourceOffset
    late = LateCounts()
    side_pieces = ()

    def collect(self):
        self.site.reach("planned")
        rows = [row for range_ in ranges_between(self.start, self.end) for row in self.task(range_)]
        self.site.reach("files written")
        return rows

    def task(self, range_):
        offsets = range(range_.start, range_.end)
        good = [at for at in offsets if at % BAD_EVERY]
        partition = range_.partition
        rows = pa.table([[partition.partition] * len(good), good], schema=ROWS)
        dead = tuple(
            DeadLetter(partition, at, "not-json", "", None, b"x")
            for at in offsets
            if not at % BAD_EVERY
        )
        tally, sink_tally = RangeTally(LEDGER_RULE, partition), SinkTally()
        tally.rejected(Fate.DEAD, np.ones(len(dead), np.int64))
        columns = event_columns(partition, np.array(good, np.int64))
        tally.add(Hop.READ, Fate.IN, columns)
        tally.add(Hop.READ, Fate.OUT, columns)
        sink_tally.expect(tally, columns)
        tables = [rows] if good else []
        written = write_rows(self.writers, tables, partition.topic, tally=sink_tally)
        report = RangeReport(
            range_,
            range_.end,
            len(offsets),
            1,
            0,
            (),
            dead=dead,
            late=self.late,
            side_pieces=self.side_pieces,
            ledger=tally.lines(),
        )
        return [*written.to_pylist(), *manifest_table(reports=[report]).to_pylist()]


def event_columns(partition, offsets):
    """What the ledger counts of good records: windows of ten offsets, sizes of one byte."""
    hashes = hash_positions(partition.topic, partition.partition, offsets)
    return LedgerColumns(offsets // 10 * 60, np.ones(len(offsets), np.int64), hashes)


@dataclass
class Site:
    """One machine with a driver; the lake and the cluster may be shared with another one.

    ``letters`` and ``committed`` are what Kafka holds. A driver is killed at the place ``crash``;
    ``beside`` is what else happens when it reaches a place. ``root`` is where the checkpoints are,
    by default the lake.
    """

    folder: Path
    lake: str
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    letters: list = field(default_factory=list)
    committed: dict = field(default_factory=dict)
    crash: str = ""
    beside: dict = field(default_factory=dict)
    root: str = ""
    derived: DerivedLetters = field(default_factory=DerivedLetters)
    side_table: SideTable | None = None
    results: list = field(default_factory=list)
    keeps_ledger: bool = True
    latest_ahead_us: int = 60_000_000
    check_claim: Callable[[], None] = bool
    pipeline = PIPELINE

    def reach(self, place):
        self.beside.pop(place, bool)()
        if place == self.crash:
            raise Crashed(place)

    def other(self, folder):
        """Another machine with the same lake and cluster."""
        return Site(folder, self.lake, self.cluster, self.letters, self.committed)

    def letter_counts(self):
        return Counter((one.partition.partition, one.offset) for one in self.letters)

    def fresh(self, folder):
        """Another machine with the same lake and cluster, and no checkpoint."""
        place = folder / "checkpoints"
        return Site(folder, self.lake, self.cluster, self.letters, self.committed, root=str(place))

    @property
    def table(self):
        return DeltaLog(f"{self.lake}/{self.pipeline.sink.table}")

    @property
    def checkpoints(self):
        return CheckpointFolder(self.root or self.lake, self.pipeline.name)

    def send(self, *counts):
        for partition, count in enumerate(counts):
            for _ in range(count):
                self.cluster.append("clicks", partition, b"x")

    def reset(self, **options):
        resets = Resets(self.pipeline, self.checkpoints, self.table, self.cluster)
        return resets.to_table(**{"accept_loss": False} | options)

    @property
    def ledger(self):
        return LedgerFolder(self.lake, self.pipeline.name)

    @property
    def checks(self):
        root, parts = self.root or self.lake, ReprocessedFolder(self.lake, self.pipeline.name)
        return StartChecks(self.pipeline, root, self.cluster, self.table, parts, self.ledger)

    def started(self):
        current = self.checks.checkpoint()
        self.checkpoints.write(current)
        return Driver(self, self.checkpoints.checkpoint(current))

    def started_without_state(self):
        """The first start of a process whose pipeline has no state."""
        try:
            return self.started()
        except (CheckpointLostError, CheckpointBehindTableError):
            number = self.checks.number_to_take_over()
            if number is None:
                raise
        current = self.checks.resets.take_over(number, Watched(self.sink(), self))
        return Driver(self, self.checkpoints.checkpoint(current))

    def sink(self):
        return self.pipeline.sink.open(SinkContext(self.pipeline.name, self.lake, {}), ROWS)

    def run(self, *, crash="", start=None):
        """One start, and as many batches as there are."""
        self.crash = crash
        try:
            driver = (start or self.started)()
            while driver.batch():
                pass
        finally:
            self.crash = ""

    def rows(self):
        found = read_table(self.table.uri)
        return Counter(zip(*(found[name].to_pylist() for name in ROWS.names), strict=True))

    def keep(self, place):
        """Copies of checkpoints and table, as a backup takes them."""
        return Path(shutil.copytree(self.lake, place))

    def restore(self, kept, what):
        """Puts one part of the lake back to what was kept."""
        storage.delete(f"{self.lake}/{what}")
        if (kept / what).exists():
            shutil.copytree(kept / what, Path(self.lake, what))


class Driver:
    """What Spark does with one query: plans, writes offsets, runs, writes commits."""

    def __init__(self, site, checkpoint):
        self.site, self.uri = site, checkpoint.uri
        sink = Watched(site.sink(), site)
        self.writers = sink.writers
        ids = CheckpointIds(site.pipeline.name, checkpoint.number)
        self.end = BatchCommitter(
            site.pipeline,
            checkpoint=checkpoint,
            positions=TablePositions(ids, sink.positions, checkpoint.expected_versions),
            staging=Staging(str(site.folder / "staging")),
            rereading=None,
            sink=sink,
            side_table=site.side_table,
            ledger=self.ledger(checkpoint),
            client=site,
            state=SourceState(site.folder / "state"),
            derived=site.derived,
            claim=BatchClaim(check=site.check_claim),
            on_batch=self.ended,
            takes_behind_as_late=False,
        )
        self.put("metadata", b"{}")
        self.end.check_start()

    def ledger(self, checkpoint):
        if self.site.keeps_ledger:
            return WatchedLedger(self.site, checkpoint)
        return PausedLedger(self.site.ledger, checkpoint.number)

    def ended(self, result):
        self.site.results.append(result)
        self.site.reach("group shown")

    def batch(self):
        """The last batch again if it was cut short, else the next; False: there is none."""
        planned, done = self.newest("offsets"), self.newest("commits")
        batch_id = planned if planned is not None and planned != done else self.plan(planned)
        if batch_id is None:
            return False
        frame = Frame(self.site, self.writers, self.offset(batch_id - 1), self.offset(batch_id))
        self.end(frame, batch_id)
        self.put(f"commits/{batch_id}", b"v1\n{}")
        return True

    def batch_of_nothing(self):
        """The first batch of a query whose topics are empty."""
        start = self.offset(-1)
        self.put("offsets/0", f"v1\n{{}}\n{json.dumps(start.to_json())}".encode())
        self.end(Frame(self.site, self.writers, start, start), 0)

    def plan(self, last):
        batch_id = 0 if last is None else last + 1
        start = self.offset(batch_id - 1)
        latest = self.site.cluster.live("clicks").latest
        end = start.advanced(latest, {}, planned_ms=batch_id)
        if end.partitions == start.partitions:
            return None
        self.put(f"offsets/{batch_id}", f"v1\n{{}}\n{json.dumps(end.to_json())}".encode())
        return batch_id

    def offset(self, batch_id):
        if batch_id >= 0:
            line = storage.read_bytes(f"{self.uri}/offsets/{batch_id}").splitlines()[2]
            return SourceOffset.from_json(json.loads(line))
        found = read_initial(self.uri, "clicks")
        if found is None:
            live = self.site.cluster.live("clicks")
            found = SourceOffset("clicks", live.topic_id, live.earliest, 0)
            write_initial(self.uri, found)
        return found

    def newest(self, folder):
        return max(map(int, storage.list_files(f"{self.uri}/{folder}")), default=None)

    def put(self, name, content):
        storage.write_bytes_atomic(f"{self.uri}/{name}", content)


class WatchedLedger(Ledger):
    """A ledger whose driver can be killed between an entry and the sink's commit."""

    def __init__(self, site, checkpoint):
        super().__init__(
            site.ledger,
            checkpoint.number,
            LEDGER_RULE,
            CountedRows(),
            latest_ahead_us=site.latest_ahead_us,
            held=checkpoint.held,
        )
        self._site = site

    def record(self, batch):
        super().record(batch)
        self._site.reach("entry written")


class Watched(SinkDriver):
    """An open sink whose driver can be killed right after a commit."""

    def __init__(self, sink, site):
        self.sink, self.site = sink, site
        self.writers, self.positions = sink.writers, sink.positions

    def commit(self, pieces, transaction, watermark_us):
        done = self.sink.commit(pieces, transaction, watermark_us)
        self.site.reach("committed")
        return done

    def discard(self, pieces):
        self.sink.discard(pieces)

    def close(self, max_wait_seconds):
        self.sink.close(max_wait_seconds)


def without_kafka(monkeypatch):
    """Dead letters and committed offsets go to the site that stands as their client."""

    def send_each(client, letters):
        client.letters.extend(letters)
        client.reach("letters written")
        return {}

    def find_written(client, *_):
        return [SimpleNamespace(letter=letter, written_ms=0) for letter in client.letters]

    module = "headrace.kafka.dead_letters.writer"
    monkeypatch.setattr(f"{module}.send_each", send_each)
    monkeypatch.setattr(f"{module}.find_written", find_written)
    monkeypatch.setattr(f"{module}.topic_ids", lambda _, names: dict.fromkeys(names, ""))
    monkeypatch.setattr(f"{module}.dead_letter_record", lambda letter, *_: letter)
    monkeypatch.setattr(
        "headrace.pipelines.batch.group_offsets.commit_offsets",
        lambda client, _, offsets, __: client.committed.update(offsets),
    )


def once(*ends):
    """Each good record before these ends of the partitions, once."""
    offsets = [(p, at) for p, end in enumerate(ends) for at in range(end)]
    return Counter(one for one in offsets if one[1] % BAD_EVERY)


def bad(*ends):
    """Each bad one."""
    return Counter((p, at) for p, end in enumerate(ends) for at in range(0, end, BAD_EVERY))
