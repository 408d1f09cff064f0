"""Runs an instance of a merger in this process."""

from __future__ import annotations

from headrace.links.merger.declaration import Merger
from headrace.links.merger.instance import MergerInstance
from headrace.links.merger.standing import plan_of
from headrace.links.merger.status import MergerStatus
from headrace.project.loaded import LoadedProject
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder


def merger_run(
    project: LoadedProject, merger: Merger, options: RunOptions
) -> ServiceRun[MergerStatus]:
    """Returns an instance of a merger. Raises as :func:`plan_of`."""
    instance = MergerInstance(plan_of(project, merger))
    return ServiceRun(instance, StatusFolder(project.settings.state, MergerStatus), options)
