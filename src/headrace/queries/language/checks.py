"""Checks whether a query fits the events of its topic, and is within the limits of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import singledispatchmethod

from headrace.errors import QueryTextError
from headrace.model.event import EventField, EventSchema, FieldType
from headrace.queries.language.clauses import print_aggregate, print_expression
from headrace.queries.language.functions import AGGREGATES, FUNCTIONS, Argument, ValueType
from headrace.queries.language.printer import print_duration
from headrace.queries.language.size import QuerySize
from headrace.queries.language.tree import (
    Aggregate,
    And,
    Arithmetic,
    Between,
    ClosedBy,
    Comparison,
    Expression,
    Facet,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Node,
    Not,
    Or,
    Path,
    Query,
    Result,
)
from headrace.queries.language.words import QueryText, quoted_text

MAX_RESULTS = 20
MAX_FACETS = 5
MAX_GROUPS = 10_000
MAX_WINDOWS_OF_EVENT = 60
MAX_BUCKETS = 100
MAX_LOSS_WINDOWS = 1_000
MAX_WILDCARDS = 100
"""The greatest number of ``%`` in a pattern, and of ``_``."""
MAX_CONSTANT_LENGTH = 1_000
"""The greatest number of characters of a constant that is a pattern or an argument."""
_MAX_SHOWN = 40
_MIN_WINDOW, _MAX_WINDOW = timedelta(seconds=1), timedelta(days=1)
_MAX_LATENESS = timedelta(days=1)
_MAX_CLOSING = timedelta(hours=1)
_TYPES = {
    FieldType.STRING: ValueType.TEXT,
    FieldType.LONG: ValueType.INTEGER,
    FieldType.DOUBLE: ValueType.NUMBER,
    FieldType.DECIMAL: ValueType.NUMBER,
    FieldType.BOOLEAN: ValueType.BOOLEAN,
    FieldType.TIMESTAMP: ValueType.TIME,
    FieldType.MILLIS: ValueType.TIME,
}
_OF_LITERALS = {
    str: ValueType.TEXT,
    int: ValueType.INTEGER,
    float: ValueType.NUMBER,
    bool: ValueType.BOOLEAN,
}


def check_query(query: Query, schema: EventSchema, text: str, *, is_new: bool = False) -> None:
    """Checks the names of fields, the types and the limits of a query.

    Args:
        query: the query.
        schema: schema of the topic's events.
        text: text of the query, for the places of errors.
        is_new: whether the query was not registered before. Only then, a text is refused that is
            not among the declared values of its field, so that a registered query stays valid when
            a value is no longer declared.

    Raises:
        QueryTextError: if a field is unknown, types do not go together, or a limit is exceeded.
    """
    _Check(QueryText(text), ExpressionTypes(schema, only_possible=is_new)).check(query)


def result_types(query: Query, schema: EventSchema) -> dict[str, ValueType]:
    """Returns the types of the columns of a result by their names, those of facets first.

    Args:
        query: a query that has been checked.
        schema: schema of the topic's events.
    """
    types = ExpressionTypes(schema)
    facets = {_facet_name(facet): types.of(facet.expression) for facet in query.facets}
    return facets | {
        _result_name(result): types.of_aggregate(result.aggregate) for result in query.results
    }


def _facet_name(facet: Facet) -> str:
    return facet.name or print_expression(facet.expression)


def _result_name(result: Result) -> str:
    return result.name or print_aggregate(result.aggregate)


def time_literal(text: str) -> datetime | None:
    """Returns the time of a text such as ``2026-05-01T10:00:00Z``; ``None`` if it is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


