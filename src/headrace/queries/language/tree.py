"""The tree of a query: what its text says, without how it was written.

Trees are equal if they mean one thing. Positions, in characters of the text, are for messages.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

DEFAULT_WINDOW = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a query.

    Attributes:
        position: where it begins in the text.
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

    # 1, 1.0 and True are three constants.
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
    """``left operator right``, with ``+``, ``-``, ``*`` or ``/``. Divided by zero, it is null."""

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
    """``operand BETWEEN low AND high``; both ends count."""

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

    ``%`` is any text, ``_`` a character, and ``\`` takes the character after it as it is.
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
    """``function(argument, ...)``, of a function that :mod:`functions` lists."""

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
    """A figure of the events of a window.

    Attributes:
        function: such as ``sum``.
        argument: whose values it is made of; None: events themselves are counted.
        parameters: constants after the argument, such as percentiles.
        where: which events count beside those of the query's own condition.
        per: the duration of a ``rate``; None: it is none.
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
        aggregate: its values.
        name: how it is called; empty: by its text.
    """

    aggregate: Aggregate
    name: str = ""


@dataclass(frozen=True, slots=True)
class Facet(Node):
    """What groups are made by.

    Attributes:
        expression: its values.
        name: how it is called; empty: by its text.
    """

    expression: Expression
    name: str = ""


class ClosedBy(enum.Enum):
    """What ends a window."""

    EVENT_TIME = "EVENT TIME"
    QUIET_TIME = "QUIET TIME"
    CLOCK = "CLOCK"


@dataclass(frozen=True, slots=True)
class Closing:
    """When a window ends.

    Attributes:
        by: by event time; after a time without events of the query; or by the clock.
        after: how long without events, or after the window's end; zero for event time.
    """

    by: ClosedBy = ClosedBy.EVENT_TIME
    after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A standing query.

    Attributes:
        results: columns of the result.
        topic: whose events it is about.
        where: which events match; None: all.
        facets: groups; none: all events are one.
        max_groups: of a window; the events of further ones are counted together, as others.
        window: how long a window is.
        slide: how far apart windows begin; as long as a window: they do not overlap.
        allowed_lateness: how long a window waits for events that are out of order.
        closing: when a window ends.
        early: how often a window that has not ended shows its result; None: it does not.
        emits_empty: whether windows without events have results.
        emits_events: whether each event that matches is sent on, as soon as it does.
        loss_after: after how many windows without events there is a loss of signal; 0: never.
        clauses: where clauses of the text begin, by their words.
    """

    results: tuple[Result, ...]
    topic: str
    where: Expression | None = None
    facets: tuple[Facet, ...] = ()
    max_groups: int = 1_000
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
