"""What customers' programs send, and what the service before had left on its disk.

All of it is made from numbers, so the same number is the same occurrence, with the same id.
"""

from __future__ import annotations

import base64
import gzip
import json
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import flow

ARTICLE = Path(__file__).parent / "data" / "offline-files-of-the-article.ndjson"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "headrace/examples/error_tracking")
EVERY = timedelta(seconds=7)
ERRORS = (
    ("TypeError", "Cannot read properties of undefined (reading 'price')"),
    ("KeyError", "'cart_id'"),
    ("ActiveRecord::RecordNotFound", "Couldn't find Order with 'id'=4711"),
    ("java.net.SocketTimeoutException", "Read timed out"),
    ("IntegrityError", "duplicate key value violates unique constraint"),
    ("ZeroDivisionError", "division by zero"),
)
FIRST_OFFLINE_SECOND = 1_574_947_801
ARTICLE_COUNTERS = (356, 357)
OFFLINE_LINES = 1_200

Event = dict[str, Any]


@dataclass(frozen=True)
class Project:
    """A program of a customer."""

    id: int
    account: str
    name: str


PROJECTS = (
    Project(1, "acme", "shop"),
    Project(2, "acme", "warehouse"),
    Project(3, "globex", "app"),
)


def occurrence(project: Project, number: int, now: datetime) -> Event:
    """An occurrence, ``number`` times seven seconds ago."""
    error, message = ERRORS[number % len(ERRORS)]
    levels, languages = get_args(flow.Level), get_args(flow.Language)
    return {
        "uuid": str(uuid.uuid5(NAMESPACE, f"{project.id}/{number}")),
        "occurred_at": (now - number * EVERY).isoformat(),
        "level": levels[number * 7 % len(levels)],
        "environment": "staging" if number % 10 == 0 else "production",
        "language": languages[(project.id + number) % len(languages)],
        "title": f"{error}: {message}",
        "body": f"{error} in checkout.py:{number % 400} place_order, called 3 frames deeper",
        "host": f"web-{number % 5}" if number % 3 else None,
    }


def write_offline_files(folder: Path) -> None:
    """Files as the service before left them: rotated, some compressed since, two lines damaged.

    The damaged lines are those that Rollbar's article shows; ours have the counters around them.
    """
    folder.mkdir(parents=True)
    first, last = ARTICLE_COUNTERS
    rotated = range(first // 2), range(first // 2, first - 1), range(last, OFFLINE_LINES)
    early, late, rest = (
        b"".join(offline_line(number + 1) for number in numbers) for numbers in rotated
    )
    (folder / "offline.1.gz").write_bytes(gzip.compress(early))
    (folder / "offline.2").write_bytes(late)
    (folder / "offline.3").write_bytes(ARTICLE.read_bytes())
    (folder / "offline.4").write_bytes(rest)


def offline_line(counter: int) -> bytes:
    """A line: the row of a table, its body compressed, and the number of the line."""
    project = PROJECTS[counter % len(PROJECTS)]
    at = FIRST_OFFLINE_SECOND + counter
    error, message = ERRORS[counter % len(ERRORS)]
    body = {"timestamp": at, "body": {"trace": {"exception": {"class": error, "message": message}}}}
    row = {
        "project_id": project.id,
        "timestamp": at,
        "body": base64.b64encode(zlib.compress(json.dumps(body).encode())).decode(),
        "version": 2,
        "billable": 1,
        "uuid": str(uuid.uuid5(NAMESPACE, f"offline/{counter}")),
    }
    return json.dumps({"table": "raw_item", "row": row, "counter": counter}).encode() + b"\n"


def offline_counters() -> Iterator[int]:
    """Returns the counters of the lines that can be read."""
    counters = range(1, OFFLINE_LINES + 1)
    return (counter for counter in counters if counter not in ARTICLE_COUNTERS)
