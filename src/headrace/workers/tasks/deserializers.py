"""Deserializers of the user's own: what a worker's function is given of bytes.

``value_deserializer`` and ``key_deserializer`` are called with the bytes of the value and of the
key of a record, on the thread on which the function is then called: the event loop for a coroutine
function, which they must not block, another thread for an ordinary one. They are called once for
each attempt, within its ``processing_timeout``, several of them at the same time where there are
several threads. ``None`` is not handed to them: a tombstone, or a record without a key, is ``None``
in the function. Partitioners, state, dead letters and ``record`` have the bytes.

``InvalidRecordError`` and ``ValueError`` make the record invalid: it is not retried, and meets the
end of the failure policy. Anything else that they raise is a failed attempt, as of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from headrace.errors import InvalidRecordError
from headrace.runtime.error_text import error_text
from headrace.workers.tasks.task import Headers

Deserializer: TypeAlias = Callable[[bytes], Any]
"""Makes of the bytes of a key or a value what a worker's function is given."""


class Deserialized(msgspec.Struct, frozen=True):
    """Reads keys or values of records by a deserializer of the user's.

    Attributes:
        deserializer: the user's; ``None``: bytes stay as they are.
        part: ``key`` or ``value``, of which the reason of a rejection is ``invalid-key`` or
            ``invalid-value``.
    """

    deserializer: Deserializer | None
    part: str

    def __call__(self, read: bytes | None, _: Headers = ()) -> Any:
        """Returns what the function is given.

        Raises:
            InvalidRecordError: if the deserializer raises it, or a ``ValueError``.
        """
        if read is None or self.deserializer is None:
            return read
        try:
            return self.deserializer(read)
        except ValueError as error:
            raise InvalidRecordError(f"invalid-{self.part}", error_text(error)) from error

    def needs_lookup(self, _: bytes | None, __: Headers = ()) -> bool:
        """Returns ``False``: headrace looks no schemas up for it."""
        return False
