"""How windows are added up, as the texts of queries say; one text of each shape is parsed."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from headrace.errors import QueryTextError
from headrace.model import EventSchema
from headrace.model.durations import microseconds
from headrace.queries.language import check_query, parse_query, result_types
from headrace.queries.language.functions import ValueType
from headrace.queries.match.shape import Constants, ShapeTemplate, compile_query
from headrace.queries.windows.aggregate.closing import WindowClosing, closing_of
from headrace.queries.windows.functions import Aggregation

_MAX_SHAPES = 10_000  # that are kept; beyond that, the oldest is dropped
_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class AggregatePlan:
    """How the windows of queries of one shape are added up, and when they close.

    Attributes:
        shape: the key of the shape.
        types: a hash of the types of the values that facets and columns are made of.
        topic: the topic of the events.
        aggregations: the aggregation of each column.
        facets: the name of each facet, and whether it is a time.
        columns: the names of the columns.
        window: the length of a window.
        slide_us: the time from the start of one window to the next, in microseconds.
        max_groups: the limit of groups in a window; all others are added up together.
        closing: when a window ends.
        early_us: the time between early results of an open window, in microseconds; 0 if there are
            none.
        emits_empty: whether windows without events have results.
        loss_after: the number of windows without events that make a loss of signal; 0 if the query
            does not ask for it.
    """

    shape: str
    types: str
    topic: str
    aggregations: tuple[Aggregation[Any], ...]
    facets: tuple[tuple[str, bool], ...]
    columns: tuple[str, ...]
    window: timedelta
    slide_us: int
    max_groups: int
    closing: WindowClosing
    early_us: int
    emits_empty: bool
    loss_after: int

    @property
    def window_us(self) -> int:
        """The length of a window, in microseconds."""
        return microseconds(self.window)


@dataclass(frozen=True)
class _PlannedShape:
    """A plan, with the shape and the constants of one text, to check whether another text fits."""

    plan: AggregatePlan
    template: ShapeTemplate
    constants: Constants


class Plans:
    """The plans of query texts. If records name their shapes, one text of each shape is parsed.

    Used on any thread: threads that take records and threads that follow the registry share it.

    Args:
        schemas: the event schemas of topics, by topic name.
        max_texts: the plans that are kept; beyond that, the oldest is dropped.
    """

    def __init__(self, schemas: Mapping[str, EventSchema], max_texts: int = 100_000) -> None:
        self._schemas, self._max_texts = schemas, max_texts
        self._plans: dict[str, AggregatePlan | QueryTextError | ValueError] = {}
        self._shapes: dict[str, _PlannedShape] = {}
        self._lock = threading.Lock()

    def of(self, text: str, shape: str = "") -> AggregatePlan:
        """Returns the plan of a query.

        Args:
            text: the text of the query.
            shape: the key of its shape; empty if it is not known.

        Raises:
            QueryTextError, ValueError: if the text does not fit the events of its topic; the event
                class may have changed.
        """
        plan = self._plans.get(text)
        if plan is None:
            try:
                known = self._shapes.get(shape)
                if known is not None and known.template.fits(text, known.constants):
                    plan = known.plan
                else:
                    plan = self._planned(text)
            except (QueryTextError, ValueError) as error:
                plan = copy.copy(error)
            self._keep(self._plans, text, plan, self._max_texts)
        if isinstance(plan, Exception):
            # The traceback of an error that is raised repeatedly would keep every record in memory.
            raise copy.copy(plan)
        return plan

    def _planned(self, text: str) -> AggregatePlan:
        query = parse_query(text)
        schema = self._schemas.get(query.topic)
        if schema is None:
            raise ValueError(f"no topic {query.topic!r} with an event class is declared")
        check_query(query, schema, text)
        shape, constants = compile_query(query, schema)
        types = list(result_types(query, schema).items())
        facets, columns = types[: len(query.facets)], types[len(query.facets) :]
        plan = AggregatePlan(
            shape=shape.key,
            types=shape.types,
            topic=query.topic,
            aggregations=tuple(result.aggregation for result in shape.results),
            facets=tuple((name, kind is ValueType.TIME) for name, kind in facets),
            columns=tuple(name for name, _ in columns),
            window=query.window,
            slide_us=shape.slide_us,
            max_groups=query.max_groups,
            closing=closing_of(query),
            early_us=0 if query.early is None else microseconds(query.early),
            emits_empty=query.emits_empty,
            loss_after=query.loss_after,
        )
        planned = _PlannedShape(plan, ShapeTemplate(shape, query), constants)
        self._keep(self._shapes, shape.key, planned, _MAX_SHAPES)
        return plan

    def _keep(self, values: dict[str, _Value], key: str, value: _Value, most: int) -> None:
        """Stores a value; at the limit ``most``, it replaces the oldest value."""
        with self._lock:
            if len(values) >= most and key not in values:
                del values[next(iter(values))]
            values[key] = value
