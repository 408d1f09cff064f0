"""Decodes JSON values of records, from topics that other programs can write to as well."""

from __future__ import annotations

from typing import TypeVar

import msgspec

Decoded = TypeVar("Decoded")


def decode_json(decoder: msgspec.json.Decoder[Decoded], value: bytes) -> Decoded:
    """Returns the object that a record's JSON value holds.

    Raises:
        ValueError: if the value does not have the decoder's type, or is nested too deep.
    """
    try:
        return decoder.decode(value)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
