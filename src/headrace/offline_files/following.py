"""Which files of a folder come next, as one listing after the other shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.offline_files.files import FileIdentity, ListedFile, OfflineFile
from headrace.offline_files.loading import DoneFile

SETTLE_SECONDS = 1.0
"""A file that is not the newest is complete once nothing was written to it for this long."""


@dataclass(frozen=True)
class Backlog:
    """Files that are not loaded.

    Attributes:
        files: how many.
        age_seconds: how long the oldest waits: since its last write, or since it was first seen
            with lines to load, whichever is longer ago; 0 without files.
    """

    files: int = 0
    age_seconds: float = 0.0


class FollowedFiles:
    """What is known of the files of a folder. All of them are of one writer.

    A file is loaded when it is complete:

    - The newest is complete when nothing was written to it for ``complete_after_seconds``. Its end
      may be half written: such a line waits until more is written, or a newer file is there.
    - Another one is complete when nothing was written to it for a second: the writer has rotated
      it, by age or by size. A line that is half written at its end is a dead letter.
    - With ``complete_after_seconds`` 0, files are renamed into place, and all are complete at once.

    Time counts from the first listing that shows the file as it is, and as the newest or not, by
    this machine's clock: that of a volume may be another one. Files are loaded in their order, so
    one that is not complete holds up those after it.

    A file that changes after it was loaded is loaded again from its start, and lines that are done
    are skipped by their counters. It makes no difference whether it grew, was cut or was replaced.
    What is known of files that are no longer there is forgotten: memory is that of one listing.

    Args:
        complete_after_seconds: see above.
    """

    def __init__(self, complete_after_seconds: float) -> None:
        self._complete_after = complete_after_seconds
        self._listing: Sequence[ListedFile] = ()
        self._shown_since: dict[tuple[FileIdentity, bool], float] = {}
        self._waiting_since: dict[tuple[int, int], float] = {}
        self._done: dict[FileIdentity, DoneFile] = {}

    def look(self, listing: Sequence[ListedFile], now: float, time: float) -> list[OfflineFile]:
        """Returns the files to load now, oldest first.

        Args:
            listing: all files, oldest first.
            now: monotonic seconds.
            time: seconds since 1970.
        """
        self._listing = listing
        identities = [file.identity for file in listing]
        shown = [(file.identity, self._is_open(file)) for file in listing]
        self._shown_since = {state: self._shown_since.get(state, now) for state in shown}
        self._done = {known: self._done[known] for known in identities if known in self._done}
        self._waiting_since = {
            file.identity.place: min(
                self._waiting_since.get(file.identity.place, time),
                file.identity.modified_ns / 1e9,
            )
            for file in self._waiting()
        }
        return list(self._ready(now))

    def note_done(self, file: DoneFile) -> None:
        """Notes a file whose lines are done."""
        self._done[file.identity] = file

    def backlog(self, time: float) -> Backlog:
        """Returns the files of the last listing that are not loaded yet, half written ones too."""
        since = [self._waiting_since.get(file.identity.place, time) for file in self._waiting()]
        return Backlog(len(since), max(0.0, time - min(since))) if since else Backlog()

    def _ready(self, now: float) -> Iterator[OfflineFile]:
        for file in self._listing:
            newest = self._is_open(file)
            if self._is_done(file):
                continue
            wait = self._complete_after if newest else min(self._complete_after, SETTLE_SECONDS)
            if now - self._shown_since[file.identity, newest] < wait:
                return
            yield OfflineFile(file.path, newest, file.identity)

    def _is_open(self, file: ListedFile) -> bool:
        """Returns whether its writer may still append to the file."""
        return self._complete_after > 0 and file is self._listing[-1]

    def _is_done(self, file: ListedFile) -> bool:
        done = self._done.get(file.identity)
        # What was read as the newest may have a half-written end, which now is a dead letter.
        return done is not None and (not done.newest or self._is_open(file))

    def _waiting(self) -> Iterator[ListedFile]:
        for file in self._listing:
            if not self._is_done(file) or self._done[file.identity].left:
                yield file
