"""What a Delta table may ask of headrace's writer, which adds and swaps whole files.

It is a list of what is fulfilled: whatever another engine has given the table besides, known today
or not, is refused before it is written wrongly. delta-rs is no way round it. Adding files through
delta-rs checks nothing of what is in them, and maps no columns.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Valid Feature Names in Table
Features" and "Writer Version Requirements".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec
from deltalake import DeltaTable

# Ask nothing of who adds files, or swaps files without changing data.
_FULFILLED = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
    }
)
# Ask nothing until a property or a column uses them, which is looked at.
_DORMANT = frozenset(
    {"checkConstraints", "columnMapping", "generatedColumns", "identityColumns", "invariants"}
)
# A table with a lower writer version has features of these two sets only, and no list of them.
_LISTED_FEATURES_VERSION = 7
_COLUMN_FEATURES = {
    "delta.generationExpression": "the generated column",
    "delta.identity.start": "the identity column",
    "delta.invariants": "an invariant of column",
}
_NESTED = ("type", "fields", "elementType", "keyType", "valueType")


def unfulfilled(table: DeltaTable) -> str | None:
    """Names what the table asks of a writer and headrace does not do; None: nothing."""
    features = chain(
        _features(table),
        _properties(table.metadata().configuration),
        _columns(table.schema().to_json()),
    )
    return next(features, None)


def not_written(feature: str) -> str:
    """Says why a table with ``feature``, a result of :func:`unfulfilled`, is refused."""
    return f"the table has {feature}, which headrace does not write"


def _features(table: DeltaTable) -> Iterator[str]:
    protocol = table.protocol()
    if protocol.min_writer_version > _LISTED_FEATURES_VERSION:
        yield f"writer version {protocol.min_writer_version}"
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    for name in sorted(features - _FULFILLED - _DORMANT):
        yield f"the table feature {name!r}"


def _properties(properties: Mapping[str, str]) -> Iterator[str]:
    mode = properties.get("delta.columnMapping.mode", "none")
    if mode != "none":
        yield f"column mapping by {mode}"
    for name in sorted(properties):
        if name.startswith("delta.constraints."):
            yield f"the CHECK constraint {name.removeprefix('delta.constraints.')!r}"


def _columns(schema: str) -> Iterator[str]:
    """Rows of a pipeline may hold null in every column. Inside of columns, types are compared."""
    columns = msgspec.json.decode(schema)["fields"]
    for column in columns:
        if not column["nullable"]:
            yield f"the NOT NULL column {column['name']!r}"
    for field in _fields(columns):
        for key, feature in _COLUMN_FEATURES.items():
            if key in field["metadata"]:
                yield f"{feature} {field['name']!r}"


def _fields(node: Any) -> Iterator[dict[str, Any]]:
    """Yields every field of a schema, those of nested types too."""
    if isinstance(node, list):
        for member in node:
            yield from _fields(member)
    elif isinstance(node, dict):
        if "name" in node and "metadata" in node:
            yield node
        for key in _NESTED:
            yield from _fields(node.get(key))
