"""Standing queries, as a kind of declarations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.project.kind import Kind, StatusKind
from headrace.queries.declaration import StandingQueries
from headrace.queries.rules import faults_with_queries, query_type_faults, standing_query_faults
from headrace.runtime.extras import require_extra
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.queries.serve import ProjectQueries


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.queries.emit.status import EmitterStatus
    from headrace.queries.windows.instance.status import QueryInstanceStatus

    return (
        StatusKind(
            name="queries",
            type=QueryInstanceStatus,
            view="headrace.queries.windows.instance.views",
        ),
        StatusKind(name="matched_events", type=EmitterStatus, view="headrace.queries.emit.views"),
    )


def _query_backend(settings: Settings) -> Callable[[], ProjectQueries]:
    require_extra("queries")
    # Inside: a check answers no queries.
    from headrace.queries.serve import load_project_queries

    # Declarations need not be picklable, so each worker process loads the project.
    return functools.partial(load_project_queries, settings)


KIND = Kind(
    type=StandingQueries,
    label="standing queries",
    plural="standing_queries",
    shown="declaration(s) of standing queries",
    hint="`headrace query` has its commands",
    type_faults=query_type_faults,
    faults=lambda queries, _: standing_query_faults(queries),
    faults_between=lambda declarations, _: faults_with_queries(declarations),
    query_backend=_query_backend,
    statuses=_statuses,
)
