"""Rows for a side table, in a read task."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.api import RejectedRow, TaskWriter, WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa


class SideWriter:
    """Writes rows into a side table. Used on one thread, for one attempt of a task.

    It is opened with the first rows: most ranges have none, and a writer may be a connection.
    """

    def __init__(self, writers: WriterFactory) -> None:
        self._writers = writers
        self._writer: TaskWriter | None = None

    def write(self, rows: pa.Table) -> Sequence[RejectedRow]:
        """Takes rows with the columns of the side table; returns those that it can't take."""
        if self._writer is None:
            self._writer = self._writers(uuid.uuid4().hex)
        return self._writer.write(rows)

    def close(self) -> tuple[str, ...]:
        """Returns the pieces for the commit; none if nothing was written."""
        writer, self._writer = self._writer, None
        if writer is None:
            return ()
        with cleaning_up_after_failure(writer.abort):
            return tuple(writer.close())

    def abort(self) -> None:
        """Removes what was written, where the task fails."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()
