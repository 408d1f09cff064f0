"""The base of all aggregates: makes partials of rows, and merges them."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.queries.windows.functions.partial import Partial

State = TypeVar("State")
Integers = NDArray[np.int64]
Numbers: TypeAlias = NDArray[Any]  # int64 or float64


@dataclass(frozen=True)
class Places:
    """The places of the rows' events, as columns; places sort by time, partition and offset.

    Attributes:
        time_us: the event times, in microseconds since 1970.
        partition: the partitions of the topic.
        offset: the offsets of the records.
    """

    time_us: Integers
    partition: Integers
    offset: Integers

    def where(self, is_kept: NDArray[np.bool_]) -> Places:
        """Returns the places of the rows for which ``is_kept`` is true."""
        return Places(self.time_us[is_kept], self.partition[is_kept], self.offset[is_kept])


@dataclass(frozen=True)
class GroupedRows:
    """The rows that count, in groups.

    Attributes:
        values: the values of the argument, without nulls; ``None`` for ``count(*)``.
        groups: the number of each row's group, from 0.
        counts: the number of rows of each group, at least 1.
        places: the places of the rows' events.
    """

    values: pa.Array
    groups: Integers
    counts: Integers
    places: Places

    def scalars(self) -> pa.Array:
        """Returns the values, with times in microseconds since 1970."""
        is_time = pa.types.is_timestamp(self.values.type)
        return self.values.cast(pa.int64()) if is_time else self.values

    def numbers(self) -> Numbers:
        """Returns values that are numbers or times, as ``int64`` or ``float64``."""
        return self.scalars().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


class Aggregation(abc.ABC, Generic[State]):
    """An aggregate of rows in groups.

    It is frozen, and may be used by several threads. Its partials merge in any order. The same rows
    in other batches give the same value, except for ``percentile`` of more than 200 values.
    """

    keeps_values: ClassVar[bool] = False
    """Whether its partials contain values of events unchanged."""

    def partials(
        self, values: pa.Array | None, groups: Integers, group_count: int, places: Places
    ) -> list[Partial]:
        """Returns a partial per group, by group number; ``None`` for groups without counted rows.

        Args:
            values: the values of the argument, with the Arrow types of ``ValueType``; null values
                do not count. ``None`` for ``count(*)``: all rows count.
            groups: the number of each row's group, from 0 and below ``group_count``.
            group_count: the number of groups.
            places: the places of the rows' events.
        """
        if values is not None and values.null_count:
            is_counted = values.is_valid().to_numpy(zero_copy_only=False)
            values, groups = values.drop_null(), groups[is_counted]
            places = places.where(is_counted)
        counts = np.bincount(groups, minlength=group_count)
        has_rows = counts > 0
        partials: list[Partial] = [None] * group_count
        if len(groups):
            numbers = (np.cumsum(has_rows) - 1)[groups]
            rows = GroupedRows(values, numbers, counts[has_rows], places)
            for group, partial in zip(
                np.flatnonzero(has_rows).tolist(), self.partials_of(rows), strict=True
            ):
                partials[group] = partial
        return partials

    def accumulator(self) -> Accumulator[State]:
        """Returns an empty accumulator."""
        return Accumulator(self)

    @abc.abstractmethod
    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        """Returns a partial per group, by group number; no partial is ``None``."""

    @abc.abstractmethod
    def read(self, partial: Partial) -> State:
        """Returns the state that a partial holds; the partial is not ``None``.

        Raises:
            PartialError: if the partial is damaged.
        """

    @abc.abstractmethod
    def write(self, state: State) -> Partial:
        """Returns the partial that holds a state."""

    @abc.abstractmethod
    def merge(self, state: State, added: State) -> State:
        """Returns the merged state; it may change and return the first state."""

    @abc.abstractmethod
    def value(self, state: State | None, window: timedelta) -> Partial:
        """Returns the value of the aggregate, as JSON has it.

        Args:
            state: the state of all rows; ``None`` if no row counts.
            window: the length of the window, for rates.
        """


class Accumulator(Generic[State]):
    """Merges the partials of one group of a window. It is not thread-safe.

    Args:
        aggregation: the aggregation of the partials.
    """

    __slots__ = ("_aggregation", "_state")

    def __init__(self, aggregation: Aggregation[State]) -> None:
        self._aggregation = aggregation
        self._state: State | None = None

    def add(self, partial: Partial) -> None:
        """Adds a partial; ``None`` adds nothing.

        Raises:
            PartialError: if the partial is damaged. Then nothing is added.
        """
        if partial is not None:
            self.add_state(self._aggregation.read(partial))

    def add_state(self, added: State) -> None:
        """Adds the state of a partial that was read."""
        if self._state is None:
            self._state = added
        else:
            self._state = self._aggregation.merge(self._state, added)

    def partial(self) -> Partial:
        """Returns a partial of all partials that were added, or ``None`` if there were none."""
        return None if self._state is None else self._aggregation.write(self._state)

    def value(self, window: timedelta) -> Partial:
        """Returns the value of all partials that were added, as JSON has it.

        Args:
            window: the length of the window, for rates.
        """
        return self._aggregation.value(self._state, window)
