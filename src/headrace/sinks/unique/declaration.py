"""The declaration of a table without duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.model import FieldType
from headrace.model.fault import Fault, are_texts, duration, lists_as_tuples


@dataclass(frozen=True)
class Unique:
    """Which rows of a table are duplicates.

    :mod:`headrace.sinks.lake.unique` has the contract of a lake's table, and
    :mod:`headrace.sinks.postgres.stats.unique` that of :class:`~headrace.Stats`.

    Attributes:
        by: the columns in which a duplicate equals the first row.
        within: how far apart the event times of two such rows may be, at least. None: any time
            apart, which a lake's table does not take.
        ignore: columns that may differ in a duplicate, such as the time at which it was received.
            Columns of the Kafka record may always differ.
    """

    by: Sequence[str]
    within: timedelta | None = None
    ignore: Sequence[str] = ()

    def __post_init__(self) -> None:
        lists_as_tuples(self, "by", "ignore")

    def faults(self, sink: str, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields everything wrong with it.

        Args:
            sink: name of the class that it is declared for.
            columns: of the rows; None: they are not known.
        """
        if self.within is not None:
            yield from duration(self, "within", timedelta(milliseconds=1))
        if not are_texts(self.by) or not self.by:
            yield Fault(f"Unique.by is {self.by!r}", 'by=["event_id"]')
            return
        if not are_texts(self.ignore):
            yield Fault(f"Unique.ignore is {self.ignore!r}", 'ignore=["received_at"]')
            return
        for name in (*self.by, *self.ignore) if columns is not None else ():
            if name not in (columns or {}):
                known = f"columns: {', '.join(columns or {})}"
                yield Fault(f"{sink}.unique: {name!r} is not a column", known)
