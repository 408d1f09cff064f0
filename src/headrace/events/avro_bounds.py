"""Bounds of what a few bytes of Avro may become: how deep a value nests, and how many items it has.

fastavro reads nested values by calls of C functions, which end the process where the stack ends,
and believes the counts of arrays and maps. Most schemas bound both: the types nest so deep and no
deeper, and every item takes a byte. Values of other schemas are walked over before they are read,
without making anything of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from headrace.events.rejection import Rejection

_Schema: TypeAlias = Any
_Named: TypeAlias = Mapping[str, _Schema]

MAX_DEPTH = 1000
"""Levels of records, arrays and maps of a value; about as many as of JSON.

fastavro takes about 1.3 kB of the C stack for each, and a thread has 8 MB.
"""
MAX_EMPTY = 100_000
"""Items and fields of a value that take no bytes."""

# A schema that nests no deeper than this needs no walk. Far below MAX_DEPTH: see `_height`.
_PLAIN_DEPTH = 100
_MAX_LONG_BITS = 64
_RECORDS = ("record", "error")
_NO_FIT: Rejection = ("not-avro", "the value does not fit its schema")
_TOO_DEEP: Rejection = ("too-deep", f"the value is nested deeper than {MAX_DEPTH} levels")
_TOO_MANY: Rejection = (
    "too-many-items",
    f"the value has more than {MAX_EMPTY} items that take no bytes",
)


class _MalformedError(Exception):
    """The bytes are no value of the schema."""


class BoundedWalk:
    """Tells why a value of a schema must not be read. May be called on any thread.

    Args:
        schema: of the values, as fastavro has parsed it.
        named: the types that it names.
    """

    def __init__(self, schema: _Schema, named: _Named) -> None:
        self._schema, self._named = schema, named

    def __call__(self, value: bytes, start: int) -> Rejection | None:
        """Returns why the value that begins at ``start`` must not be read; ``None`` if it may."""
        cursor = _Cursor(value, start)
        try:
            return self._walk(cursor)
        except _MalformedError:
            return _NO_FIT

    def _walk(self, cursor: _Cursor) -> Rejection | None:
        # A stack of its own: this one does not end where Python's does.
        stack: list[Iterator[_Schema]] = [iter((self._schema,))]
        empty = 0
        while stack:
            part = next(stack[-1], None)
            if part is None:
                stack.pop()
                continue
            begin = cursor.position
            inner = self._enter(part, cursor)
            if inner is not None:
                stack.append(inner)
            elif cursor.position == begin:
                empty += 1
            if len(stack) > MAX_DEPTH:
                return _TOO_DEEP
            if empty > MAX_EMPTY:
                return _TOO_MANY
        return None

    def _enter(self, schema: _Schema, cursor: _Cursor) -> Iterator[_Schema] | None:
        """Skips a value; returns the types of its parts instead, if it has parts."""
        if isinstance(schema, list):
            schema = schema[cursor.index(len(schema))]
        schema = _definition(schema, self._named)
        kind = _kind(schema)
        if kind in _RECORDS:
            types = [field["type"] for field in schema["fields"]]
            return iter(types) if types else None
        if kind == "array":
            return (schema["items"] for _ in cursor.items())
        if kind == "map":
            return _values(schema["values"], cursor)
        if kind == "fixed":
            cursor.skip(schema["size"])
        else:
            _SKIPS[kind](cursor)
        return None


def _values(schema: _Schema, cursor: _Cursor) -> Iterator[_Schema]:
    for _ in cursor.items():
        cursor.skip_bytes()  # the key
        yield schema


class _Cursor:
    """A position in a value, which moves over Avro's encodings."""

    def __init__(self, value: bytes, position: int) -> None:
        self._value, self.position = value, position

    def skip(self, size: int) -> None:
        if not 0 <= size <= len(self._value) - self.position:
            raise _MalformedError
        self.position += size

    def skip_bytes(self) -> None:
        self.skip(self.long())

    def long(self) -> int:
        number = shift = 0
        while True:
            self.skip(1)
            byte = self._value[self.position - 1]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that another byte follows
                break
            if shift >= _MAX_LONG_BITS:
                raise _MalformedError
        if number.bit_length() > _MAX_LONG_BITS:
            raise _MalformedError
        return (number >> 1) ^ -(number & 1)

    def index(self, size: int) -> int:
        number = self.long()
        if not 0 <= number < size:
            raise _MalformedError
        return number

    def items(self) -> Iterator[None]:
        """Yields before each item of an array or map, which the caller skips."""
        while count := self.long():
            if count < 0:
                self.long()  # the size of the block in bytes
            for _ in range(abs(count)):
                yield


_SKIPS: Mapping[str, Callable[[_Cursor], object]] = {
    "null": lambda _: None,
    "boolean": lambda cursor: cursor.skip(1),
    "int": _Cursor.long,
    "long": _Cursor.long,
    "enum": _Cursor.long,
    "float": lambda cursor: cursor.skip(4),
    "double": lambda cursor: cursor.skip(8),
    "bytes": _Cursor.skip_bytes,
    "string": _Cursor.skip_bytes,
}


def bounded_walk(schema: _Schema, named: _Named) -> BoundedWalk | None:
    """Returns what walks over values of a schema before they are read; ``None`` if none has to."""
    try:
        height = _Shape(named).height(schema)
    except (_UnboundedError, RecursionError):
        return BoundedWalk(schema, named)
    return BoundedWalk(schema, named) if height > _PLAIN_DEPTH else None


class _UnboundedError(Exception):
    """A type holds itself, or has a field or item that takes no bytes."""


class _Shape:
    """How deep the types of a schema nest."""

    def __init__(self, named: _Named) -> None:
        self._named = named
        # Each named type is looked at once: types that refer to each other would otherwise take
        # time that is exponential in their number. None: it is being looked at.
        self._heights: dict[str, int | None] = {}

    def height(self, schema: _Schema) -> int:
        """Returns the levels of records, arrays and maps of a type.

        Raises:
            _UnboundedError: if the schema does not bound its values.
        """
        if isinstance(schema, list):
            return max(map(self.height, schema), default=0)
        schema = _definition(schema, self._named)
        kind = _kind(schema)
        if kind in _RECORDS:
            return self._record_height(schema)
        if kind in ("array", "map"):
            return 1 + self._part_height(schema["items" if kind == "array" else "values"])
        return 0

    def _record_height(self, schema: _Schema) -> int:
        name = schema["name"]
        if name not in self._heights:
            self._heights[name] = None
            inner = (self._part_height(field["type"]) for field in schema["fields"])
            self._heights[name] = 1 + max(inner, default=0)
        height = self._heights[name]
        if height is None:
            raise _UnboundedError
        return height

    def _part_height(self, schema: _Schema) -> int:
        """Returns the height of a field or item, which must take bytes.

        A branch of a union may take none: its index does. A record whose fields all take bytes
        takes some itself, so only one without fields takes none.
        """
        inner = _definition(schema, self._named)
        kind = "union" if isinstance(inner, list) else _kind(inner)
        if kind == "null" or (kind == "fixed" and inner["size"] < 1):
            raise _UnboundedError
        if kind in _RECORDS and not inner["fields"]:
            raise _UnboundedError
        return self.height(inner)


def _definition(schema: _Schema, named: _Named) -> _Schema:
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: _Schema) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)
