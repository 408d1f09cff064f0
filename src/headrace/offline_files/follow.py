"""Loads the files of a folder as they come, until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError, OfflineFilesError
from headrace.offline_files.destination import Destination, UnknownCommitStateError
from headrace.offline_files.files import list_files
from headrace.offline_files.following import FollowedFiles
from headrace.offline_files.loading import DoneFile, FileLoader, LoadPlan, LoadStats
from headrace.offline_files.options import FollowOptions
from headrace.offline_files.status import LoaderStatus
from headrace.runtime.clock import now_in_ms
from headrace.service.restart import Fail, FailureKind, Refuse, RestartPolicy
from headrace.service.status import ServiceStatus, State
from headrace.settings import RestartSettings

_LOG = logging.getLogger("headrace.offline_files")
INTERVAL_SECONDS = 1.0
"""Between two listings of the folder, at least."""
_LISTING_SHARE = 10  # a listing takes at most a tenth of the time, however many files there are
_UNREADABLE_SECONDS = 5.0  # before a file or folder that can't be read is tried again
_SLICE_SECONDS = 0.5  # so that the status is published while it waits


class _StoppedError(Exception):
    """The follower was stopped."""


@dataclass(frozen=True)
class FollowClock:
    """The clock of a follower: monotonic seconds, seconds since 1970, and how it waits.

    Attributes:
        now: returns monotonic seconds.
        time: returns seconds since 1970.
        wait: waits for the event, or for some seconds; returns whether the event is set.
    """

    now: Callable[[], float] = time.monotonic
    time: Callable[[], float] = time.time
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait


_CLOCK = FollowClock()


class OfflineFollower:
    """Loads the files of a folder as they are completed: a ``Service``. Used once.

    Contract, beside that of the package:

    - Which files: those of the folder, not of folders in it, whose names match the pattern and do
      not start with a dot. They are of one writer, whose counters they have; several writers in
      one folder need a loader each, with a pattern and a source of its own.
    - When, and in which order: see :class:`FollowedFiles`.
    - Delivery: as of a load that ends. What is done is known from the destination alone, where it
      is written in the transaction of the lines. So a crash, a kill or a second start repeats
      nothing; files that are still there are read again, and their lines are skipped.
    - A file is opened only if it is the one that was listed. One that is deleted while it is read
      is read to its end; one that is deleted before is not loaded, and its counters are missing.
    - A file or folder that can't be read is tried again every five seconds, also one that does
      not exist yet. What comes after it waits, so that the order is kept; the status says why.
    - A destination that stays unreachable is tried again for as long as it takes. What another
      start would meet again ends the follower: a missing table, counters of another host,
      another loader of the source.
    - The folder is listed once a second at most, and a listing takes at most a tenth of the time.
    - Loaded files stay where they are, unless they are removed or moved, as a declared choice:
      never the newest, nor one that is damaged or was written to since it was opened.
    - :meth:`stop` ends it after the batch.

    Args:
        options: what to load, and when.
        plan: how; what becomes of files that are done is added here.
        destination: where lines go.
        restart: delays before the destination is opened again.
        clock: the clock.
    """

    def __init__(
        self,
        options: FollowOptions,
        plan: LoadPlan,
        destination: Destination,
        restart: RestartSettings,
        clock: FollowClock = _CLOCK,
    ) -> None:
        self._options, self._destination, self._clock = options.load, destination, clock
        self._name = options.load.source_name
        self._plan = replace(plan, on_done=self._end, wait=self._wait_because)
        self._files = FollowedFiles(options.complete_after.total_seconds())
        self._policy = RestartPolicy(restart, _kind_of)
        self._figures, self._files_done, self._lines_done = LoadStats(), 0, 0
        self._state, self._reason = State.RUNNING, ""
        self._stop = threading.Event()
        self._observe: Callable[[ServiceStatus | None], None] = lambda _: None

    def stop(self) -> None:
        """Ends :meth:`run` after the batch. May be called on any thread."""
        self._stop.set()

    def status(self) -> LoaderStatus:
        """Returns the current status."""
        figures, backlog = self._figures, self._files.backlog(self._clock.time())
        return LoaderStatus(
            self._name,
            self._state,
            self._reason,
            now_in_ms(),
            loaded=figures.loaded.total(),
            dead_letters=figures.dead.total(),
            skipped=figures.skipped,
            backwards=figures.backwards,
            retries=figures.retries,
            files=self._files_done,
            files_waiting=backlog.files,
            lag_seconds=round(backlog.age_seconds, 3),
            missing_counters=sum(end - start for start, end in figures.done.holes),
        )

    def run(self, observe: Callable[[ServiceStatus | None], None]) -> None:
        """Loads files until stopped.

        Args:
            observe: called after each batch, and at least twice a second while it waits.

        Raises:
            HeadraceError: if another start would fail, too.
        """
        self._observe = observe
        try:
            while True:
                try:
                    self._follow()
                except HeadraceError as error:
                    outcome = self._policy.after(error)
                    if isinstance(outcome, Fail | Refuse):
                        raise
                    self._wait_because(outcome.seconds, str(error))
        except _StoppedError:
            return

    def _follow(self) -> None:
        with FileLoader(self._plan, self._destination, self._figures, self._on_batch) as loader:
            self._show(State.RUNNING, "")
            while True:
                try:
                    listing_seconds = self._load_ready(loader)
                except OfflineFilesError as error:
                    if not isinstance(error.__cause__, OSError):
                        raise
                    # Lines before it are whole, and known by their counters.
                    loader.flush()
                    self._wait_because(_UNREADABLE_SECONDS, str(error))
                else:
                    self._wait(max(INTERVAL_SECONDS, _LISTING_SHARE * listing_seconds))

    def _load_ready(self, loader: FileLoader) -> float:
        """Loads what is complete; returns how long it took to list the folder."""
        started = self._clock.now()
        self._options.check_move_folder()
        listing = list_files(self._options.folder, self._options.order, self._options.pattern)
        now = self._clock.now()
        for file in self._files.look(listing, now, self._clock.time()):
            loader.read(file)
        loader.flush()
        self._show(State.RUNNING, "")
        return now - started

    def _end(self, file: DoneFile) -> None:
        self._files_done += 1
        self._files.note_done(file)
        self._options.end_file(file)

    def _on_batch(self, figures: LoadStats) -> None:
        lines_done = figures.loaded.total() + figures.dead.total()
        if lines_done != self._lines_done:  # it is called before retries, too
            self._lines_done = lines_done
            self._show(State.RUNNING, "")
        self._observe(None)
        if self._stop.is_set():
            raise _StoppedError

    def _wait_because(self, seconds: float, reason: str) -> None:
        self._show(State.WAITING, reason)
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        deadline = self._clock.now() + seconds
        while (left := deadline - self._clock.now()) > 0:
            self._observe(None)
            if self._clock.wait(self._stop, min(left, _SLICE_SECONDS)):
                raise _StoppedError

    def _show(self, state: State, reason: str) -> None:
        if reason and reason != self._reason:
            _LOG.warning("%s: %s: %s", self._name, state.value, reason)
        self._state, self._reason = state, reason


def _kind_of(error: Exception) -> FailureKind:
    if isinstance(error.__cause__, UnknownCommitStateError):
        return FailureKind.UNAVAILABLE
    return FailureKind.PERMANENT
