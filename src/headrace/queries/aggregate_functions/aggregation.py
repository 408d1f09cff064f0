"""What every aggregate does: partials of rows, and their merging."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.queries.aggregate_functions.partial import Partial

State = TypeVar("State")
Integers = NDArray[np.int64]
Numbers: TypeAlias = NDArray[Any]  # int64 or float64


@dataclass(frozen=True)
class Places:
    """The places of rows' events, by column: the latest is the greatest place, in this order.

    Attributes:
        time_us: event times, microseconds since 1970.
        partition: partitions of the topic.
        offset: offsets of the records.
    """

    time_us: Integers
    partition: Integers
    offset: Integers

    def where(self, is_kept: NDArray[np.bool_]) -> Places:
        """Returns the places of the rows where an array is true."""
        return Places(self.time_us[is_kept], self.partition[is_kept], self.offset[is_kept])


@dataclass(frozen=True)
class GroupedRows:
    """Rows that count, in groups.

    Attributes:
        values: of the argument, none of them null; None for ``count(*)``.
        groups: the number of each row's group, from 0 on.
        counts: how many rows each group has; none has no row.
        places: of the rows' events.
    """

    values: pa.Array
    groups: Integers
    counts: Integers
    places: Places

    def scalars(self) -> pa.Array:
        """Returns the values; times as microseconds since 1970."""
        is_time = pa.types.is_timestamp(self.values.type)
        return self.values.cast(pa.int64()) if is_time else self.values

    def numbers(self) -> Numbers:
        """Returns values that are numbers or times, as ``int64`` or ``float64``."""
        return self.scalars().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


class Aggregation(abc.ABC, Generic[State]):
    """An aggregate of rows in groups.

    It is frozen, and may be used by several threads. Its partials merge in any order; the same
    rows in other batches give the same value, but for ``percentile`` of more than 200 values.
    """

    keeps_values: ClassVar[bool] = False
    """Whether its partials hold values as they are."""

    def partials(
        self, values: pa.Array | None, groups: Integers, group_count: int, places: Places
    ) -> list[Partial]:
        """Returns a partial per group, in order of their numbers; None: it has no row that counts.

        Args:
            values: of the aggregate's argument, of the Arrow types of ``ValueType``; null values
                do not count. None for ``count(*)``: all rows count.
            groups: the number of each row's group, from 0 on, below ``group_count``.
            group_count: how many groups there are.
            places: of the rows' events.
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
        """Returns a new accumulator, to which nothing has been added."""
        return Accumulator(self)

    @abc.abstractmethod
    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        """Returns a partial per group, in order of their numbers; none of them is None."""

    @abc.abstractmethod
    def read(self, partial: Partial) -> State:
        """Returns the state that a partial which is not None holds.

        Raises:
            PartialError: if it is damaged.
        """

    @abc.abstractmethod
    def write(self, state: State) -> Partial:
        """Returns the partial that holds a state."""

    @abc.abstractmethod
    def merge(self, state: State, added: State) -> State:
        """Returns the state of the rows of both; it may change and return the first."""

    @abc.abstractmethod
    def value(self, state: State | None, window: timedelta) -> Partial:
        """Returns the aggregate's value, as JSON has it.

        Args:
            state: of all rows; None: none counts.
            window: how long the window is, for rates.
        """


class Accumulator(Generic[State]):
    """What partials of one group of a window come to. It is not thread-safe.

    Args:
        aggregation: whose partials are added.
    """

    __slots__ = ("_aggregation", "_state")

    def __init__(self, aggregation: Aggregation[State]) -> None:
        self._aggregation = aggregation
        self._state: State | None = None

    def add(self, partial: Partial) -> None:
        """Adds a partial; None adds nothing.

        Raises:
            PartialError: if it is damaged. Then nothing is added.
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
        """Returns a partial of all that was added; None: nothing."""
        return None if self._state is None else self._aggregation.write(self._state)

    def value(self, window: timedelta) -> Partial:
        """Returns the value of all that was added, as JSON has it.

        Args:
            window: how long the window is, for rates.
        """
        return self._aggregation.value(self._state, window)
