"""Which accounts have figures of their own: the first that send anything, up to a limit."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.ingest.mapped_file import map_file, open_shared
from headrace.ingest.tokens.token import MAX_NAME_BYTES
from headrace.runtime.files.file_locks import FileLock

SHARED_SLOT = "0"
"""The slot of all accounts that came when the others were taken."""

_LENGTH = struct.Struct("=H")
_RECORD_BYTES = _LENGTH.size + MAX_NAME_BYTES


class AccountSlots:
    """Numbers for accounts, from 1 on, in a file that every worker of the host maps.

    Accounts are free text, and there may be any number of them, so a monitoring system could not
    hold a figure for each. An account keeps its number as long as the file is there.

    A worker may be killed at any instruction: the lock is the kernel's, and the length that makes
    a record count is written after its text.

    Raises:
        IngestStateError: if the file can't be made, or the disk has no room for it.
    """

    def __init__(self, file: Path, max_accounts: int) -> None:
        self._max_accounts = max_accounts
        self._slots: dict[str, str] = {}
        self._file = open_shared(file)
        # Held for microseconds, and once for each account in the life of a worker.
        self._lock = FileLock(self._file)
        self._map = map_file(self._file, file, max(1, max_accounts) * _RECORD_BYTES)

    def slot(self, account: str) -> str:
        """Returns the account's number; that of all others where no number is left."""
        try:
            return self._slots[account]
        except KeyError:
            # Accounts of tokens that headrace did not create may have any length.
            slot = self._slots[account] = self._find_or_take(account.encode()[:MAX_NAME_BYTES])
            return slot

    def accounts(self) -> Mapping[str, str]:
        """Returns the accounts by number."""
        return {str(number): name.decode(errors="replace") for number, name in self._records()}

    def close(self) -> None:
        """Closes the file; the numbers stay."""
        self._map.close()
        os.close(self._file)

    def _find_or_take(self, name: bytes) -> str:
        if not name:
            return SHARED_SLOT
        with self._lock:
            last = 0
            for number, account in self._records():
                if account == name:
                    return str(number)
                last = number
            if last == self._max_accounts:
                return SHARED_SLOT
            start = last * _RECORD_BYTES + _LENGTH.size
            self._map[start : start + len(name)] = name
            _LENGTH.pack_into(self._map, last * _RECORD_BYTES, len(name))
            return str(last + 1)

    def _records(self) -> Iterator[tuple[int, bytes]]:
        for number in range(1, self._max_accounts + 1):
            place = (number - 1) * _RECORD_BYTES
            (length,) = _LENGTH.unpack_from(self._map, place)
            if length == 0:
                return
            start = place + _LENGTH.size
            yield number, self._map[start : start + length]
