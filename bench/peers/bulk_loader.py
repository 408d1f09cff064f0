"""Ready-made bulks into OpenSearch: what a node takes from a client that does nothing but send.

The documents are those that the others send. They are made before the first run, and lie in files.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

from bench.driver import OnCommit, WriteOnce
from bench.events import events
from bench.peers.opensearch import Client
from bench.setup import Setup

# What is loaded is known a bulk at a time; with larger ones a run would be measured less exactly.
BULK_BYTES = 2 << 20
IN_FLIGHT = 4
_PLACES = re.compile(rb'"event_id":"(?P<id>[^"]+)","event_time":(?P<time>\d+)')


def open_bulk_loader(setup: Setup, *, url: str) -> WriteOnce:
    """Makes the bulks; the function returned loads them into the index of a run."""
    folder = setup.logs / "bulks"
    folder.mkdir()
    counts = list(write_bulks(folder, map(document, events(setup.messages))))
    files = [folder / str(number) for number in range(len(counts))]
    clients: SimpleQueue[Client] = SimpleQueue()
    for _ in range(IN_FLIGHT):
        clients.put(Client(urlsplit(url).port or 0))

    def write_once(out: Path, on_commit: OnCommit) -> None:
        def load(bulk: Path) -> None:
            client = clients.get()
            answer = client.call("POST", f"/{out.name}/_bulk?filter_path=errors", bulk.read_bytes())
            clients.put(client)
            if answer["errors"]:
                raise RuntimeError(f"OpenSearch has refused documents of {bulk}")

        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            loaded = threads.map(load, files)
            for committed, _ in zip(itertools.accumulate(counts), loaded, strict=True):
                on_commit(committed)

    return write_once


def document(event: bytes) -> bytes:
    """The two lines of an event in a bulk; its time is text, as in the others' documents."""
    [found] = _PLACES.finditer(event)
    time = datetime.fromtimestamp(int(found["time"]) / 1000, UTC)
    text = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    action = json.dumps({"create": {"_id": found["id"].decode()}}).encode()
    begin, end = found.span("time")
    return b'%s\n%s"%s"%s\n' % (action, event[:begin], text.encode(), event[end:])


def write_bulks(folder: Path, documents: Iterable[bytes]) -> Iterator[int]:
    """Writes files with numbers for names, and yields how many documents each has."""
    lines: list[bytes] = []
    size, files = 0, itertools.count()
    for lines_of_one in documents:
        if lines and size + len(lines_of_one) > BULK_BYTES:
            (folder / str(next(files))).write_bytes(b"".join(lines))
            yield len(lines)
            lines, size = [], 0
        lines.append(lines_of_one)
        size += len(lines_of_one)
    if lines:
        (folder / str(next(files))).write_bytes(b"".join(lines))
        yield len(lines)
