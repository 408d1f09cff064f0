"""A loader that follows a folder: files as they come, each line once, whatever happens."""

from __future__ import annotations

import gzip
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.offline_lines import line, write

from headrace.errors import CounterReusedError, OfflineFilesError, SinkError
from headrace.offline_files.follow import FollowClock, OfflineFollower
from headrace.offline_files.loading import LoadPlan
from headrace.offline_files.options import FollowOptions, LoadOptions
from headrace.offline_files.status import LoaderStatus
from headrace.service.status import State
from headrace.settings import RestartSettings

from .conftest import MAX_BODY_BYTES, Memory

STEP_SECONDS = 0.5


class CrashedError(Exception):
    """The process was killed."""


class Follow:
    """Runs followers on a clock of their own; between their looks, others act."""

    def __init__(self, folder: Path, memory: Memory, complete_after: int = 60, **options: object):
        self.folder, self.memory = folder, memory
        load = LoadOptions(folder, "host", **options)
        self._options = FollowOptions(load, timedelta(seconds=complete_after))
        self._now = 0.0
        self._steps: Iterable[Callable[[], object]] = iter(())
        self.statuses: list[LoaderStatus] = []
        self.batch = 3

    def run(self, *steps: Callable[[], object]) -> LoaderStatus:
        """Runs a follower, with a step before each half second of waiting; then stops it."""
        self._steps = iter(steps)
        clock = FollowClock(lambda: self._now, lambda: time.time() + self._now, self._wait)
        plan = LoadPlan(self.batch, MAX_BODY_BYTES)
        self.follower = OfflineFollower(self._options, plan, self.memory, RestartSettings(), clock)
        self.statuses = []
        self.follower.run(lambda _: self.statuses.append(self.follower.status()))
        return self.follower.status()

    def pause(self, seconds: float = 100) -> None:
        """Lets time pass."""
        self._now += seconds

    def seconds(self, number: float) -> list[Callable[[], object]]:
        """Steps in which nothing happens."""
        return [lambda: None] * int(number / STEP_SECONDS)

    def quiet(self) -> list[Callable[[], object]]:
        """Steps after which all files are complete."""
        return [*self.seconds(3), self.pause, *self.seconds(3)]

    def _wait(self, stop: threading.Event, seconds: float) -> bool:
        step = next(self._steps, self.follower.stop)
        step()
        self._now += seconds
        return stop.is_set()


@pytest.fixture
def follow(tmp_path, memory):
    (tmp_path / "offline").mkdir()
    return Follow(tmp_path / "offline", memory)


def append(path, *contents):
    with path.open("ab") as file:
        file.write(b"".join(content + b"\n" for content in contents))


def test_files_are_loaded_as_they_come_in_the_order_of_their_names(follow):
    folder, memory = follow.folder, follow.memory
    write(folder / "offline.9", line(0))

    def rotate():
        assert memory.counters == []  # it may still be written to
        write(folder / "offline.10", line(1), line(2))

    def rotate_again():
        assert memory.counters == [0]
        write(folder / "offline.11", line(3))

    status = follow.run(
        *follow.seconds(3), rotate, *follow.seconds(3), rotate_again, *follow.quiet()
    )
    assert memory.counters == [0, 1, 2, 3]
    assert (status.loaded, status.dead_letters, status.files_waiting) == (4, 0, 0)
    assert sorted(path.name for path in folder.iterdir()) == [
        "offline.10",
        "offline.11",
        "offline.9",
    ]


def test_the_newest_file_is_loaded_once_nothing_was_written_to_it_for_a_while(follow):
    path = write(follow.folder / "offline.1", line(0))

    def grow():
        assert follow.memory.counters == []
        append(path, line(1))

    steps = [*follow.seconds(2), lambda: follow.pause(55), grow, *follow.seconds(50)]
    assert follow.run(*steps).files_waiting == 1
    assert follow.memory.counters == []
    follow.run(*follow.quiet())
    assert follow.memory.counters == [0, 1]


def test_a_file_that_is_renamed_into_place_is_complete(tmp_path, memory):
    follow = Follow(tmp_path, memory, complete_after=0, pattern="*.ndjson")
    write(tmp_path / "offline.1.part", line(0), line(1)[:20], end=b"")

    def rename():
        assert not memory.entries
        (tmp_path / "offline.1.part").rename(tmp_path / "offline.1.ndjson")

    follow.run(*follow.seconds(2), rename, *follow.seconds(1))
    assert memory.counters == [0]
    assert [letter.reason for letter in memory.letters] == ["torn-line"]


