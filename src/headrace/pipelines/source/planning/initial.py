"""The first position of each topic of a checkpoint: a file in it, written once."""

from __future__ import annotations

import json

from headrace.pipelines.source.offsets import SourceOffset
from headrace.storage import files as storage


def read_initial(checkpoint: str, topic: str) -> SourceOffset | None:
    """Returns where the checkpoint begins to read ``topic``; None if that is not decided yet."""
    path = initial_path(checkpoint, topic)
    if not storage.exists(path):
        return None
    return SourceOffset.from_json(json.loads(storage.read_bytes(path)))


def write_initial(checkpoint: str, offset: SourceOffset) -> None:
    """Decides where the checkpoint begins to read the topic of ``offset``."""
    content = json.dumps(offset.to_json()).encode()
    storage.write_bytes_atomic(initial_path(checkpoint, offset.topic), content)


def initial_path(checkpoint: str, topic: str) -> str:
    """The file of a topic."""
    return storage.join(checkpoint, "headrace", f"initial-{topic}.json")
