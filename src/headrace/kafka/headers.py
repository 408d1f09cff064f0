"""Headers of records, whatever bytes their names are made of."""

from __future__ import annotations

import operator
from typing import Any

from headrace.kafka.range_reader import Record

Headers = tuple[tuple[str, bytes | None], ...]

_UNREADABLE = object()
# Where a name is not UTF-8, the client library gives a list that crashes whoever looks at it,
# beside an error. A call through this object has that noticed by the interpreter (SystemError);
# the call `record.headers()`, once it is optimised, does not.
_read: Any = operator.methodcaller("headers")


def headers_of(record: Record) -> Headers | None:
    """Returns the headers in order; ``None`` when a name among them is not UTF-8.

    Brokers take any bytes for a name; the client library gives all headers of a record or none.
    """
    try:
        headers = _read(record)
    except SystemError:
        # In place of the list that the record has kept.
        record.set_headers(_UNREADABLE)  # type: ignore[attr-defined]
        return None
    return None if headers is _UNREADABLE else tuple(headers or ())
