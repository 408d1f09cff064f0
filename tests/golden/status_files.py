"""The files on this machine in which services say how they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.golden import statuses

from headrace.pipelines.status import PipelineStatus
from headrace.service.status import StatusFolder
from headrace.settings import Settings


def write_and_read(settings: Settings) -> Iterator[tuple[list[object], list[object]]]:
    """Writes all statuses as services do; yields those of each kind, as written and as read."""
    written = {
        StatusFolder(settings.state, PipelineStatus): (
            statuses.PIPELINE,
            statuses.FAILED_PIPELINE,
            statuses.STARTING_PIPELINE,
        ),
        **{
            StatusFolder(settings.state, type(status)): (status,)
            for status in (
                statuses.WORKER,
                statuses.MIRROR,
                statuses.MERGER,
                statuses.DISPATCHER,
                statuses.EMITTER,
                statuses.QUERIES,
            )
        },
    }
    for folder, values in written.items():
        for value in values:
            folder.write(value)
        yield _in_json(values), _in_json(folder.read())


def _in_json(values: Iterable[Any]) -> list[object]:
    return sorted((json.loads(json.dumps(value.to_json())) for value in values), key=str)
