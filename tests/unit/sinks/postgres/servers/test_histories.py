"""Random histories of a pipeline whose driver is killed between the commits of servers.

Servers are held in memory, one transaction of each at a time.
"""

import random
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest

from headrace import ByServer
from headrace.errors import SinkError, TableMismatchError
from headrace.sinks.api import CommitRejection, CommitResult, RejectedValues, Transaction
from headrace.sinks.postgres.servers.driver import leave_servers, open_servers
from headrace.sinks.postgres.servers.positions import ServersPositions
from headrace.sinks.postgres.servers.standing import RecordIds

NAMES = ("ap", "eu", "us")
IDS = RecordIds("p")
BATCH = "headrace.p/1"
SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.int64())])


class KilledError(Exception):
    """The driver is gone."""


@dataclass
class Place:
    """A server: its rows, and what it records."""

    rows: list = field(default_factory=list)
    versions: dict = field(default_factory=dict)


class Records:
    """What the servers record, as :class:`ServerRecords` reads and writes it."""

    table, pipeline, names = "t", "p", NAMES

    def __init__(self, world):
        self.world = world

    def address_of(self, server):
        return server

    def read(self, server):
        return IDS.record(self.world.places[server].versions)

    def versions(self, server, app_ids):
        recorded = self.world.places[server].versions
        return {name: recorded[name] for name in app_ids if name in recorded}

    def record(self, server, before, batch, servers, sharding=0):
        self.world.may_die()
        if self.read(server) != before:
            raise SinkError("t", "another driver has written")
        self.world.places[server].versions |= IDS.versions(batch, servers, sharding)

    def check_apart(self, servers):
        """They are."""

    def copy(self, source, target, before):
        versions = dict(self.world.places[source].versions)
        self.world.may_die()
        if self.read(target) != before:
            raise SinkError("t", "another driver has written")
        self.world.places[target].versions = versions


class Table:
    """The open table of a server, which refuses some rows; its driver may be killed at any time."""

    def __init__(self, world, server, record=None):
        self.world, self.place = world, world.places[server]
        self.record = record
        self.sharding = 0 if world.is_alone else world.sharding.number

    def writers(self, task_id):
        return Writer()

    def commit(self, pieces, transaction, watermark_us):
        self.world.may_die()
        rows = [int(piece) for piece in pieces]
        if not transaction.follows(self.place.versions, "t"):
            return CommitResult(False, len(rows))
        # As every transaction of a batch.
        if self.place.versions.get(IDS.sharding, 0) != self.sharding:
            raise SinkError("t", "rows are sharded in another way")
        if bad := [n for n in rows if n % 7 == 3]:
            letters = [RejectedValues(str(n), "not-unique", "x") for n in bad]
            return CommitRejection(letters, [str(n) for n in rows if n not in bad])
        self.place.rows += rows
        self.place.versions |= transaction.versions
        self.place.versions |= self.record.versions if self.record else {}
        self.world.may_die()
        return CommitResult(True, len(rows))

    def discard(self, pieces):
        pass


class Writer:
    def __init__(self):
        self.rows = []

    def write(self, rows):
        self.rows += rows["n"].to_pylist()
        return []

    def close(self):
        return [str(n) for n in self.rows]


