"""Appends of one worker's requests, gathered while the disk is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool

_GROUP_BYTES = 4 << 20  # the spool is locked for so much at a time, and full for so much at once


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """Records of one request; ``behind``: only while others are pending."""

    records: Sequence[SpoolRecord]
    behind: bool
    taken: asyncio.Future[bool]


class GroupCommit:
    """What comes in while one append is written is the next: one write and one fsync for many.

    Used in one event loop. The order of the calls is the order of the records.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._waiting: list[_Wanted] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, records: Sequence[SpoolRecord]) -> None:
        """As :meth:`Spool.append`."""
        await self._want(records, behind=False)

    async def append_if_pending(self, records: Sequence[SpoolRecord]) -> bool:
        """As :meth:`Spool.append_if_pending`."""
        return await self._want(records, behind=True)

    async def _want(self, records: Sequence[SpoolRecord], *, behind: bool) -> bool:
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wanted(records, behind, taken))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await taken

    async def _write(self) -> None:
        while group := self._next():
            try:
                taken = await asyncio.to_thread(self._append, group)
            except Exception as error:  # noqa: BLE001 - each request raises it
                _settle(group, error)
            else:
                _settle(group, taken)
        self._writing = None

    def _next(self) -> Sequence[_Wanted]:
        size = count = 0
        while count < len(self._waiting) and size < _GROUP_BYTES:
            size += sum(len(record.value) for record in self._waiting[count].records)
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _append(self, group: Sequence[_Wanted]) -> bool:
        records = [record for wanted in group for record in wanted.records]
        if all(wanted.behind for wanted in group):
            return self._spool.append_if_pending(records)
        self._spool.append(records)
        return True


def _settle(group: Sequence[_Wanted], result: bool | Exception) -> None:
    for wanted in group:
        if wanted.taken.done():  # its request was cancelled
            continue
        if isinstance(result, Exception):
            wanted.taken.set_exception(result)
        else:
            wanted.taken.set_result(result)
