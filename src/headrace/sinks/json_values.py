"""Values of rows as JSON, and those that have none.

The text of an ``Any`` goes into JSON as it is. So it must be one value: ``1,"b":2``, which only a
step can make, would add a member to the object around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from headrace.model import EventField, FieldType
from headrace.sinks.any_values import any_converter
from headrace.sinks.map_values import map_converter

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Mask: TypeAlias = NDArray[np.bool_]
    _Leaf: TypeAlias = tuple[pa.Array, str, NDArray[np.int64]]

NO_JSON = "has a text that is not one JSON value"
NOT_FINITE = "has NaN or infinity, which JSON lacks"
BEYOND_CALENDAR = "has a time outside the years 1 to 9999"
_DAY_US = 86_400_000_000
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
# Made at import: msgspec crashes where several threads are the first to decode a class.
_RAW = msgspec.json.Decoder(msgspec.Raw)


class NoJsonError(ValueError):
    """A text is not one JSON value."""


def raw_json(text: str) -> msgspec.Raw:
    """Returns a text that msgspec writes into JSON as it is.

    Raises:
        NoJsonError: if it is not one JSON value.
    """
    raw = msgspec.Raw(text.encode())
    try:
        _RAW.decode(raw)
    except (ValueError, RecursionError):
        raise NoJsonError(text) from None
    return raw


def nested_json(values: pa.Array | pa.ChunkedArray, field: EventField | None) -> list[str | None]:
    """Returns the JSON of each value, on one line; None for null.

    Times are of RFC 3339 with the offset of UTC, decimals are texts, bytes are base64, and maps are
    objects.

    Args:
        values: none of which is :func:`unwritable`.
        field: says which texts are JSON themselves; None: none is.
    """
    of_maps = map_converter(values.type)
    of_any = any_converter(field, _on_one_line) if field is not None else (lambda value: value)
    return [
        None if value is None else msgspec.json.encode(of_any(of_maps(value))).decode()
        for value in values.to_pylist()
    ]


def _on_one_line(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.replace("\n", " ").replace("\r", " ").encode())


def unwritable(
    values: pa.Array,
    field: EventField | None,
    faults: Collection[str] = (NO_JSON, NOT_FINITE, BEYOND_CALENDAR),
) -> Iterator[tuple[Mask, str]]:
    """Yields which values are or hold something that JSON does not have, and the fault.

    Args:
        values: of any type.
        field: says which texts are JSON themselves; None: none is.
        faults: to look for, each the end of a sentence about the column.
    """
    import numpy as np

    tests = {NO_JSON: _are_no_json, NOT_FINITE: _are_not_finite, BEYOND_CALENDAR: beyond_calendar}
    for leaf, fault, places in _leaves(values, field, np.arange(len(values)), faults):
        yield mask_at(places[tests[fault](leaf)], len(values)), fault


def beyond_calendar(times: pa.Array) -> Mask:
    """Returns which dates or timestamps are outside the years 1 to 9999."""
    import numpy as np
    import pyarrow.compute as pc
    from pyarrow import types

    from headrace.events import EARLIEST_US, LATEST_US

    is_date = types.is_date32(times.type)
    unit_us = _DAY_US if is_date else _UNIT_US.get(times.type.unit)
    if unit_us is None:  # 64 bits of nanoseconds are the years 1677 to 2262
        return np.zeros(len(times), np.bool_)
    numbers = times.cast("int32" if is_date else "int64")
    is_early = pc.less(numbers, EARLIEST_US // unit_us)
    return mask_of(pc.or_(is_early, pc.greater(numbers, LATEST_US // unit_us)))


def _are_no_json(texts: pa.Array) -> Mask:
    import numpy as np

    return np.array([text is not None and not _is_json(text) for text in texts.to_pylist()], bool)


def _is_json(text: str) -> bool:
    try:
        raw_json(text)
    except NoJsonError:
        return False
    return True


def _are_not_finite(numbers: pa.Array) -> Mask:
    import pyarrow.compute as pc

    return mask_of(pc.invert(pc.is_finite(numbers)))


def _leaves(
    array: pa.Array, field: EventField | None, places: NDArray[np.int64], faults: Collection[str]
) -> Iterator[_Leaf]:
    """Yields the values within values that may have one of some faults, and the place of each."""
    import numpy as np
    import pyarrow.compute as pc
    from pyarrow import types

    kind = array.type
    possible = {_possible_fault(leaf, inner) for leaf, inner in leaf_types(kind, field)}
    # Most types can't have a fault: their values are not looked at.
    if possible.isdisjoint(faults):
        return
    if not types.is_nested(kind):
        [fault] = possible
        yield array, str(fault), places
    elif types.is_struct(kind):
        for index, member in enumerate(members_of(kind, field)):
            yield from _leaves(pc.struct_field(array, [index]), member, places, faults)
    else:
        offsets = array.offsets.to_numpy()
        parents = np.repeat(np.arange(len(array)), np.diff(offsets))
        is_valid = mask_of(array.is_valid())[parents]
        element, is_map = field and field.element, types.is_map(kind)
        parts = (
            ((array.keys, None), (array.items, element)) if is_map else ((array.values, element),)
        )
        for values, inner in parts:
            # A null list can have items in the buffer that no reader sees.
            held = values.slice(offsets[0], len(parents)).filter(is_valid)
            yield from _leaves(held, inner, places[parents[is_valid]], faults)


def leaf_types(
    kind: pa.DataType, field: EventField | None = None
) -> Iterator[tuple[pa.DataType, EventField | None]]:
    """Yields the types that hold no others, within a type, and the fields that are of them."""
    from pyarrow import types

    if not types.is_nested(kind):
        yield kind, field
    elif types.is_struct(kind):
        for inner, member in zip(kind, members_of(kind, field), strict=True):
            yield from leaf_types(inner.type, member)
    else:
        if types.is_map(kind):
            yield from leaf_types(kind.key_type)
        item = kind.item_type if types.is_map(kind) else kind.value_type
        yield from leaf_types(item, field and field.element)


def _possible_fault(kind: pa.DataType, field: EventField | None) -> str | None:
    """Returns what values of a type may have that JSON does not."""
    from pyarrow import types

    if field is not None and field.type is FieldType.JSON:
        return NO_JSON
    if types.is_floating(kind):
        return NOT_FINITE
    return BEYOND_CALENDAR if types.is_date32(kind) or types.is_timestamp(kind) else None


def members_of(kind: pa.DataType, field: EventField | None) -> list[EventField | None]:
    """Returns the field of each member of a struct."""
    known = {member.name: member for member in field.fields} if field else {}
    return [known.get(member.name) for member in kind]


def mask_of(array: pa.Array) -> Mask:
    """Returns Booleans as numpy has them; null is false."""
    import pyarrow.compute as pc

    mask: Mask = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return mask


def mask_at(places: NDArray[np.int64], length: int) -> Mask:
    """Returns a mask that is true at some places."""
    import numpy as np

    mask = np.zeros(length, np.bool_)
    mask[places] = True
    return mask
