"""Runs an instance of a mirror in this process."""

from __future__ import annotations

from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.instance import MirrorInstance
from headrace.links.mirror.standing import mirror_plan
from headrace.links.mirror.status import MirrorStatus
from headrace.project.loaded import LoadedProject
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder


def mirror_run(
    project: LoadedProject, mirror: Mirror, options: RunOptions
) -> ServiceRun[MirrorStatus]:
    """Returns an instance of a mirror. Raises as :func:`mirror_plan`."""
    merged = {
        topic.name
        for kind, value in project.by_kind
        if kind.takes_times
        for topic in kind.reads(value)
    }
    reports_times = any(topic.name in merged for topic in mirror.topics.values())
    instance = MirrorInstance(mirror_plan(project.settings, mirror, reports_times=reports_times))
    return ServiceRun(instance, StatusFolder(project.settings.state, MirrorStatus), options)