def test_a_file_that_grows_after_it_was_loaded_is_loaded_again_without_its_done_lines(follow):
    path = write(follow.folder / "offline.1", line(0), line(1))
    status = follow.run(*follow.quiet(), lambda: append(path, line(2)), *follow.quiet())
    assert follow.memory.counters == [0, 1, 2]
    assert (status.skipped, status.files) == (2, 2)


def test_a_file_that_is_truncated_or_replaced_is_loaded_again(follow):
    path = write(follow.folder / "offline.1", line(0), line(1))
    replaced = write(follow.folder.parent / "other", line(3))
    follow.run(
        *follow.quiet(),
        lambda: write(path, line(2)),
        *follow.quiet(),
        lambda: replaced.replace(path),
        *follow.quiet(),
    )
    assert follow.memory.counters == [0, 1, 2, 3]


def test_the_half_written_end_of_the_newest_file_waits_for_the_rest_or_a_newer_file(follow):
    folder, memory = follow.folder, follow.memory
    path = write(folder / "offline.1", line(0), line(1)[:20], end=b"")
    assert follow.run(*follow.quiet()).files_waiting == 1
    assert (memory.counters, memory.letters) == ([0], [])
    write(path, line(0), line(1), line(2)[:20], end=b"")
    follow.run(*follow.quiet())
    assert memory.counters == [0, 1]
    follow.run(*follow.quiet(), lambda: write(folder / "offline.2", line(3)), *follow.quiet())
    assert memory.counters == [0, 1, 3]
    assert [letter.reason for letter in memory.letters] == ["torn-line"]


def test_the_end_that_comes_just_after_a_rotation_is_no_torn_line(follow):
    path = write(follow.folder / "offline.1", line(0), line(1)[:20], end=b"")

    def finish():
        write(path, line(0), line(1))

    rotate = lambda: write(follow.folder / "offline.2", line(2))  # noqa: E731
    follow.run(*follow.seconds(20), rotate, finish, *follow.quiet())
    assert follow.memory.counters == [0, 1, 2]
    assert not follow.memory.letters


def test_an_older_file_that_is_still_written_to_holds_up_those_after_it(follow):
    path = write(follow.folder / "offline.1", line(0))
    write(follow.folder / "offline.2", line(5))
    grow = [lambda number=number: append(path, line(number)) for number in range(1, 5)]
    follow.run(*grow)
    assert follow.memory.counters == []
    follow.run(*follow.quiet())
    assert follow.memory.counters == [0, 1, 2, 3, 4, 5]


def test_a_file_that_can_not_be_read_is_tried_again_and_those_after_it_wait(follow, monkeypatch):
    for number in range(3):
        write(follow.folder / f"offline.{number}", line(number))
    is_readable = False
    opened = Path.open

    def open_(path, *arguments, **options):
        if path.name == "offline.1" and not is_readable:
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", open_)

    def allow():
        nonlocal is_readable
        waiting = follow.statuses[-1]
        assert waiting.state is State.WAITING
        assert "offline.1" in waiting.reason
        assert waiting.files_waiting == 2
        assert waiting.lag_seconds > 20
        assert follow.memory.counters == [0]
        is_readable = True

    status = follow.run(*follow.seconds(30), allow, *follow.seconds(10), *follow.quiet())
    assert follow.memory.counters == [0, 1, 2]
    assert (status.state, status.reason) == (State.RUNNING, "")
    assert status.lag_seconds == 0


def test_a_folder_that_does_not_exist_is_waited_for(follow):
    follow.folder.rmdir()

    def appear():
        assert follow.statuses[-1].state is State.WAITING
        assert "No such file or directory" in follow.statuses[-1].reason
        follow.folder.mkdir()
        write(follow.folder / "offline.1", line(0))

    assert follow.run(*follow.seconds(10), appear, *follow.seconds(10), *follow.quiet()).loaded == 1


def test_a_file_that_is_deleted_before_it_is_loaded_holds_nothing_up(follow):
    for number in range(3):
        write(follow.folder / f"offline.{number}", line(number))
    status = follow.run((follow.folder / "offline.1").unlink, *follow.quiet())
    assert follow.memory.counters == [0, 2]
    assert status.missing_counters == 1


