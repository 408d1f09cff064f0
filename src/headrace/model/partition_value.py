"""Which texts can name a partition's directory; the same rule for the source and the sinks."""

from __future__ import annotations

import re

# A directory's name has 255 bytes on most file systems; the column's name takes some of them.
MAX_PARTITION_VALUE_BYTES = 100
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
RESCUE_PARTITION = "__unsafe__"
RESCUED_COLUMN = "_rescued"

_FORBIDDEN = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]")
_RESERVED = {".", "..", NULL_PARTITION, RESCUE_PARTITION}


def unsafe_partition_value(value: str) -> str | None:
    """Why ``value`` can't name a directory, as the end of a sentence; ``None`` when it can.

    The empty value is safe: it shares the partition of null. The rule is that of
    :class:`~headrace.sinks.lake.layout.UnsafeValues`, plus the name of the null partition, which
    would read back as null.
    """
    # A lone surrogate can't be encoded otherwise, and this must not raise for any text.
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > MAX_PARTITION_VALUE_BYTES:
        return f"is {size} bytes long; at most {MAX_PARTITION_VALUE_BYTES} can name a directory"
    if value in _RESERVED:
        return f"is {value!r}, a reserved directory name"
    forbidden = _FORBIDDEN.search(value)
    if forbidden is None:
        return None
    if forbidden[0] in "/\\":
        return f"holds {forbidden[0]!r}, which separates directories"
    return f"holds the control character U+{ord(forbidden[0]):04X}"
