"""Walks over values of Avro: what a few bytes may become, and which field can't be read.

fastavro reads nested values by calls of C functions, which end the process where the stack ends,
and believes the counts of arrays and maps. Most schemas bound both: the types nest so deep and no
deeper, and every item takes a byte. Values of other schemas are walked over before they are read,
without making anything of them. So are those, after they were read, that may hold an integer beyond
64 bits, of which fastavro makes another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from headrace.events.avro.schemas import WRITTEN_NAME, Named, Schema

if TYPE_CHECKING:
    from headrace.events.rejection import Rejection

MAX_DEPTH = 1000
"""Levels of records, arrays and maps of a value; about as many as of JSON.

fastavro takes about 1.3 kB of the C stack for each, and a thread has 8 MB.
"""
MAX_EMPTY = 100_000
"""Items and fields of a value that take no bytes."""

# A schema that nests no deeper than this needs no walk. Far below MAX_DEPTH: see `_height`.
_PLAIN_DEPTH = 100
_MAX_LONG_BITS = 64
# An integer beyond 64 bits begins with nine bytes which say that another byte follows, as one of 64
# bits does. The tenth says so too, or it holds more than one bit.
_LONG_RUN = b"\x80" * 9
_AS_RUNS = bytes(byte & 0x80 or min(byte, 2) for byte in range(256))
_WITHOUT_ENDS = bytes(byte if byte & 0x80 else 0x20 for byte in range(256))
_SHOWN_KEY_CHARACTERS = 40
_RECORDS = ("record", "error")
_BEYOND_LONG = "does not fit its schema: it holds an integer beyond 64 bits"
_TOO_DEEP: Rejection = ("too-deep", f"the value is nested deeper than {MAX_DEPTH} levels")
_TOO_MANY: Rejection = (
    "too-many-items",
    f"the value has more than {MAX_EMPTY} items that take no bytes",
)


_Label: TypeAlias = str | int | bytes
"""What is added to the path of a value for a part of it: a field, an index, a key as it came."""
_Part: TypeAlias = tuple[_Label, Schema]
ReadLeaf: TypeAlias = Callable[[Schema, bytes], object]
"""Reads a value without parts; raises MalformedError if its bytes can't be read."""


class MalformedError(Exception):
    """A part of a value can't be read.

    Attributes:
        words: what is wrong with it, after the name of its field.
        reason: code of the rejection.
    """

    def __init__(self, words: str, reason: str = "not-avro") -> None:
        super().__init__(words, reason)
        self.words, self.reason = words, reason


class BoundedWalk:
    """Checks whether a value of a schema may be read. May be called on any thread.

    Args:
        schema: of the values, as fastavro has parsed it.
        named: the types that it names.
        read_leaf: called for each part that has no parts itself.
    """

    def __init__(self, schema: Schema, named: Named, read_leaf: ReadLeaf | None = None) -> None:
        self._schema, self._named, self._read_leaf = schema, named, read_leaf

    def __call__(self, value: bytes, start: int) -> Rejection | None:
        """Returns why the value that begins at ``start`` must not be read; ``None`` if it may."""
        path: list[_Label] = [""]
        try:
            return self._walk(_Cursor(value, start), path)
        except MalformedError as error:
            return error.reason, f"{_field(path)} {error.words}"

    def end(self, values: bytes, start: int) -> int:
        """Returns where the value that begins at ``start`` ends.

        Raises:
            MalformedError: if it does not fit its schema, or must not be read.
        """
        cursor = _Cursor(values, start)
        refused = self._walk(cursor, [""])
        if refused:
            raise MalformedError(refused[1], refused[0])
        return cursor.position

    def _walk(self, cursor: _Cursor, path: list[_Label]) -> Rejection | None:
        # A stack of its own: this one does not end where Python's does.
        stack: list[Iterator[_Part]] = [iter((("", self._schema),))]
        empty = 0
        while stack:
            path[-1], part = next(stack[-1], _END)
            if part is None:
                stack.pop()
                path.pop()
                continue
            begin = cursor.position
            inner = self._enter(part, cursor)
            if inner is not None:
                stack.append(inner)
                path.append("")
            elif cursor.position == begin:
                empty += 1
            if len(stack) > MAX_DEPTH:
                return _TOO_DEEP
            if empty > MAX_EMPTY:
                return _TOO_MANY
        return None

    def _enter(self, schema: Schema, cursor: _Cursor) -> Iterator[_Part] | None:
        """Skips a value; returns its parts instead, if it has parts."""
        while isinstance(schema, list):  # a branch may be a union to fastavro
            schema = schema[cursor.index(len(schema))]
        schema = _definition(schema, self._named)
        kind = _kind(schema)
        if kind in _RECORDS:
            fields = schema["fields"]
            parts = (
                (str(field.get(WRITTEN_NAME, field["name"])), field["type"]) for field in fields
            )
            return parts if fields else None
        if kind == "array":
            return ((index, schema["items"]) for index in cursor.items())
        if kind == "map":
            return _values(schema["values"], cursor)
        begin = cursor.position
        if kind == "fixed":
            cursor.skip(schema["size"])
        else:
            _SKIPS[kind](cursor)
        if self._read_leaf is not None:
            self._read_leaf(schema, cursor.since(begin))
        return None


