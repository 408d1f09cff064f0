"""What to load, and what becomes of files that are loaded."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from headrace.errors import OfflineFilesError
from headrace.offline_files.done_files import move_file, remove_file
from headrace.offline_files.files import FileOrder
from headrace.offline_files.loading import DoneFile

_LOG = logging.getLogger("headrace.offline_files")
_SOURCE = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class LoadOptions:
    """What to load.

    Attributes:
        folder: of the files.
        source: whose counters these are; empty: the folder's name.
        into: destinations by table, where they are not called like it.
        order: which file was created first.
        pattern: of the names of the files.
        batch_lines: in a transaction.
        remove_done: delete files whose lines are all done.
        move_done: the folder, on the same file system, that these files are moved to.
        dry_run: write nothing.
    """

    folder: Path
    source: str = ""
    into: Mapping[str, str] = field(default_factory=dict)
    order: FileOrder = FileOrder.NAME
    pattern: str = "*"
    batch_lines: int = 1000
    remove_done: bool = False
    move_done: Path | None = None
    dry_run: bool = False

    @property
    def source_name(self) -> str:
        """The source.

        Raises:
            OfflineFilesError: if it can't be a name.
        """
        name = self.source or self.folder.resolve().name
        if not _SOURCE.fullmatch(name):
            reason = "no name for a source: up to 100 letters, digits, '.', '_', '-' (--source)"
            raise OfflineFilesError(name, reason)
        return name

    def check_move_folder(self) -> None:
        """Checks that files of the folder can be renamed into ``move_done``.

        Raises:
            OfflineFilesError: if not.
        """
        if self.move_done is None:
            return
        try:
            is_other_volume = self.folder.stat().st_dev != self.move_done.stat().st_dev
            is_same = self.folder.samefile(self.move_done)
        except OSError as error:
            raise OfflineFilesError(str(self.move_done), error.strerror or str(error)) from error
        if is_other_volume:
            reason = f"it is on another file system than {self.folder}"
            raise OfflineFilesError(str(self.move_done), reason)
        if is_same or not self.move_done.is_dir():
            reason = f"it is no other folder than {self.folder}"
            raise OfflineFilesError(str(self.move_done), reason)

    def end_file(self, file: DoneFile) -> None:
        """Removes or moves a file whose lines are done, if that was asked for."""
        # A dry run does no line, so no file is done.
        if self.dry_run or not file.is_whole:
            return
        if self.move_done is not None:
            is_ended = move_file(file.path, file.identity, self.move_done)
        elif self.remove_done:
            is_ended = remove_file(file.path, file.identity)
        else:
            return
        if not is_ended:
            reason = "it was written to or replaced since, or may not be renamed"
            _LOG.warning("%s: %s stays: %s", self.source_name, file.path.name, reason)


@dataclass(frozen=True)
class FollowOptions:
    """What to load as it comes.

    Attributes:
        load: what, and how.
        complete_after: see :class:`~headrace.offline_files.following.FollowedFiles`.
    """

    load: LoadOptions
    complete_after: timedelta = timedelta(minutes=1)