def test_a_file_that_is_written_to_while_the_folder_is_listed_waits_for_the_next_look(
    follow, monkeypatch
):
    path = write(follow.folder / "offline.1", line(0))
    write(follow.folder / "offline.2", line(2))
    opened = Path.open

    def open_(self, *arguments, **options):
        if self.name == "offline.1" and arguments == ("rb",):
            monkeypatch.undo()
            append(path, line(1)[:20])
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", open_)
    complete = lambda: write(path, line(0), line(1))  # noqa: E731
    follow.run(*follow.seconds(1), complete, *follow.quiet())
    assert sorted(follow.memory.counters) == [0, 1, 2]
    assert not follow.memory.letters


def test_loaded_files_are_removed_but_never_the_newest(tmp_path, memory):
    follow = Follow(tmp_path, memory, remove_done=True)
    for number in range(3):
        write(tmp_path / f"offline.{number}", line(number))
    follow.run(*follow.quiet(), lambda: write(tmp_path / "offline.3", line(3)), *follow.quiet())
    assert [path.name for path in tmp_path.iterdir()] == ["offline.3"]
    assert memory.counters == [0, 1, 2, 3]


def test_loaded_files_are_moved_and_replace_no_other(tmp_path, memory):
    done = tmp_path / "done"
    done.mkdir()
    write(done / "offline.0", b"of another day")
    follow = Follow(tmp_path, memory, move_done=done)
    for number in range(3):
        write(tmp_path / f"offline.{number}", line(number))
    follow.run(*follow.quiet())
    assert sorted(path.name for path in done.iterdir()) == ["offline.0", "offline.0-2", "offline.1"]
    assert (done / "offline.0").read_bytes() == b"of another day\n"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["offline.2"]


@pytest.mark.parametrize(
    ("move_done", "problem"), [("", "it is no other folder"), ("file", "it is no other folder")]
)
def test_a_folder_that_files_can_not_be_moved_to_is_refused(tmp_path, memory, move_done, problem):
    write(tmp_path / "file", line(0))
    with pytest.raises(OfflineFilesError, match=problem):
        Follow(tmp_path, memory, move_done=tmp_path / move_done).run()
    assert memory.closed == 1


def test_a_folder_on_another_file_system_is_refused(tmp_path, memory):
    with pytest.raises(OfflineFilesError, match="another file system"):
        Follow(tmp_path, memory, move_done=Path("/proc")).run()


def test_a_destination_that_stays_unreachable_is_waited_for(follow):
    write(follow.folder / "offline.1", line(0))
    write(follow.folder / "offline.2", line(1))
    follow.memory.fails = ["before"] * 20

    def look():
        assert follow.statuses[-1].state is State.WAITING
        assert "gone" in follow.statuses[-1].reason

    status = follow.run(*follow.seconds(40), look, *follow.seconds(60), *follow.quiet())
    assert follow.memory.counters == [0, 1]
    assert status.state is State.RUNNING
    assert status.retries > 7


def test_what_another_start_would_meet_ends_it(follow, monkeypatch):
    write(follow.folder / "offline.1", line(0), line(0, host="b"))
    with pytest.raises(CounterReusedError):
        follow.run(*follow.quiet())
    monkeypatch.setattr(follow.memory, "open", lambda: _raise(SinkError("memory", "no table")))
    with pytest.raises(SinkError, match="no table"):
        follow.run()


def _raise(error):
    raise error


def test_it_stops_after_the_batch(follow):
    write(follow.folder / "offline.1", *map(line, range(10)))
    write(follow.folder / "offline.2", line(10))
    written = follow.memory.write

    def write_and_stop(*arguments):
        follow.follower.stop()
        return written(*arguments)

    follow.memory.write = write_and_stop
    follow.run(*follow.seconds(5))
    assert follow.memory.counters == [0, 1, 2]
    follow.memory.write = written
    status = follow.run(*follow.quiet())
    assert follow.memory.counters == list(range(11))
    assert status.skipped == 3


def test_a_listing_takes_at_most_a_tenth_of_the_time(follow, monkeypatch):
    looks = []

    def slow(*_):
        looks.append(follow._now)
        follow.pause(7)
        return []

    monkeypatch.setattr("headrace.offline_files.follow.list_files", slow)
    follow.run(*follow.seconds(200))
    assert {later - before for before, later in itertools.pairwise(looks)} == {77}


