"""Figures of a status: each is declared once, as a field or a property, together with its metric.

A field is in JSON, and so is what is derived from fields. The metrics of a class are those of its
own body, in their order, and after them those of its base. One of the same name replaces that of
the base: a kind says what the figure means for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from headrace.metrics import Metric

Value = TypeVar("Value", covariant=True)  # noqa: PLC0105 - as typing's own names


def counter(unit: str, meaning: str, runbook: str) -> Any:
    """Returns a field that is 0 at the start of a run and never falls, and its metric.

    Args:
        unit: unit of the figure.
        meaning: what is counted.
        runbook: when to act, and what to do then.
    """
    return field(
        default=0, metadata={"metric": Metric("", unit, meaning, runbook, is_counter=True)}
    )


def gauge(unit: str, meaning: str, runbook: str, *, default: object = 0) -> Any:
    """Returns a field that rises and falls, and its metric; arguments as of :func:`counter`."""
    return field(default=default, metadata={"metric": Metric("", unit, meaning, runbook)})


class Derived(Generic[Value]):
    """A property that is part of the JSON of a status.

    Args:
        get: returns its value.
        metric: without its name; ``None``: it is none.
    """

    def __init__(self, get: Callable[[Any], Value], metric: Metric | None = None) -> None:
        self.get, self.metric, self.__doc__ = get, metric, get.__doc__

    @overload
    def __get__(self, status: None, kind: type) -> Self: ...
    @overload
    def __get__(self, status: object, kind: type) -> Value: ...
    def __get__(self, status: object | None, kind: type) -> Self | Value:
        return self if status is None else self.get(status)

    def gauge(self, unit: str, meaning: str, runbook: str) -> Derived[Value]:
        """Returns the property with a metric; arguments as of :func:`counter`."""
        return Derived(self.get, Metric("", unit, meaning, runbook))


def derived_gauge(
    unit: str, meaning: str, runbook: str
) -> Callable[[Callable[[Any], Value]], Derived[Value]]:
    """Returns a decorator of a property that is a metric; arguments as of :func:`counter`."""
    return lambda get: Derived(get, Metric("", unit, meaning, runbook))


class Measured:
    """A class with figures.

    Attributes:
        metrics: the metrics of its fields and properties.
        derived: names of the properties that are in JSON.
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = {name: _metric_of(value) for name, value in vars(cls).items()}
        metrics = {n: replace(metric, name=n) for n, metric in own.items() if metric is not None}
        inherited = [metric for metric in cls.metrics if metric.name not in metrics]
        cls.metrics = (*metrics.values(), *inherited)
        names = [name for name, value in vars(cls).items() if isinstance(value, Derived)]
        cls.derived = tuple(dict.fromkeys((*cls.derived, *names)))


def _metric_of(value: object) -> Metric | None:
    if isinstance(value, Field):
        metric: Metric | None = value.metadata.get("metric")
        return metric
    return value.metric if isinstance(value, Derived) else None
