"""Values of records as JSON, from topics that others can write to as well."""

from __future__ import annotations

from typing import TypeVar

import msgspec

Decoded = TypeVar("Decoded")


def decode_json(decoder: msgspec.json.Decoder[Decoded], value: bytes) -> Decoded:
    """Returns what a value holds.

    Raises:
        ValueError: if it is something else, or is nested too deep.
    """
    try:
        return decoder.decode(value)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