class Writer:
    """The service that writes the files, and whoever compresses and deletes them."""

    def __init__(self, follow: Follow) -> None:
        self._follow, self._folder = follow, follow.folder
        self.lines, self._file, self._rest = 0, 0, b""

    def append(self) -> None:
        self._write(self._next())

    def half(self) -> None:
        """Writes a part of a line; whatever comes next completes it."""
        content = self._next()
        self._write(content[:30])
        self._rest = content[30:]

    def rotate(self) -> None:
        self._complete()
        self._file += 1
        self._write(b"")

    def rotate_late(self) -> None:
        """The rest of a line comes after the new file."""
        rest, self._rest, old = self._rest, b"", self._path
        self._file += 1
        self._write(b"")
        if rest:
            with old.open("ab") as file:
                file.write(rest)

    def compress(self) -> None:
        """Compresses the oldest file that is not the current one."""
        plain = [path for path in self._rotated() if path.suffix != ".gz"]
        if plain:
            packed = self._folder / ".packed"
            packed.write_bytes(gzip.compress(plain[0].read_bytes()))
            packed.rename(plain[0].with_suffix(f"{plain[0].suffix}.gz"))
            plain[0].unlink()

    def idle(self) -> None:
        self._follow.pause()

    def moment(self) -> None:
        """Nothing happens."""

    def crash(self) -> None:
        raise CrashedError

    def crash_at_commit(self) -> None:
        self._follow.memory.fails = [*self._follow.memory.fails, "crash-after"]

    def crash_before_commit(self) -> None:
        self._follow.memory.fails = [*self._follow.memory.fails, "crash-before"]

    def fail(self) -> None:
        self._follow.memory.fails = [*self._follow.memory.fails, "before", "after"]

    @property
    def _path(self) -> Path:
        return self._folder / f"offline.{self._file}"

    def _rotated(self) -> list[Path]:
        files = [path for path in self._folder.iterdir() if path.is_file()]
        return sorted(path for path in files if path.name != self._path.name)

    def _next(self) -> bytes:
        self._complete()
        self.lines += 1
        return line(self.lines - 1) + b"\n"

    def _complete(self) -> None:
        rest, self._rest = self._rest, b""
        self._write(rest)

    def _write(self, content: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(content)


class CrashingMemory(Memory):
    """A destination whose loader may be killed before or after a commit."""

    def write(self, batch, progress):
        failure = self.fails[0] if self.fails else ""
        if not failure.startswith("crash"):
            return super().write(batch, progress)
        self.fails.pop(0)
        if failure == "crash-after":
            fails, self.fails = self.fails, []
            super().write(batch, progress)
            self.fails = fails
        raise CrashedError


ACTIONS = (
    *("append",) * 4,
    *("moment",) * 3,
    *("rotate",) * 2,
    "half",
    "rotate_late",
    "compress",
    "idle",
    "crash",
    "crash_at_commit",
    "crash_before_commit",
    "fail",
)


@settings(max_examples=60, deadline=None)
@given(
    history=st.lists(st.sampled_from(ACTIONS), max_size=60),
    batch=st.integers(1, 6),
    done=st.sampled_from(["keep", "remove", "move"]),
)
def test_each_line_is_loaded_once_in_order_whatever_happens(tmp_path_factory, history, batch, done):
    root = tmp_path_factory.mktemp("follow")
    for name in ("offline", "done"):
        (root / name).mkdir()
    ends = {"remove": {"remove_done": True}, "move": {"move_done": root / "done"}}
    memory = CrashingMemory()
    follow = Follow(root / "offline", memory, **ends.get(done, {}))
    follow.batch = batch
    writer = Writer(follow)
    steps = iter([getattr(writer, name) for name in history])
    while not _ends(follow, steps):
        pass
    memory.fails = []
    writer.rotate()
    status = follow.run(*follow.quiet())
    assert memory.counters == list(range(writer.lines))
    assert not memory.letters
    assert (status.files_waiting, status.missing_counters) == (0, 0)
    left = [path.name for path in (root / "offline").iterdir()]
    if done != "keep":
        assert left == [f"offline.{writer._file}"]
    assert bool(list((root / "done").iterdir())) == (done == "move" and writer._file > 0)


def _ends(follow, steps):
    """Runs a follower through the rest of a history; answers whether it came to its end."""
    try:
        follow.run(*steps)
    except CrashedError:
        return False
    return True
