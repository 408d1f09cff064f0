"""Moves what can't be replayed into the quarantine, with what is known of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from headrace.ingest.spool.frames import Damage
from headrace.ingest.spool.segment import RejectedRecord, read
from headrace.runtime.files.durable_files import sync_folder, write_durably

_DAMAGED, _REJECTED = ".damaged", ".rejected"


def quarantine_ranges(path: Path, damages: Iterable[Damage], quarantine: Path) -> None:
    """Copies damaged ranges of a segment into files, each with a first line of JSON.

    A second call after a crash writes the same files.

    Where the disk has no room for copies, the whole segment is moved.
    """
    try:
        for damage in damages:
            length = damage.end - damage.start
            known = {"segment": path.name, "offset": damage.start, "bytes": length}
            content = json.dumps(known).encode() + b"\n" + read(path, damage.start, length)
            write_durably(quarantine / f"{path.stem}-{damage.start:012}{_DAMAGED}", content, 0)
    except OSError:
        quarantine_segment(path, quarantine)


def quarantine_rejected(path: Path, rejected: Sequence[RejectedRecord], quarantine: Path) -> None:
    """Writes records that Kafka rejects, a line of JSON each; bytes are base64.

    Where the disk has no room for them, the segment gets a second name in the quarantine: a link
    takes no space, and keeps the records when the loader removes the segment.
    """
    try:
        lines = [
            {"counter": record.counter, "reason": record.reason}
            | msgspec.structs.asdict(record.record)
            for record in rejected
        ]
        name = f"{path.stem}-{rejected[0].counter:018}-{rejected[-1].counter:018}{_REJECTED}"
        content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        write_durably(quarantine / name, content, 0)
    except OSError:
        if not (quarantine / path.name).exists():  # another batch of the segment was rejected, too
            os.link(path, quarantine / path.name)
        sync_folder(quarantine)


def quarantine_segment(path: Path, quarantine: Path) -> None:
    """Moves a whole segment into the quarantine."""
    # Within one file system: it takes no space, and a crash leaves the file in one of the two
    # folders.
    path.rename(quarantine / path.name)
    sync_folder(quarantine)
