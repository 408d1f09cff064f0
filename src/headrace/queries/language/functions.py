"""The functions of the language, and the types of what they take and return."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ValueType(enum.Enum):
    """What an expression is.

    ======= ========================================== =========== ==================
    member  fields of an event                         Spark       Arrow
    ======= ========================================== =========== ==================
    TEXT    string                                     string      string
    INTEGER long                                       bigint      int64
    NUMBER  double, decimal                            double      double
    BOOLEAN boolean                                    boolean     bool
    TIME    timestamp, millis                          timestamp   timestamp[us, UTC]
    ======= ========================================== =========== ==================

    INTEGERS is of the results of ``histogram`` alone: how many values there are in each bucket.
    """

    TEXT = "a text"
    INTEGER = "an integer"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    TIME = "a time"
    INTEGERS = "a list of integers"

    @property
    def is_numeric(self) -> bool:
        """Whether one can calculate with it."""
        return self in {ValueType.INTEGER, ValueType.NUMBER}


_TEXT, _INTEGER, _NUMBER = ValueType.TEXT, ValueType.INTEGER, ValueType.NUMBER


@dataclass(frozen=True, slots=True)
class Function:
    """A function of values of one event. It is null where an argument is.

    Attributes:
        arguments: types of its arguments. A number may be an integer.
        returns: type of its value.
        text: what it is, for the reference.
    """

    arguments: tuple[ValueType, ...]
    returns: ValueType
    text: str


FUNCTIONS = {
    "lower": Function((_TEXT,), _TEXT, "the text in lower case"),
    "upper": Function((_TEXT,), _TEXT, "the text in upper case"),
    "length": Function((_TEXT,), _INTEGER, "characters of the text"),
    "startsWith": Function((_TEXT, _TEXT), ValueType.BOOLEAN, "whether it begins with the second"),
    "endsWith": Function((_TEXT, _TEXT), ValueType.BOOLEAN, "whether it ends with the second"),
    "contains": Function((_TEXT, _TEXT), ValueType.BOOLEAN, "whether the second is part of it"),
    "abs": Function((_NUMBER,), _NUMBER, "the number without its sign"),
    "floor": Function((_NUMBER,), _NUMBER, "the greatest whole number that is not greater"),
    "ceil": Function((_NUMBER,), _NUMBER, "the smallest whole number that is not smaller"),
}


class Argument(enum.Enum):
    """What an aggregate is made of."""

    EVENTS_OR_VALUES = "`*`, or a value"
    ANY = "a value"
    NUMBERS = "a number"
    ORDERED = "a number, a text or a time"


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A function of the events of a window. Events in which the argument is null do not count.

    Attributes:
        argument: what it is made of.
        returns: type of its value; None: that of its argument.
        text: what it is, for the reference.
        parameters: how many constants follow.
        has_rate: whether it can be divided by time.
    """

    argument: Argument
    returns: ValueType | None
    text: str
    parameters: int = 0
    has_rate: bool = False


AGGREGATES = {
    "count": AggregateFunction(
        Argument.EVENTS_OR_VALUES, _INTEGER, "how many events or values there are", has_rate=True
    ),
    "sum": AggregateFunction(Argument.NUMBERS, None, "the sum", has_rate=True),
    "average": AggregateFunction(Argument.NUMBERS, _NUMBER, "the arithmetic mean"),
    "min": AggregateFunction(Argument.ORDERED, None, "the least"),
    "max": AggregateFunction(Argument.ORDERED, None, "the greatest"),
    "stddev": AggregateFunction(
        Argument.NUMBERS, _NUMBER, "the standard deviation, of the population"
    ),
    "latest": AggregateFunction(Argument.ANY, None, "the value of the event with the newest time"),
    "uniqueCount": AggregateFunction(
        Argument.ANY, _INTEGER, "about how many different values there are"
    ),
    "percentile": AggregateFunction(
        Argument.NUMBERS, _NUMBER, "about the value below which that percentage lies", parameters=1
    ),
    "histogram": AggregateFunction(
        Argument.NUMBERS,
        ValueType.INTEGERS,
        "how many lie in each bucket; the lower bound of the first, a width and a number follow",
        parameters=3,
    ),
}
