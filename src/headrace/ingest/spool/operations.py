"""The spools of this host: events that wait, quarantined files, and what operators do with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SpoolError
from headrace.ingest.spool import upkeep
from headrace.ingest.spool.spool import Spool, SpoolLimits
from headrace.ingest.spool.topic_spools import SPOOL_FOLDER, spooled_topics, warn_of_foreign_folders
from headrace.ingest.spool.upkeep import DAMAGED, QuarantinedFile, quarantined_files
from headrace.project.services import INGEST_FOLDER
from headrace.settings import IngestSettings, Settings


@dataclass(frozen=True)
class TopicSpool:
    """The spool of a topic on this host.

    Attributes:
        topic: its name.
        events: that wait to be replayed.
        bytes: of the files they are in.
        budget_bytes: what these and the quarantined files may take.
        oldest_seconds: age of the oldest of these files.
        rejected: events that were ever quarantined because Kafka rejects them.
        missing: events that were ever lost: damaged, or deleted with their file.
        quarantined: files that wait for an operator.
    """

    topic: str
    events: int
    bytes: int
    budget_bytes: int
    oldest_seconds: float
    rejected: int
    missing: int
    quarantined: tuple[QuarantinedFile, ...]


@dataclass(frozen=True)
class SpoolChange:
    """Events of a spool that were put back or dropped, or would be.

    Attributes:
        topic: whose spool it is.
        file: empty for the events that waited.
        events: how many there are.
        failure: why the file stays as it is; empty where it does not.
    """

    topic: str
    file: str
    events: int
    failure: str = ""


def list_spools(settings: Settings, topic: str = "") -> list[TopicSpool]:
    """Each spool of this host, or that of one topic.

    Raises:
        SpoolError: one can't be read, or the topic has none.
    """
    folder = _folder(settings)
    warn_of_foreign_folders(folder)
    names = [topic] if topic else spooled_topics(folder)
    spools = []
    for name in names:
        with _opened(settings, name) as spool:
            stats = spool.stats()
            described = TopicSpool(
                topic=name,
                events=stats.records,
                bytes=stats.bytes,
                budget_bytes=stats.budget_bytes,
                oldest_seconds=stats.oldest_age.total_seconds(),
                rejected=stats.rejected,
                missing=stats.missing,
                quarantined=tuple(quarantined_files(spool)),
            )
            spools.append(described)
    return spools


def replay(
    settings: Settings, topic: str, files: Sequence[str] = (), *, dry_run: bool
) -> list[SpoolChange]:
    """Puts quarantined files back into the topic's spool: ``files``, or all that hold events.

    A file that can't be put back stays, with its ``failure``, and does not stop the others.

    Raises:
        SpoolError: if a file is not there, or the spool can't be read.
    """
    with _opened(settings, topic) as spool:
        replayable = [file for file in quarantined_files(spool) if file.kind != DAMAGED]
        chosen = _chosen(spool, files, replayable)
        if dry_run:
            return [SpoolChange(topic, file.name, file.records) for file in chosen]
        return [_put_back(spool, topic, file.name) for file in chosen]


def drop(
    settings: Settings, topic: str, files: Sequence[str] = (), *, waiting: bool, dry_run: bool
) -> list[SpoolChange]:
    """Removes quarantined files, ``files`` or all of them, or instead the events that wait.

    Raises:
        SpoolError: if a file is not there, or a worker is replaying the events.
    """
    with _opened(settings, topic) as spool:
        if waiting:
            count = spool.waiting if dry_run else upkeep.drop_waiting(spool)
            return [SpoolChange(topic, "", count)]
        chosen = _chosen(spool, files, quarantined_files(spool))
        for file in () if dry_run else chosen:
            upkeep.drop(spool, file.name)
        return [SpoolChange(topic, file.name, file.records) for file in chosen]


def _put_back(spool: Spool, topic: str, name: str) -> SpoolChange:
    try:
        return SpoolChange(topic, name, upkeep.put_back(spool, name))
    except SpoolError as error:
        return SpoolChange(topic, name, 0, str(error))


def _chosen(
    spool: Spool, files: Sequence[str], quarantined: Sequence[QuarantinedFile]
) -> list[QuarantinedFile]:
    by_name = {file.name: file for file in quarantined}
    for name in files:
        if name not in by_name:
            known = ", ".join(by_name) or "none"
            reason = f"there is no such file {name!r}: {known}"
            raise SpoolError(str(spool.store.quarantine), reason)
    return [by_name[name] for name in files or by_name]


@contextlib.contextmanager
def _opened(settings: Settings, topic: str) -> Iterator[Spool]:
    folder = _folder(settings)
    if topic not in spooled_topics(folder):
        known = ", ".join(spooled_topics(folder)) or "none"
        raise SpoolError(str(folder), f"topic {topic!r} has no spool on this host: {known}")
    budget = (settings.ingest or IngestSettings()).spool_budget_bytes
    spool = Spool(folder / topic, SpoolLimits(budget_bytes=budget))
    try:
        yield spool
    finally:
        spool.close()


def _folder(settings: Settings) -> Path:
    return settings.state / INGEST_FOLDER / SPOOL_FOLDER
