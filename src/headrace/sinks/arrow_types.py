"""Kinds of values that Arrow has several types for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def is_text(kind: pa.DataType) -> bool:
    """Returns whether values are texts, in any of Arrow's layouts."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Returns whether values are bytes, of any length."""
    from pyarrow import types

    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Returns whether values are lists, of any length."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind))


def is_point_in_time(kind: pa.DataType) -> bool:
    """Returns whether values are timestamps with a zone: any other is no point in time."""
    from pyarrow import types

    return bool(types.is_timestamp(kind) and kind.tz is not None)
