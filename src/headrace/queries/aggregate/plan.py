"""What the texts of queries ask of the aggregator; each text is read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.errors import QueryTextError
from headrace.model import EventSchema
from headrace.model.durations import microseconds
from headrace.queries.aggregation import Aggregation
from headrace.queries.language import check_query, parse_query, result_types
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import ClosedBy
from headrace.queries.match.shape import compile_query

_MAX_PLANS = 100_000


@dataclass(frozen=True, eq=False)
class AggregatePlan:
    """How the windows of a query are added up, and when they end.

    Attributes:
        topic: of the events.
        aggregations: of the columns.
        facets: names of the facets, and whether each is a time.
        columns: names of the columns.
        window: length of a window.
        max_groups: of a window.
        closed_by: what ends a window.
        after_us: how long after that, in microseconds: the lateness for event time.
        early_us: how often a window that has not ended has a result; 0: never.
    """

    topic: str
    aggregations: tuple[Aggregation[Any], ...]
    facets: tuple[tuple[str, bool], ...]
    columns: tuple[str, ...]
    window: timedelta
    max_groups: int
    closed_by: ClosedBy
    after_us: int
    early_us: int

    @property
    def window_us(self) -> int:
        """Length of a window, in microseconds."""
        return microseconds(self.window)


class Plans:
    """The plans of texts.

    Args:
        schemas: of the events of topics, by name.
    """

    def __init__(self, schemas: Mapping[str, EventSchema]) -> None:
        self._schemas = schemas
        self._plans: dict[str, AggregatePlan | QueryTextError | ValueError] = {}

    def of(self, text: str) -> AggregatePlan:
        """Returns the plan of a query.

        Raises:
            QueryTextError, ValueError: if it does not fit the events of its topic, which may have
                changed.
        """
        plan = self._plans.get(text)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            try:
                plan = self._planned(text)
            except (QueryTextError, ValueError) as error:
                plan = error
            self._plans[text] = plan
        if isinstance(plan, Exception):
            raise plan
        return plan

    def _planned(self, text: str) -> AggregatePlan:
        query = parse_query(text)
        schema = self._schemas.get(query.topic)
        if schema is None:
            raise ValueError(f"no topic {query.topic!r} with an event class is declared")
        check_query(query, schema, text)
        shape, _ = compile_query(query, schema)
        types = list(result_types(query, schema).items())
        facets, columns = types[: len(query.facets)], types[len(query.facets) :]
        closing = query.closing
        by_event_time = closing.by is ClosedBy.EVENT_TIME
        return AggregatePlan(
            topic=query.topic,
            aggregations=tuple(result.aggregation for result in shape.results),
            facets=tuple((name, kind is ValueType.TIME) for name, kind in facets),
            columns=tuple(name for name, _ in columns),
            window=query.window,
            max_groups=query.max_groups,
            closed_by=closing.by,
            after_us=microseconds(query.allowed_lateness if by_event_time else closing.after),
            early_us=0 if query.early is None else microseconds(query.early),
        )
