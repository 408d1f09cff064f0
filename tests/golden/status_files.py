"""The files on this machine in which services say how they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.golden import statuses

from headrace.control import status_folders
from headrace.control.query_instance_status import QueryStatusFolder
from headrace.pipelines.progress import StatusFolder
from headrace.settings import Settings


def write_and_read(settings: Settings) -> Iterator[tuple[list[object], list[object]]]:
    """Writes all statuses as services do; yields those of each kind, as written and as read."""
    written = {
        StatusFolder(settings.state / "status"): (
            statuses.PIPELINE,
            statuses.FAILED_PIPELINE,
            statuses.STARTING_PIPELINE,
        ),
        status_folders.worker_folder(settings): (statuses.WORKER,),
        status_folders.mirror_folder(settings): (statuses.MIRROR,),
        status_folders.merger_folder(settings): (statuses.MERGER,),
        status_folders.dispatcher_folder(settings): (statuses.DISPATCHER,),
        status_folders.matched_events_folder(settings): (statuses.EMITTER,),
        QueryStatusFolder(settings): (statuses.QUERIES,),
    }
    for folder, values in written.items():
        for value in values:
            folder.write(value)
        yield _in_json(values), _in_json(folder.read())


def _in_json(values: Iterable[Any]) -> list[object]:
    return sorted((json.loads(json.dumps(value.to_json())) for value in values), key=str)
