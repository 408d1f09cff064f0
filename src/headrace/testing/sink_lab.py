"""A sink under test, and the rows, tasks and batches that its tests are made of.

The rows have the columns ``id`` (int64, never null), ``name`` (string) and ``at`` (timestamp[us,
UTC]).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.model import FieldType
from headrace.sinks.api import (
    CommitResult,
    Recountable,
    Sink,
    SinkContext,
    SinkDriver,
    Snapshot,
    Transaction,
)

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
NOON = datetime(2019, 11, 24, 12, tzinfo=UTC)
COLUMNS = {"id": FieldType.LONG, "name": FieldType.STRING, "at": FieldType.TIMESTAMP}


@dataclass
class SinkLab:
    """A sink under test, and a way to see what readers see.

    Attributes:
        sink: its declaration, for a target that is there and empty.
        context: where it runs.
        read: returns all rows that a reader sees, in any order, with ``id``, ``name`` and ``at``.
        stored: returns how much is stored that no reader sees, such as the number of staging
            tables; what is discarded, and what a killed run left after the next start, must not
            add to it. None: it can't be seen.
        leftovers_stay: what a killed run left stays after the next start, since something else
            deletes it, such as maintenance.
        bad_row: a row that the sink can't take among others; None: it takes every row.
    """

    sink: Sink
    context: SinkContext
    read: Callable[[], Sequence[Row]]
    stored: Callable[[], int] | None = None
    bad_row: Row | None = None
    leftovers_stay: bool = False
    _drivers: list[SinkDriver] = field(default_factory=list)

    def open(self) -> SinkDriver:
        """Another start of the pipeline."""
        driver = self.sink.open(self.context, schema())
        self._drivers.append(driver)
        return driver

    def ids(self) -> list[int]:
        """The ids that a reader sees."""
        return sorted(row["id"] for row in self.read())

    def close(self) -> None:
        """Closes every driver; call it in the fixture's end."""
        while self._drivers:
            self._drivers.pop().close(0.0)


def schema() -> pa.Schema:
    """Columns of the rows."""
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def row(number: int, name: str | None = "a") -> Row:
    """A row; its time is ``number`` minutes after noon."""
    return {"id": number, "name": name, "at": NOON + timedelta(minutes=number)}


def table(rows: Sequence[Row]) -> pa.Table:
    """Rows as a writer gets them."""
    import pyarrow as pa

    return pa.Table.from_pylist([dict(values) for values in rows], schema())


def written(driver: SinkDriver, *rows: Row) -> list[str]:
    """What one task does: the pieces of its writer."""
    writer = driver.writers(uuid4().hex)
    assert list(writer.write(table(rows))) == []
    return list(writer.close())


def batch(number: int) -> Transaction:
    """The transaction of a pipeline's batch ``number``, from 0; each follows the one before."""
    before = number - 1 if number else None
    return Transaction({"app": number}, {"app": before}, {"batch": number})


def committed(driver: SinkDriver, pieces: Sequence[str]) -> CommitResult:
    """Commits batch 0, none of whose rows the target rejects."""
    done = driver.commit(pieces, batch(0), 0)
    assert isinstance(done, CommitResult)
    return done


@contextmanager
def snapshot_of(lab: SinkLab) -> Iterator[Snapshot | None]:
    """Opens a snapshot of the target, and closes it; None: the sink gives none."""
    snapshot = lab.sink.snapshot(lab.context) if isinstance(lab.sink, Recountable) else None
    with ExitStack() as opened:
        if snapshot is not None:
            opened.callback(snapshot.close)
        yield snapshot


def snapshot_ids(snapshot: Snapshot) -> list[int]:
    """Returns the ids of the rows in a snapshot."""
    ids = [id_ for part in snapshot.batches(["id"]) for id_ in part["id"].to_pylist()]
    return sorted(ids)
