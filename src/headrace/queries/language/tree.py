"""The syntax tree of a query, independent of spelling and layout.

Positions, in characters of the text, are for error messages and do not affect equality.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

DEFAULT_WINDOW = timedelta(minutes=1)
DEFAULT_MAX_GROUPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a query.

    Attributes:
        position: the node's first character in the text, from 0.
    """

    position: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Path(Node):
    """A field of the event, or of a struct in it: ``repo.owner``."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.names)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant. An integer fits into 64 bits, and a float is finite."""

    value: str | int | float | bool

    # Python says that 1, 1.0 and True are equal; as constants they are different.
    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and type(other.value) is type(self.value)
            and other.value == self.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """``-operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """``left operator right``, with ``+``, ``-``, ``*`` or ``/``. Division by zero gives null."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """``left operator right``, with ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between(Node):
    """``operand BETWEEN low AND high``; both ends are included."""

    operand: Expression
    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True)
class In(Node):
    """``operand IN (constant, ...)``."""

    operand: Expression
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like(Node):
    r"""``operand LIKE 'pattern'``.

    ``%`` matches any text, ``_`` one character, and ``\`` escapes the character after it.
    """

    operand: Expression
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """``operand IS NULL``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Not(Node):
    """``NOT operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And(Node):
    """``operand AND operand AND ...``; none of the operands is an ``And``."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Node):
    """``operand OR operand OR ...``; none of the operands is an ``Or``."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall(Node):
    """``function(argument, ...)``, with a function that :mod:`functions` lists."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = (
    Path
    | Literal
    | Negative
    | Arithmetic
    | Comparison
    | Between
    | In
    | Like
    | IsNull
    | Not
    | And
    | Or
    | FunctionCall
)


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """An aggregate over the events of a window.

    Attributes:
        function: name of the function, such as ``sum``.
        argument: expression whose values are aggregated; ``None`` for ``count(*)``.
        parameters: constants after the argument, such as the percentage of a percentile.
        where: condition of ``filter``, which events must meet besides the query's ``WHERE``;
            ``None`` if there is no filter.
        per: duration of a ``rate``; ``None`` if the aggregate is no rate.
    """

    function: str
    argument: Expression | None = None
    parameters: tuple[float, ...] = ()
    where: Expression | None = None
    per: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Result(Node):
    """A column of the result.

    Attributes:
        aggregate: aggregate that the column shows.
        name: name after ``AS``; empty if the column is named by its text.
    """

    aggregate: Aggregate
    name: str = ""


@dataclass(frozen=True, slots=True)
class Facet(Node):
    """An expression by whose values events are grouped.

    Attributes:
        expression: the expression.
        name: name after ``AS``; empty if the column is named by its text.
    """

    expression: Expression
    name: str = ""


class ClosedBy(enum.Enum):
    """The clock by which a window ends."""

    EVENT_TIME = "EVENT TIME"
    QUIET_TIME = "QUIET TIME"
    CLOCK = "CLOCK"


@dataclass(frozen=True, slots=True)
class Closing:
    """The rule by which a window ends.

    Attributes:
        by: event time, a time without events of the query, or the clock.
        after: the time without events, or the time after the window's end; zero for event time.
    """

    by: ClosedBy = ClosedBy.EVENT_TIME
    after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A standing query.

    Attributes:
        results: columns of the result.
        topic: name of the topic of the events.
        where: condition of ``WHERE``; ``None`` if all events match.
        facets: expressions that group the events; empty if all events are one group.
        max_groups: limit of groups in a window; events of further groups are aggregated together,
            as the group of others.
        window: length of a window.
        slide: time between the starts of windows; equal to ``window`` if they do not overlap.
        allowed_lateness: event time that a window waits for events that are out of order.
        closing: rule by which a window ends.
        early: interval of the early results of open windows; ``None`` if there are none.
        emits_empty: whether windows without events have results.
        emits_events: whether each event that matches is sent on at once.
        loss_after: number of windows without events that make a loss of signal; 0 if none is shown.
        clauses: positions of the clauses in the text, by their words.
    """

    results: tuple[Result, ...]
    topic: str
    where: Expression | None = None
    facets: tuple[Facet, ...] = ()
    max_groups: int = DEFAULT_MAX_GROUPS
    window: timedelta = DEFAULT_WINDOW
    slide: timedelta = DEFAULT_WINDOW
    allowed_lateness: timedelta = timedelta(0)
    closing: Closing = Closing()
    early: timedelta | None = None
    emits_empty: bool = False
    emits_events: bool = False
    loss_after: int = 0
    clauses: Mapping[str, int] = field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )
