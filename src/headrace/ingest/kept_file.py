"""Small files that a host keeps of what Kafka said, for starts while Kafka is away."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_kept(path: Path, content: bytes) -> None:
    """Replaces the file at once, readable by this user alone; a crash leaves the old or the new.

    Raises:
        OSError: the disk failed; the old file is there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Workers write the same file: each begins with a name of its own.
    beginning = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        file = os.open(beginning, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        beginning.replace(path)
    finally:
        beginning.unlink(missing_ok=True)


def read_kept(path: Path) -> bytes | None:
    """What was written last; ``None`` when there is nothing that can be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None