class World:
    """The servers, the checkpoint of a pipeline, and the rows that it has read."""

    def __init__(self, seed, *, with_frozen=False):
        self.frozen = [] if with_frozen else None
        self.driver = None
        self.is_waking = False
        self.rng = random.Random(seed)
        self.places = {name: Place() for name in NAMES}
        self.records = Records(self)
        self.planned, self.done = [], 0
        self.letters = set()
        self.server_of = {}
        self.can_die = True
        self.kills = self.refusals = self.woken = 0
        self.sharding = self.another_sharding()
        self.tried = [self.sharding]

    def may_die(self):
        if self.frozen and not self.is_waking and self.rng.random() < 0.2:
            self.wake()
        if self.can_die and self.rng.random() < 0.1:
            raise KilledError

    def wake(self):
        """Lets a driver that was frozen continue with its batch, while another one works."""
        driver, number, sharding = self.rng.choice(self.frozen)
        self.is_waking = True
        try:
            self.commit(driver, number, sharding)
        except (KilledError, SinkError):
            pass
        else:
            self.woken += 1
        finally:
            self.is_waking = False

    @property
    def is_alone(self):
        """Whether rows are at one server."""
        return isinstance(self.sharding, str)

    def another_sharding(self):
        """Another way to divide rows; or a server alone."""
        if self.rng.random() < 0.25:
            return self.rng.choice(NAMES)
        values = self.rng.sample(range(5), self.rng.randrange(1, 5))
        servers = {value: self.rng.choice(NAMES) for value in values}
        return ByServer("k", servers, self.rng.choice(NAMES))

    def play(self, starts):
        for _ in range(starts):
            former = self.sharding
            if self.rng.random() < 0.4:
                self.sharding = self.another_sharding()
                self.tried.append(self.sharding)
            try:
                self.run()
            except KilledError:
                self.kills += 1
                # Before the first batch, another server is another target.
                if self.frozen is not None and self.driver and 0 < self.done < len(self.planned):
                    self.frozen.append((self.driver, self.done, self.sharding))
            except SinkError:
                assert self.frozen, "no other driver can have written"
                self.sharding = self.rng.choice(self.tried)
            except TableMismatchError:
                assert self.frozen or self.sharding != former, "one as it was before is refused"
                self.refusals += 1
                self.sharding = self.rng.choice(self.tried) if self.frozen else former

    def run(self):
        """Starts the pipeline, and commits batches."""
        is_alone, self.driver = self.is_alone, None
        names = (self.sharding,) if is_alone else self.sharding.names
        written = {name for name, place in self.places.items() if place.versions}
        if written and not written.intersection(names):
            # Another target, as another database is: what was at the former servers is not known.
            raise TableMismatchError("t", "the pipeline has written to none of them")
        store = ServersPositions(self.records, names)
        versions = partial(self.records.versions, names[0]) if is_alone else store.versions
        self.stands_at(versions)
        if is_alone:
            driver = Table(self, self.sharding)
            leave_servers(self.sharding, self.records)
        else:
            driver = open_servers(self.sharding, self.records, SCHEMA, partial(Table, self))
        self.driver = driver
        at = self.stands_at(versions)
        for _ in range(self.rng.randrange(1, 6)):
            if self.done == len(self.planned):
                start, size = sum(map(len, self.planned)), self.rng.randrange(6)
                self.planned.append(range(start, start + size))
            if at == self.done:
                self.commit(driver, self.done, self.sharding)
                at += 1
            self.done += 1

    def can_run(self, sharding):
        """Runs the pipeline with a sharding, if it is not refused."""
        self.sharding = sharding
        try:
            self.run()
        except TableMismatchError:
            return False
        return True

    def stands_at(self, versions):
        """Returns how many batches the sink has: those of the checkpoint, or one more."""
        at = versions([BATCH]).get(BATCH, 0)
        # As a pipeline does that finds rows missing in its sink, or others.
        if at not in (self.done, self.done + 1) or at > len(self.planned):
            raise TableMismatchError("t", "not where the checkpoint is")
        return at

    def commit(self, driver, number, sharding):
        rows = self.planned[number]
        writer = driver.writers("0" * 32)
        writer.write(pa.table({"n": rows, "k": [n % 5 for n in rows]}, SCHEMA))
        versions = {"headrace.p": 1, BATCH: number + 1}
        transaction = Transaction(versions, {BATCH: number or None})
        for n in rows:
            server = sharding if isinstance(sharding, str) else sharding.servers.get(n % 5)
            self.server_of[n] = server or sharding.otherwise
        done = driver.commit(writer.close(), transaction, 0)
        while isinstance(done, CommitRejection):
            self.letters |= {int(row.values) for row in done.rejected}
            self.may_die()
            done = driver.commit(done.pieces, transaction, 0)


@pytest.mark.parametrize("part", range(10))
def test_each_row_is_at_its_server_once_wherever_the_driver_is_killed(part):
    kills = refusals = 0
    for seed in range(part * 50, part * 50 + 50):
        world = World(seed)
        world.play(30)
        world.can_die = False
        world.run()
        rows = [(n, name) for name, place in world.places.items() for n in place.rows]
        read = range(sum(map(len, world.planned[: world.done])))
        taken = [n for n in read if n not in world.letters]
        assert sorted(rows) == [(n, world.server_of[n]) for n in taken], seed
        assert world.letters <= {n for n in read if n % 7 == 3}
        kills, refusals = kills + world.kills, refusals + world.refusals
    assert min(kills, refusals) > 50


@pytest.mark.parametrize("part", range(10))
def test_a_driver_that_was_frozen_writes_no_row_twice(part):
    woken = 0
    for seed in range(part * 50, part * 50 + 50):
        world = World(seed, with_frozen=True)
        world.play(30)
        world.can_die, world.frozen = False, []
        assert any(world.can_run(sharding) for sharding in world.tried[::-1]), seed
        rows = [n for place in world.places.values() for n in place.rows]
        read = range(sum(map(len, world.planned[: world.done])))
        assert sorted(rows) == [n for n in read if n not in world.letters], seed
        woken += world.woken
    assert woken > 50
