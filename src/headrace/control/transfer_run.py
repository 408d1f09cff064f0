"""Runs instances of mirrors and mergers in this process."""

from __future__ import annotations

from headrace.control.mergers import plan_of
from headrace.control.mirrors import link_of
from headrace.control.project import LoadedProject
from headrace.links.merger.declaration import Merger
from headrace.links.merger.instance import MergerInstance
from headrace.links.merger.status import MergerStatus
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.instance import MirrorInstance
from headrace.links.mirror.status import MirrorStatus
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder


def mirror_run(
    project: LoadedProject, mirror: Mirror, options: RunOptions
) -> ServiceRun[MirrorStatus]:
    """Returns an instance of a mirror. Raises as :func:`link_of`."""
    merged = {topic.name for merger in project.mergers.values() for topic in merger.sources}
    tells_times = any(topic.name in merged for topic in mirror.topics.values())
    instance = MirrorInstance(link_of(project.settings, mirror, tells_times=tells_times))
    return ServiceRun(instance, StatusFolder(project.settings.state, MirrorStatus), options)


def merger_run(
    project: LoadedProject, merger: Merger, options: RunOptions
) -> ServiceRun[MergerStatus]:
    """Returns an instance of a merger. Raises as :func:`plan_of`."""
    instance = MergerInstance(plan_of(project, merger))
    return ServiceRun(instance, StatusFolder(project.settings.state, MergerStatus), options)
