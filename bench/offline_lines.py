"""The lines, rows and events that ``bench.offline_files`` loads: the same content in three files.

A line is of the format of offline files: a row whose body, 2.2 KB of JSON with eight of the
impressions of ``bench.events``, is the base64 of zlib. Deterministic: line ``n`` is the same bytes
in every run.
"""

from __future__ import annotations

import base64
import itertools
import json
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.events import events

TABLE = "raw_item"
COLUMNS = {
    "project_id": "bigint",
    "timestamp": "bigint",
    "body": "json",
    "version": "integer",
    "billable": "integer",
    "uuid": "text",
    "counter": "bigint",
}
PROJECTS = 1_000
FILES = 10
IMPRESSIONS_A_BODY = 8
_TIME = 1_574_948_156
_FIRST_ID = 2**100


@dataclass(frozen=True)
class Item:
    """A row of the table, its body as JSON."""

    counter: int
    body: str

    @property
    def columns(self) -> dict[str, object]:
        """By name, without body and counter."""
        return {
            "project_id": self.counter % PROJECTS,
            "timestamp": _TIME + self.counter // PROJECTS,
            "version": 2,
            "billable": 1,
            "uuid": str(uuid.UUID(int=_FIRST_ID + self.counter)),
        }

    def line(self) -> str:
        """As a line of an offline file."""
        body = base64.b64encode(zlib.compress(self.body.encode())).decode()
        row = self.columns | {"body": body}
        return json.dumps({"table": TABLE, "row": row, "counter": self.counter})

    def event(self) -> str:
        """As the event that the loader sends: the body unpacked, with the counter."""
        columns = json.dumps(self.columns | {"counter": self.counter})
        return f'{columns[:-1]}, "body": {self.body}}}'

    def copied(self) -> str:
        """As a line of the text format of ``COPY``."""
        values = self.columns | {"body": self.body, "counter": self.counter}
        return "\t".join(str(values[column]).replace("\\", "\\\\") for column in COLUMNS)


@dataclass(frozen=True)
class Input:
    """The files of a run.

    Attributes:
        lines: folder of the offline files.
        events: one file, an event a line.
        rows: one file, a row a line, as ``COPY`` reads it.
    """

    lines: Path
    events: Path
    rows: Path


def items(count: int) -> Iterator[Item]:
    """The rows, with counters from 0."""
    impressions = events(count * IMPRESSIONS_A_BODY)
    for counter in range(count):
        shown = b",".join(itertools.islice(impressions, IMPRESSIONS_A_BODY))
        yield Item(counter, f'{{"impressions":[{shown.decode()}]}}')


def write(folder: Path, count: int) -> Input:
    """Writes the files into a new folder."""
    found = Input(folder / "lines", folder / "events.ndjson", folder / "rows.txt")
    found.lines.mkdir(parents=True)
    with found.events.open("w") as event_file, found.rows.open("w") as row_file:
        rows = items(count)
        share = -(-count // FILES)
        for number in range(FILES):
            with (found.lines / f"offline.{number}").open("w") as line_file:
                for item in itertools.islice(rows, share):
                    line_file.write(item.line() + "\n")
                    event_file.write(item.event() + "\n")
                    row_file.write(item.copied() + "\n")
    return found
