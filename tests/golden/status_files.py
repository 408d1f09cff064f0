"""The files on this machine in which services say how they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.golden import statuses

from headrace.operations.servers.statuses import status_kinds
from headrace.service.status import StatusFolder
from headrace.settings import Settings


def write_and_read(settings: Settings) -> Iterator[tuple[list[object], list[object]]]:
    """Writes all statuses as services do; yields those of each kind, as written and as read."""
    for status in status_kinds():
        folder, values = StatusFolder(settings.state, status.type), statuses.OF_KIND[status.name]
        for value in values:
            folder.write(value)
        yield _in_json(values), _in_json(folder.read())


def _in_json(values: Iterable[Any]) -> list[object]:
    return sorted((json.loads(json.dumps(value.to_json())) for value in values), key=str)
