"""Runs an instance of a link that copies in this process."""

from __future__ import annotations

from dataclasses import replace

from headrace.links.copying.instance import CopyInstance
from headrace.links.copying.kind import Link, copy_kind_of
from headrace.links.copying.status import CopyStatus
from headrace.project.loaded import LoadedProject
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder


def copy_run(project: LoadedProject, link: Link, options: RunOptions) -> ServiceRun[CopyStatus]:
    """Returns an instance of a link. Raises as :meth:`CopyKind.plan`."""
    kind = copy_kind_of(link)
    merged = {
        topic.name
        for taker, value in project.by_kind
        if taker.takes_times
        for topic in taker.reads(value)
    }
    is_merged = any(topic.name in merged for topic in link.topics.values())
    plan = kind.plan(project.settings, link)
    instance = CopyInstance(replace(plan, reports_times=kind.reports_times and is_merged))
    return ServiceRun(instance, StatusFolder(project.settings.state, plan.status), options)
