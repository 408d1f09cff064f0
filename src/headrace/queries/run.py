"""Runs an instance of standing queries in this process."""

from __future__ import annotations

from headrace.errors import QueriesUnmatchedError
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.declaration import StandingQueries
from headrace.queries.registry.registrations import event_topics
from headrace.queries.windows.instance.instance import AggregatorInstance
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder


def query_run(
    project: LoadedProject, queries: StandingQueries, options: RunOptions
) -> ServiceRun[QueryInstanceStatus]:
    """Returns an instance of standing queries that is ready to run.

    Raises:
        QueriesUnmatchedError: if no pipeline matches events with them.
        BrokerUnreachableError: if the embedded broker was never started.
    """
    topics = event_topics(project, queries.name)
    if not topics:
        raise QueriesUnmatchedError(queries.name)
    schemas = {name: topic.schema for name, topic in topics.items() if topic.schema is not None}
    own = project.settings.of("standing_queries", queries.name)
    config = broker_config(own, may_be_down=True)
    instance = AggregatorInstance(config, queries, schemas)
    return ServiceRun(instance, StatusFolder(project.settings.state, QueryInstanceStatus), options)
