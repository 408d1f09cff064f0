"""Any sequence of appends, loads, failures, kills and power failures, on a disk that forgets.

The disk keeps what was synced; of the rest, each name and each write survives or not, as drawn.
"""

import errno
import itertools
import os
import secrets
import shutil
import stat
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.unit.ingest.spool.kafka import taking

from headrace.errors import SpoolError
from headrace.ingest.spool.loader import Loader
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits

CALLS = ("open", "pwrite", "fdatasync", "fsync", "unlink", "rename", "truncate")
LIMITS = SpoolLimits(300, timedelta(seconds=30), 1 << 20)


class KilledError(BaseException):
    """The process died inside a call."""


class Disk:
    """Stands between the spool and the system's calls: fails, kills, and forgets."""

    def __init__(self, folder):
        self.folder = folder
        self.real = {name: getattr(os, name) for name in CALLS}
        self.kill_in = self.fail_in = 0
        self.states = [b""]
        self.ids, self.drawn = {}, itertools.count(1)
        self.synced_names, self.synced_content = {}, {}
        for name in CALLS:
            setattr(os, name, self._standing_before(name))

        self.randbits, secrets.randbits = secrets.randbits, lambda _: next(self.drawn)

    def close(self):
        secrets.randbits = self.randbits
        for name, call in self.real.items():
            setattr(os, name, call)

    def heal(self):
        self.kill_in = self.fail_in = 0

    def forget(self, draw):
        """A power failure: afterwards the files are what the disk kept."""
        now = self._names()
        contents = {file_id: self._read(path) for path, file_id in now.items()}
        kept = {}
        for path in sorted({*now, *self.synced_names}):
            names = [names.get(path) for names in (self.synced_names, now)]
            file_id = names[0] if names[0] == names[1] else draw(st.sampled_from(names))
            if file_id is not None:
                kept[path] = self._kept(path, file_id, contents, draw)
        shutil.rmtree(self.folder)
        (self.folder / "quarantine").mkdir(parents=True)
        for path, content in kept.items():
            Path(path).write_bytes(content)
        self.ids = {path: next(self.drawn) for path in sorted(kept)}
        self.synced_names = self._names()
        self.synced_content = {
            file_id: self._read(path) for path, file_id in self.synced_names.items()
        }

    def _kept(self, path, file_id, contents, draw):
        if Path(path).name == "state":
            return draw(st.sampled_from(self.states))
        synced = self.synced_content.get(file_id, b"")
        now = contents.get(file_id, synced)
        if synced == now:
            return now
        cut = draw(st.integers(0, len(now)))
        return now[:cut] + synced[cut:]

    def _standing_before(self, name):
        real = self.real[name]

        def call(*arguments, **named):
            self._strike(name, arguments)
            new = name == "open" and not Path(arguments[0]).exists()
            answer = real(*arguments, **named)
            if new:
                self.ids[str(arguments[0])] = next(self.drawn)
            if name == "rename":
                self.ids[str(arguments[1])] = self.ids[str(arguments[0])]
            if name in ("fsync", "fdatasync"):
                self._synced(arguments[0])
            return answer

        return call

    def _strike(self, name, arguments):
        if self.fail_in:
            self.fail_in -= 1
            if not self.fail_in:
                raise OSError(errno.EIO, "Input/output error")
        if self.kill_in:
            self.kill_in -= 1
            if not self.kill_in:
                if name == "pwrite":
                    file, content, start = arguments
                    self.real[name](file, bytes(content)[: len(content) // 2], start)
                raise KilledError

    def _synced(self, file):
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            (folder,) = [
                one
                for one in (self.folder.parent, self.folder, self.folder / "quarantine")
                if one.exists() and one.stat().st_ino == status.st_ino
            ]
            others = {p: i for p, i in self.synced_names.items() if Path(p).parent != folder}
            now = {p: i for p, i in self._names().items() if Path(p).parent == folder}
            self.synced_names = others | now
        for path, file_id in self._names().items():
            if Path(path).stat().st_ino == status.st_ino:
                self.synced_content[file_id] = self._read(path)
            if Path(path).name == "state":
                self.states = [*self.states[-5:], self._read(path)]

    def _names(self):
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path): self.ids[str(path)] for path in sorted(found)}

    def _read(self, path):
        return Path(path).read_bytes()


class PowerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="headrace-spool-"))
        self.disk = Disk(self.scratch / "spool")
        self.now = 1e9
        self.workers = [None, None]
        self.tried, self.acked, self.failed, self.delivered = [], [], set(), []
        self.replays = 0

    def clock(self):
        return self.now

    def worker(self, which):
        if self.workers[which] is None:
            spool = Spool(self.disk.folder, LIMITS, self.clock)
            self.workers[which] = (spool, Loader(spool, taking(self.send)))
        return self.workers[which]

    def end(self, which):
        """The process is gone: the system closes its files."""
        if self.workers[which] is not None:
            spool, loader = self.workers[which]
            loader.close()
            spool.close()
            self.workers[which] = None

    def send(self, records):
        if self.rejecting:
            self.rejecting -= 1
            if not self.rejecting:
                raise ConnectionError("Kafka is away")
        texts = [record.value.decode() for record in records]
        assert not self.failed & set(texts)
        self.delivered += texts

    rejecting = 0

    def append(self, which, count, behind=False):
        texts = [f"{len(self.tried)}.{place}" for place in range(count)]
        records = [SpoolRecord("t", None, text.encode(), (), 0, None) for text in texts]
        self.tried.append(texts)
        try:
            spool, _ = self.worker(which)
            taken = spool.append_if_pending(records) if behind else spool.append(records) is None
        except SpoolError:
            self.failed |= set(texts)
            return
        if taken:
            self.acked += texts
        else:
            assert not spool.pending
            assert set(self.acked) <= set(self.delivered)
            self.failed |= set(texts)

    def load(self, which, rejecting):
        self.rejecting = rejecting
        try:
            report = self.worker(which)[1].run_once()
        except (SpoolError, ConnectionError):
            return
        finally:
            self.rejecting = 0
        if not report.standby:
            assert set(self.acked) <= set(self.delivered)

    @rule(which=st.integers(0, 1), count=st.integers(1, 3), behind=st.booleans())
    def appends(self, which, count, behind):
        self.append(which, count, behind)

    @rule(which=st.integers(0, 1), rejecting=st.integers(0, 3))
    def loads(self, which, rejecting):
        self.load(which, rejecting)

    @rule(which=st.integers(0, 1), at=st.integers(1, 8), count=st.integers(1, 3))
    def appends_on_a_failing_disk(self, which, at, count):
        self.disk.fail_in = at
        self.append(which, count)
        self.disk.heal()

    @rule(which=st.integers(0, 1), at=st.integers(1, 12))
    def loads_on_a_failing_disk(self, which, at):
        self.disk.fail_in = at
        self.load(which, 0)
        self.disk.heal()

    @rule(
        which=st.integers(0, 1),
        at=st.integers(1, 12),
        count=st.integers(0, 3),
        power=st.booleans(),
        data=st.data(),
    )
    def is_killed(self, which, at, count, power, data):
        self.disk.kill_in = at
        try:
            self.append(which, count) if count else self.load(which, 0)
        except KilledError:
            self.end(which)
        finally:
            self.disk.heal()
        if power:
            self.power_fails(data)

    @rule(data=st.data())
    @precondition(lambda self: self.tried)
    def power_fails(self, data):
        self.end(0)
        self.end(1)
        self.failed = set()  # undone, but the undoing may be forgotten: unknown
        if self.disk.folder.exists():
            self.disk.forget(data.draw)

    @rule(which=st.integers(0, 1))
    def ends(self, which):
        self.end(which)

    @rule(seconds=st.integers(-1000, 1000))
    def the_clock_jumps(self, seconds):
        self.now += seconds

    def teardown(self):
        try:
            self.check()
        finally:
            self.end(0)
            self.end(1)
            self.disk.close()
            shutil.rmtree(self.scratch)

    def check(self):
        self.end(0)
        self.end(1)
        self.load(0, 0)
        spool, _ = self.worker(0)
        assert not spool.pending
        assert spool.stats().missing == 0
        delivered = list(dict.fromkeys(self.delivered))
        assert set(self.acked) <= set(delivered)
        order = [text for texts in self.tried for text in texts if text in set(delivered)]
        assert delivered == order
        for texts in self.tried:
            assert len(set(texts) & set(delivered)) in (0, len(texts))


TestPower = PowerMachine.TestCase
TestPower.settings = settings(max_examples=150, stateful_step_count=25, derandomize=True)
