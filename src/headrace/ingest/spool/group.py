"""Appends of one worker's requests, gathered while the disk is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool


@dataclass(frozen=True, slots=True, eq=False)
class _PendingAppend:
    """The records of one request; with ``behind``, they are appended only while others wait."""

    records: Sequence[SpoolRecord]
    behind: bool
    taken: asyncio.Future[bool]


class GroupCommit:
    """Appends the records of many requests with one write and one fsync.

    What comes in while an append is written is the next one. It is used in one event loop. The
    order of the calls is the order of the records.

    Args:
        spool: where they are appended.
        max_bytes: of one append: the spool is locked while it is written.
    """

    def __init__(self, spool: Spool, max_bytes: int = 4 << 20) -> None:
        self._spool, self._max_bytes = spool, max_bytes
        self._waiting: list[_PendingAppend] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, records: Sequence[SpoolRecord]) -> None:
        """Appends records; raises like :meth:`Spool.append`."""
        await self._enqueue(records, behind=False)

    async def append_if_pending(self, records: Sequence[SpoolRecord]) -> bool:
        """Appends records while others wait; raises like :meth:`Spool.append_if_pending`."""
        return await self._enqueue(records, behind=True)

    async def _enqueue(self, records: Sequence[SpoolRecord], *, behind: bool) -> bool:
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingAppend(records, behind, taken))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await taken

    async def _write(self) -> None:
        while group := self._next():
            try:
                is_appended = await asyncio.to_thread(self._append, group)
            except Exception as error:  # noqa: BLE001 - each request raises it
                _settle(group, error)
            else:
                _settle(group, is_appended)
        self._writing = None

    def _next(self) -> Sequence[_PendingAppend]:
        size = count = 0
        while count < len(self._waiting) and size < self._max_bytes:
            size += sum(len(record.value) for record in self._waiting[count].records)
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _append(self, group: Sequence[_PendingAppend]) -> bool:
        records = [record for append in group for record in append.records]
        # Where one must be appended, the others are behind it, and so may be appended, too.
        if all(append.behind for append in group):
            return self._spool.append_if_pending(records)
        self._spool.append(records)
        return True


def _settle(group: Sequence[_PendingAppend], result: bool | Exception) -> None:
    for append in group:
        if append.taken.done():  # its request was cancelled
            continue
        if isinstance(result, Exception):
            append.taken.set_exception(result)
        else:
            append.taken.set_result(result)
