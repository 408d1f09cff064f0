"""The spools of a host: one for each topic, so that none waits for another's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from headrace.errors import SpoolError
from headrace.ingest.spool.loader import Loader, Send
from headrace.ingest.spool.spool import Spool, SpoolLimits, SpoolStats
from headrace.model import MAX_TOPIC_NAME_LENGTH, TOPIC_NAME

SPOOL_FOLDER = "spool"

_LOG = logging.getLogger("headrace.ingest")


class TopicSpools:
    """Spools below a folder, each in a folder with its topic's name.

    Those of topics that have no spool any more are still replayed.

    Raises:
        SpoolError: if a folder can't be made or read.
    """

    def __init__(self, folder: Path, limits: SpoolLimits, topics: Collection[str]) -> None:
        warn_of_foreign_folders(folder)
        names = sorted({*topics, *spooled_topics(folder)})
        self._all = {name: Spool(folder / name, limits) for name in names}
        self.open: Mapping[str, Spool] = {name: self._all[name] for name in topics}
        self._ending = threading.Event()
        self._loading: list[tuple[Loader, threading.Thread]] = []

    def load(self, sender: Callable[[], Send]) -> None:
        """Replays each spool on a thread; one worker of the host replays each."""
        for name, spool in self._all.items():
            loader = Loader(spool, sender())
            run = threading.Thread(
                target=loader.run, args=(self._ending,), name=f"spool {name}", daemon=True
            )
            self._loading.append((loader, run))
            run.start()

    def stats(self) -> dict[str, SpoolStats]:
        """Returns what each spool holds, by topic; those that can't be read are left out."""
        stats = {}
        for name, spool in self._all.items():
            try:
                stats[name] = spool.stats()
            except SpoolError:
                _LOG.exception("Cannot read the spool of %s", name)
        return stats

    def close(self) -> None:
        """Ends the replay, after the batch that is on its way. Nothing is lost."""
        self._ending.set()
        for loader, thread in self._loading:
            thread.join()
            loader.close()
        for spool in self._all.values():
            spool.close()


def spooled_topics(folder: Path) -> list[str]:
    """Returns the topics that have a folder there."""
    return [name for name in _folders(folder) if _may_be_topic(name)]


def warn_of_foreign_folders(folder: Path) -> None:
    """Names folders that can't be a topic's, such as ``lost+found``; they stay untouched."""
    foreign = [name for name in _folders(folder) if not _may_be_topic(name)]
    if foreign:
        _LOG.warning("%s: ignored, not the spool of a topic: %s", folder, ", ".join(foreign))


def _may_be_topic(name: str) -> bool:
    return bool(TOPIC_NAME.fullmatch(name)) and len(name) <= MAX_TOPIC_NAME_LENGTH


def _folders(folder: Path) -> list[str]:
    paths = folder.iterdir() if folder.exists() else ()
    return sorted(path.name for path in paths if path.is_dir())