class UnfitError(Exception):
    """Raised if a part of a query, ``node``, does not fit the schema or the limits."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason


def require_short(expression: Expression, role: str) -> None:
    """Checks that an expression, if it is a constant text, is short enough for its role.

    Raises:
        UnfitError: if the text is too long.
    """
    text = expression.value if isinstance(expression, Literal) else None
    if isinstance(text, str) and len(text) > MAX_CONSTANT_LENGTH:
        shown = quoted_text(text[:_MAX_SHOWN] + "…")
        reason = (
            f"{shown} has {len(text):,} characters, and a constant text of {role} has at most "
            f"{MAX_CONSTANT_LENGTH:,}; shorten it, or compare a field with it by = or IN"
        )
        raise UnfitError(expression, reason)


class ExpressionTypes:
    """The types of expressions on the events of a topic.

    Args:
        schema: schema of the events.
        only_possible: whether texts that are not among the declared values of a field are refused.
    """

    def __init__(self, schema: EventSchema, *, only_possible: bool = False) -> None:
        self._schema, self._only_possible = schema, only_possible

    @singledispatchmethod
    def of(self, expression: Expression) -> ValueType:
        """Returns the type of an expression.

        Raises:
            UnfitError: if the expression has no type.
        """
        raise TypeError(type(expression))

    def of_aggregate(self, aggregate: Aggregate) -> ValueType:
        """Returns the type of an aggregate that has been checked."""
        returns = AGGREGATES[aggregate.function].returns
        if aggregate.per is not None:
            return ValueType.NUMBER
        if returns is not None or aggregate.argument is None:
            return returns or ValueType.INTEGER
        return self.of(aggregate.argument)

    def require(self, expression: Expression, expected: ValueType, role: str) -> None:
        """Checks that an expression has a type; integers are accepted as numbers.

        Raises:
            UnfitError: if the expression has another type.
        """
        actual = self.of(expression)
        fits = actual.is_numeric if expected is ValueType.NUMBER else actual is expected
        if not fits:
            text = print_expression(expression)
            raise UnfitError(expression, f"{role} needs {expected.value}; {text} is {actual.value}")

    @of.register
    def _(self, path: Path) -> ValueType:
        field = self._field(path)
        if field is None or field.type not in _TYPES:
            kind = "nothing" if field is None else f"a {field.type.value}"
            fields = [] if field is None else [f"{path}.{member.name}" for member in field.fields]
            known_fields = f"; its fields are {', '.join(fields)}" if fields else ""
            raise UnfitError(path, f"{path} is {kind}, which queries can't use{known_fields}")
        return _TYPES[field.type]

    def _field(self, path: Path) -> EventField | None:
        """Returns the field at a path; ``None`` if the path has no names.

        Raises:
            UnfitError: if there is no such field.
        """
        fields, field = self._schema.fields, None
        for name in path.names:
            field = next((member for member in fields if member.name == name), None)
            if field is None:
                known = list(_paths(self._schema))
                close = get_close_matches(str(path), known, n=1)
                meant = (
                    f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
                )
                raise UnfitError(
                    path, f"there is no field {str(path)!r} in {self._schema.name}{meant}"
                )
            fields = field.fields
        return field

    @of.register
    def _(self, literal: Literal) -> ValueType:
        return _OF_LITERALS[type(literal.value)]

    @of.register
    def _(self, negative: Negative) -> ValueType:
        self.require(negative.operand, ValueType.NUMBER, "-")
        return ValueType.NUMBER

    @of.register
    def _(self, arithmetic: Arithmetic) -> ValueType:
        for operand in (arithmetic.left, arithmetic.right):
            self.require(operand, ValueType.NUMBER, arithmetic.operator)
        return ValueType.NUMBER

    @of.register
    def _(self, comparison: Comparison) -> ValueType:
        actual = self.of(comparison.left)
        self._require_comparable(comparison.left, actual, comparison.right)
        if comparison.operator in {"=", "!="}:
            self._require_possible(comparison.left, comparison.right)
            self._require_possible(comparison.right, comparison.left)
        elif actual is _BOOLEAN:
            raise UnfitError(comparison, f"{comparison.operator} has no meaning for booleans")
        return _BOOLEAN

    @of.register
    def _(self, between: Between) -> ValueType:
        actual = self.of(between.operand)
        for end in (between.low, between.high):
            self._require_comparable(between.operand, actual, end)
        if actual is _BOOLEAN:
            raise UnfitError(between, "BETWEEN has no meaning for booleans")
        return _BOOLEAN

    @of.register
    def _(self, contained: In) -> ValueType:
        actual = self.of(contained.operand)
        for value in contained.values:
            self._require_comparable(contained.operand, actual, value)
            self._require_possible(contained.operand, value)
        return _BOOLEAN

    @of.register
    def _(self, like: Like) -> ValueType:
        self.require(like.operand, ValueType.TEXT, "LIKE")
        require_short(Literal(like.pattern, position=like.position), "LIKE")
        for wildcard in "%_":
            if like.pattern.count(wildcard) > MAX_WILDCARDS:
                reason = f"at most {MAX_WILDCARDS} `{wildcard}` are possible in a pattern"
                raise UnfitError(like, reason)
        if (len(like.pattern) - len(like.pattern.rstrip("\\"))) % 2:
            raise UnfitError(like, "the pattern ends with \\, which takes a character after it")
        return _BOOLEAN

    @of.register
    def _(self, is_null: IsNull) -> ValueType:
        self.of(is_null.operand)
        return _BOOLEAN

    @of.register
    def _(self, negated: Not) -> ValueType:
        self.require(negated.operand, _BOOLEAN, "NOT")
        return _BOOLEAN

    @of.register
    def _(self, connected: And | Or) -> ValueType:
        for operand in connected.operands:
            self.require(operand, _BOOLEAN, "AND" if isinstance(connected, And) else "OR")
        return _BOOLEAN

    @of.register
    def _(self, call: FunctionCall) -> ValueType:
        function = FUNCTIONS[call.function]
        if len(call.arguments) != len(function.arguments):
            count = len(function.arguments)
            raise UnfitError(call, f"{call.function} takes {count} argument(s)")
        for argument, expected in zip(call.arguments, function.arguments, strict=True):
            self.require(argument, expected, call.function)
            require_short(argument, call.function)
        return function.returns

    def _require_comparable(
        self, left: Expression, left_type: ValueType, right: Expression
    ) -> None:
        types = left_type, self.of(right)
        if ValueType.TIME in types and ValueType.TEXT in types:
            text = left if types[0] is ValueType.TEXT else right
            if isinstance(text, Literal) and time_literal(str(text.value)) is not None:
                return
            reason = "a time is compared with one such as '2026-05-01T10:00:00Z'"
            raise UnfitError(text, reason)
        if types[0] is not types[1] and not all(type_.is_numeric for type_ in types):
            texts = print_expression(left), print_expression(right)
            reason = f"{texts[0]} is {types[0].value}, and {texts[1]} is {types[1].value}"
            raise UnfitError(right, reason)

    def _require_possible(self, path: Expression, text: Expression) -> None:
        """Refuses a text that is not among the declared values of a field."""
        if not (self._only_possible and isinstance(path, Path) and isinstance(text, Literal)):
            return
        field = self._field(path)
        if field is None or not field.values or text.value in field.values:
            return
        close = get_close_matches(str(text.value), field.values, n=1)
        possible = f"possible are {', '.join(map(repr, field.values))}"
        meant = f"did you mean {close[0]!r}?" if close else possible
        raise UnfitError(text, f"{path} is never {text.value!r}; {meant}")


_BOOLEAN = ValueType.BOOLEAN


def _paths(schema: EventSchema, prefix: str = "") -> Iterator[str]:
    for field in schema.fields:
        if field.schema is not None:
            yield from _paths(field.schema, f"{prefix}{field.name}.")
        elif field.type in _TYPES:
            yield prefix + field.name


class _Check:
    def __init__(self, text: QueryText, types: ExpressionTypes) -> None:
        self._text, self._types = text, types

    def check(self, query: Query) -> None:
        try:
            for result in query.results:
                self._aggregate(result.aggregate)
            for facet in query.facets:
                self._types.of(facet.expression)
                require_short(facet.expression, "FACET")
            if query.where is not None:
                self._types.require(query.where, _BOOLEAN, "WHERE")
            self._counts(query)
            self._durations(query)
            self._closing(query)
            for clause, reason in QuerySize(query).faults():
                raise self._error(query, clause, reason)
            self._names(query)
        except UnfitError as fault:
            raise self._text.error(fault.node.position, fault.reason) from fault

    def _aggregate(self, aggregate: Aggregate) -> None:
        function = AGGREGATES[aggregate.function]
        if aggregate.where is not None:
            self._types.require(aggregate.where, _BOOLEAN, "filter")
        if aggregate.argument is None:
            return
        actual = self._types.of(aggregate.argument)
        require_short(aggregate.argument, aggregate.function)
        is_wrong = {
            Argument.NUMBERS: not actual.is_numeric,
            Argument.ORDERED: actual is _BOOLEAN,
        }.get(function.argument, False)
        if is_wrong:
            needed = f"{aggregate.function} needs {function.argument.value}"
            text = print_expression(aggregate.argument)
            raise UnfitError(aggregate.argument, f"{needed}; {text} is {actual.value}")
        parameters = aggregate.parameters
        if aggregate.function == "percentile":
            _check_percentage(aggregate, parameters[0])
        if aggregate.function == "histogram":
            _, width, buckets = parameters
            if width <= 0 or not 1 <= buckets <= MAX_BUCKETS or not buckets.is_integer():
                reason = (
                    "histogram is followed by the lower bound of the first bucket, a width above "
                    f"zero, and 1 to {MAX_BUCKETS} buckets"
                )
                raise UnfitError(aggregate, reason)

    def _counts(self, query: Query) -> None:
        limits: Mapping[str, tuple[int, int, int]] = {
            "SELECT": (len(query.results), 1, MAX_RESULTS),
            "FACET": (len(query.facets), 0, MAX_FACETS),
            "LIMIT": (query.max_groups, 1, MAX_GROUPS),
            "LOSS OF SIGNAL AFTER": (query.loss_after, 0, MAX_LOSS_WINDOWS),
        }
        for clause, (number, least, most) in limits.items():
            if not least <= number <= most:
                reason = f"{clause} has {number:,}; possible are {least:,} to {most:,}"
                raise self._error(query, clause, reason)

    def _durations(self, query: Query) -> None:
        self._between(query, "WINDOW", query.window, _MIN_WINDOW, _MAX_WINDOW)
        self._between(query, "SLIDE BY", query.slide, _MIN_WINDOW, query.window)
        if query.window % query.slide:
            window, slide = print_duration(query.window), print_duration(query.slide)
            reason = f"WINDOW has to be a multiple of SLIDE BY, and {window} is none of {slide}"
            raise self._error(query, "SLIDE BY", reason)
        if query.window // query.slide > MAX_WINDOWS_OF_EVENT:
            reason = f"an event is in at most {MAX_WINDOWS_OF_EVENT} windows; SLIDE BY is too short"
            raise self._error(query, "SLIDE BY", reason)
        zero = timedelta(0)
        self._between(query, "ALLOWED LATENESS", query.allowed_lateness, zero, _MAX_LATENESS)
        if query.closing.by is not ClosedBy.EVENT_TIME:
            least = timedelta(seconds=1) if query.closing.by is ClosedBy.QUIET_TIME else zero
            self._between(query, "CLOSE BY", query.closing.after, least, _MAX_CLOSING)
        if query.early is not None:
            self._between(query, "EMIT", query.early, _MIN_WINDOW, query.window)

    def _closing(self, query: Query) -> None:
        """Refuses clauses that have no meaning with the query's way to end windows."""
        by = query.closing.by
        without_events = "ends with its last event, so none is without events"
        meaningless = {
            ClosedBy.EVENT_TIME: {},
            ClosedBy.CLOCK: {"ALLOWED LATENESS": "waits by the clock: give CLOSE BY that duration"},
            ClosedBy.QUIET_TIME: {
                "ALLOWED LATENESS": "waits for its last event: give CLOSE BY that duration",
                "EMPTY WINDOWS": without_events,
                "LOSS OF SIGNAL AFTER": without_events,
            },
        }[by]
        is_asked = {
            "ALLOWED LATENESS": bool(query.allowed_lateness),
            "EMPTY WINDOWS": query.emits_empty,
            "LOSS OF SIGNAL AFTER": query.loss_after > 0,
        }
        for clause, why in meaningless.items():
            if is_asked[clause]:
                reason = f"with CLOSE BY {by.value}, a window {why}; leave {clause} out"
                raise self._error(query, clause, reason)

    def _between(
        self, query: Query, clause: str, duration: timedelta, least: timedelta, most: timedelta
    ) -> None:
        if not least <= duration <= most:
            actual, low, high = map(print_duration, (duration, least, most))
            raise self._error(query, clause, f"{clause} is {actual}; possible are {low} to {high}")

    def _error(self, query: Query, clause: str, reason: str) -> QueryTextError:
        return self._text.error(query.clauses.get(clause, 0), reason)

    def _names(self, query: Query) -> None:
        columns: list[tuple[Node, str]] = [(facet, _facet_name(facet)) for facet in query.facets]
        columns += [(result, _result_name(result)) for result in query.results]
        counts = Counter(name for _, name in columns)
        for column, name in columns:
            if counts[name] > 1:
                raise UnfitError(column, f"two columns are called {name!r}; name one with AS")


def _check_percentage(aggregate: Aggregate, percentage: float) -> None:
    if 0 < percentage * 100 < 1:
        raise UnfitError(aggregate, f"{percentage:g} is below 1, the least percentile beside 0")
    if 0 < percentage < 1:
        corrected = replace(aggregate, parameters=(round(percentage * 100, 9),), where=None)
        reason = (
            f"{percentage:g} is a fraction, and a percentile is a number from 0 to 100: "
            f"write {print_aggregate(corrected)}"
        )
        raise UnfitError(aggregate, reason)
    if not 0 <= percentage <= 100:  # noqa: PLR2004
        raise UnfitError(aggregate, "a percentile is a number from 0 to 100")