_END: tuple[str, None] = ("", None)


def _field(path: list[_Label]) -> str:
    text = "".join(
        f".{label}" if isinstance(label, str) else f"[{_shown(label)}]"
        for label in path
        if label != ""
    )
    return f"field {text.removeprefix('.')!r}" if text else "the value"


def _values(schema: Schema, cursor: _Cursor) -> Iterator[_Part]:
    for _ in cursor.items():
        begin = cursor.position
        yield "", "string"
        yield cursor.since(begin), schema


class _Cursor:
    """A position in a value, which moves over Avro's encodings."""

    def __init__(self, value: bytes, position: int) -> None:
        self._value, self.position = value, position

    def since(self, begin: int) -> bytes:
        """Returns the bytes that have been skipped since a position."""
        return self._value[begin : self.position]

    def skip(self, size: int) -> None:
        if size < 0:
            raise MalformedError(f"does not fit its schema: its size is {size}")
        if size > len(self._value) - self.position:
            raise MalformedError("does not fit its schema: the record ends within it")
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
                raise MalformedError(_BEYOND_LONG)
        if number.bit_length() > _MAX_LONG_BITS:
            raise MalformedError(_BEYOND_LONG)
        return (number >> 1) ^ -(number & 1)

    def index(self, size: int) -> int:
        number = self.long()
        if not 0 <= number < size:
            raise MalformedError(f"does not fit its schema: it has no branch {number}")
        return number

    def items(self) -> Iterator[int]:
        """Yields the index of each item of an array or map, which the caller skips."""
        first = 0
        while count := self.long():
            if count < 0:
                self.long()  # the size of the block in bytes
            yield from range(first, first + abs(count))
            first += abs(count)


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


def is_bounded(schema: Schema, named: Named) -> bool:
    """Returns whether a schema bounds its values, so that they are read without a walk."""
    try:
        return _Shape(named).height(schema) <= _PLAIN_DEPTH
    except (_UnboundedError, RecursionError):
        return False


def may_exceed_long(value: bytes, text: bytes) -> bool:
    """Returns whether a value may hold an integer beyond 64 bits.

    Args:
        value: looked at byte by byte, which costs a few percent of reading it.
        text: that was read of it: texts of many scripts have as long runs as such an integer.
    """
    as_runs = value.translate(_AS_RUNS)
    begin = as_runs.find(_LONG_RUN)
    while begin >= 0 and as_runs[begin + 9 : begin + 10] < b"\x02":
        begin = as_runs.find(_LONG_RUN, begin + 10)
    if begin < 0:
        return False
    runs = value.translate(_WITHOUT_ENDS).split()
    return any(len(run) >= len(_LONG_RUN) and run not in text for run in runs)


class _UnboundedError(Exception):
    """A type holds itself, or has a field or item that takes no bytes."""


class _Shape:
    """How deep the types of a schema nest."""

    def __init__(self, named: Named) -> None:
        self._named = named
        # Each named type is looked at once: types that refer to each other would otherwise take
        # time that is exponential in their number. None: it is being looked at.
        self._heights: dict[str, int | None] = {}

    def height(self, schema: Schema) -> int:
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

    def _record_height(self, schema: Schema) -> int:
        name = schema["name"]
        if name not in self._heights:
            self._heights[name] = None
            inner = (self._part_height(field["type"]) for field in schema["fields"])
            self._heights[name] = 1 + max(inner, default=0)
        height = self._heights[name]
        if height is None:
            raise _UnboundedError
        return height

    def _part_height(self, schema: Schema) -> int:
        """Returns the height of a field or item, which must take bytes.

        A branch of a union may take none: its index does. A record whose fields all take bytes
        takes some itself, so only one without fields takes none.
        """
        inner = _definition(schema, self._named)
        kind = _kind(inner)
        if kind == "null" or (kind == "fixed" and inner["size"] < 1):
            raise _UnboundedError
        if kind in _RECORDS and not inner["fields"]:
            raise _UnboundedError
        return self.height(inner)


def _shown(label: int | bytes) -> str:
    if isinstance(label, int):
        return str(label)
    cursor = _Cursor(label, 0)
    cursor.long()  # the number of the key's bytes
    key = label[cursor.position :].decode(errors="replace")
    cut = repr(key[:_SHOWN_KEY_CHARACTERS])
    return cut if len(key) <= _SHOWN_KEY_CHARACTERS else f"{cut}..."


def _definition(schema: Schema, named: Named) -> Schema:
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Schema) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)
