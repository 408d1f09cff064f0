"""The functions of the language, with the types of their arguments and values.

docs/reference/query-language.md describes each function.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ValueType(enum.Enum):
    """The type of an expression.

    ======= ========================================== =========== ==================
    member  fields of an event                         Spark       Arrow
    ======= ========================================== =========== ==================
    TEXT    string                                     string      string
    INTEGER long                                       bigint      int64
    NUMBER  double, decimal                            double      double
    BOOLEAN boolean                                    boolean     bool
    TIME    timestamp, millis                          timestamp   timestamp[us, UTC]
    ======= ========================================== =========== ==================

    INTEGERS is the type of ``histogram`` alone: the number of values in each bucket.
    """

    TEXT = "a text"
    INTEGER = "an integer"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    TIME = "a time"
    INTEGERS = "a list of integers"

    @property
    def is_numeric(self) -> bool:
        """Whether the type has arithmetic."""
        return self in {ValueType.INTEGER, ValueType.NUMBER}


_TEXT, _INTEGER, _NUMBER = ValueType.TEXT, ValueType.INTEGER, ValueType.NUMBER


@dataclass(frozen=True, slots=True)
class Function:
    """A function of values of one event. Its value is null if an argument is null.

    Attributes:
        arguments: types of the arguments; integers are accepted as numbers.
        returns: type of the value.
    """

    arguments: tuple[ValueType, ...]
    returns: ValueType


FUNCTIONS = {
    "lower": Function((_TEXT,), _TEXT),
    "upper": Function((_TEXT,), _TEXT),
    "length": Function((_TEXT,), _INTEGER),
    "startsWith": Function((_TEXT, _TEXT), ValueType.BOOLEAN),
    "endsWith": Function((_TEXT, _TEXT), ValueType.BOOLEAN),
    "contains": Function((_TEXT, _TEXT), ValueType.BOOLEAN),
    "abs": Function((_NUMBER,), _NUMBER),
    "floor": Function((_NUMBER,), _NUMBER),
    "ceil": Function((_NUMBER,), _NUMBER),
}


class Argument(enum.Enum):
    """The arguments that an aggregate accepts."""

    EVENTS_OR_VALUES = "`*`, or a value"
    ANY = "a value"
    NUMBERS = "a number"
    ORDERED = "a number, a text or a time"


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A function of the events of a window. Events whose argument is null do not count.

    Attributes:
        argument: the arguments that it accepts.
        returns: type of the value; ``None`` if it has the type of the argument.
        parameters: number of constants after the argument.
        has_rate: whether ``rate`` can divide it by time.
    """

    argument: Argument
    returns: ValueType | None
    parameters: int = 0
    has_rate: bool = False


AGGREGATES = {
    "count": AggregateFunction(Argument.EVENTS_OR_VALUES, _INTEGER, has_rate=True),
    "sum": AggregateFunction(Argument.NUMBERS, None, has_rate=True),
    "average": AggregateFunction(Argument.NUMBERS, _NUMBER),
    "min": AggregateFunction(Argument.ORDERED, None),
    "max": AggregateFunction(Argument.ORDERED, None),
    "stddev": AggregateFunction(Argument.NUMBERS, _NUMBER),
    "latest": AggregateFunction(Argument.ANY, None),
    "uniqueCount": AggregateFunction(Argument.ANY, _INTEGER),
    "percentile": AggregateFunction(Argument.NUMBERS, _NUMBER, parameters=1),
    "histogram": AggregateFunction(Argument.NUMBERS, ValueType.INTEGERS, parameters=3),
}
