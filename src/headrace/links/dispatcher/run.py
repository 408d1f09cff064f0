"""Runs instances of dispatchers, which need Spark."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from headrace.links.dispatcher.declaration import Dispatcher
from headrace.links.dispatcher.instance import DispatcherInstance
from headrace.links.dispatcher.standing import dispatcher_session, routes_of
from headrace.links.dispatcher.status import DispatcherStatus
from headrace.project.loaded import LoadedProject
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder
from headrace.settings import environment


def dispatcher_run(
    project: LoadedProject,
    dispatcher: Dispatcher,
    options: RunOptions,
    sites: Collection[str] = (),
    *,
    once: bool = False,
) -> ServiceRun[DispatcherStatus]:
    """Returns an instance of a dispatcher.

    Args:
        project: that declares it.
        dispatcher: which one.
        options: how it is to run.
        sites: its targets; empty: all.
        once: end when what the topic holds now is sent.

    Raises:
        NotDeclaredError: if headrace.toml has no such site.
        BrokerUnreachableError: if an embedded broker was never started.
    """
    settings = project.settings
    routes = routes_of(project, dispatcher, sites)
    session = partial(dispatcher_session, settings, dispatcher, len(routes), environment())
    instance = DispatcherInstance(
        dispatcher.name, routes, session, settings.restart, settings.state, once=once
    )
    return ServiceRun(instance, StatusFolder(settings.state, DispatcherStatus), options)
