"""The positions at which the partitions of an instance start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.errors import RefusedError
from headrace.model import TopicPartition

Start = TypeVar("Start")


@dataclass(frozen=True, slots=True)
class Starts(Generic[Start]):
    """Positions of the partitions that the group shares, and reasons why some can't continue.

    Attributes:
        positions: of those that can continue.
        refused: those that can't, and why.
        awaited: those that the source does not have yet.
    """

    positions: Mapping[TopicPartition, Start]
    refused: Mapping[TopicPartition, RefusedError]
    awaited: frozenset[TopicPartition]
