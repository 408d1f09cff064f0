"""What the texts of queries ask of the aggregator; a text of each shape is parsed."""

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
from headrace.queries.aggregate.closing import WindowClosing, closing_of
from headrace.queries.aggregate_functions import Aggregation
from headrace.queries.language import check_query, parse_query, result_types
from headrace.queries.language.functions import ValueType
from headrace.queries.match.shape import Constants, ShapeTemplate, compile_query

_MAX_TEXTS = 100_000
_MAX_SHAPES = 10_000
_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class AggregatePlan:
    """How the windows of queries of one shape are added up, and when they end.

    Attributes:
        shape: key of the shape.
        types: hash of the types of the values that facets and columns are made of.
        topic: of the events.
        aggregations: of the columns.
        facets: names of the facets, and whether each is a time.
        columns: names of the columns.
        window: length of a window.
        slide_us: from one start of a window to the next, in microseconds.
        max_groups: of a window.
        closing: when a window ends.
        early_us: how often a window that has not ended has a result; 0: never.
        emits_empty: whether windows without events have results.
        loss_after: after how many windows without events there is a loss of signal; 0: never.
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
        """Length of a window, in microseconds."""
        return microseconds(self.window)


@dataclass(frozen=True)
class _PlannedShape:
    """A plan, and what tells whether a text has it: the constants are those of one text."""

    plan: AggregatePlan
    template: ShapeTemplate
    constants: Constants


class Plans:
    """The plans of texts. One text of each shape is parsed where records name their shapes.

    Used on any thread: those that take records and those that follow the queries share them.

    Args:
        schemas: of the events of topics, by name.
    """

    def __init__(self, schemas: Mapping[str, EventSchema]) -> None:
        self._schemas = schemas
        self._plans: dict[str, AggregatePlan | QueryTextError | ValueError] = {}
        self._shapes: dict[str, _PlannedShape] = {}
        self._lock = threading.Lock()

    def of(self, text: str, shape: str = "") -> AggregatePlan:
        """Returns the plan of a query.

        Args:
            text: of the query.
            shape: key of its shape; empty: not known.

        Raises:
            QueryTextError, ValueError: if it does not fit the events of its topic, which may have
                changed.
        """
        plan = self._plans.get(text)
        if plan is None:
            try:
                plan = self._shared(text, shape) or self._planned(text)
            except (QueryTextError, ValueError) as error:
                plan = copy.copy(error)
            self._keep(self._plans, text, plan, _MAX_TEXTS)
        if isinstance(plan, Exception):
            # An error that is raised again and again would keep every record that raised it.
            raise copy.copy(plan)
        return plan

    def _shared(self, text: str, shape: str) -> AggregatePlan | None:
        """Returns the plan of another text of the shape; None: there is none."""
        known = self._shapes.get(shape)
        if known is None or not known.template.fits(text, known.constants):
            return None
        return known.plan

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
        """Keeps a value in place of the oldest one, where there are too many."""
        with self._lock:
            if len(values) >= most and key not in values:
                del values[next(iter(values))]
            values[key] = value
