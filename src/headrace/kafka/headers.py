"""Headers of records, whatever bytes their names are made of."""

from __future__ import annotations

from headrace.kafka.range_reader import Record

Headers = tuple[tuple[str, bytes | None], ...]


def headers_of(record: Record) -> Headers | None:
    """The headers in order; ``None`` when a name among them is not UTF-8.

    Brokers take any bytes for a name, the client library gives all headers of a record or none.
    It raises SystemError, as a conversion in C fails without saying so.
    """
    try:
        return tuple(record.headers() or ())
    except (SystemError, UnicodeDecodeError):
        return None
