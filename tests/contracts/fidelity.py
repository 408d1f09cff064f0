"""Random event classes, their events as a sender writes them, and the values that readers get.

Each value is drawn first, and then one of the ways to write it, so that what is expected never
passes through headrace. The rules are those of the pages events.md and sinks.md.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from random import Random
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import fastavro
from tests.contracts.protobuf_fidelity import schema_of, written

from headrace import Avro, EpochMillis, Json, JsonSchema, Precision, Protobuf
from headrace.model import Format

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND, MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_NUMBERS = count()
FORMATS: Sequence[Format] = (Json(), Json(), Avro(), Avro(), JsonSchema(), Protobuf(), Protobuf())
OfAny = Callable[[Any], Any]

ODD_TEXTS = ["", " ", "null", "NaN", "\\N", "\\.", "'", '"', "\\", "a,b\n", "\r\n", "\t", "\0"]
ODD_TEXTS += ["a\0b", "{}", "[1]", "%s", "$1", "${HOME}", "..", "é", "e\u0301", "ß", "😀", "\u2028"]
ODD_TEXTS += ["\ufeff", "\ud7ff", "\uffff", "\U0010ffff", "1e5", "true", "x" * 300, "' OR 1=1 --"]
CHARACTERS = [*map(chr, range(0x250)), *"żółćßİΣςǅﬁ한\u200d\u202e\ufdd0😀𐐀"]
ODD_NAMES = ["@timestamp", "$set", "user-agent", "from", "select", "order", "żółć", "ключ", "a.b"]
ODD_NAMES += ["x_", "__v", "_id", "f0", "index", "value", "key", "Total", "%d", "50%", "%%", "{x}"]
ODD_NAMES += ["a'b", "a b", "a`b", "a/b", "1", "class", "n" * 60, "😀"]
AVRO_NAMES = [
    "x_",
    "_id",
    "__v",
    "f0",
    "from",
    "select",
    "order",
    "Total",
    "n" * 60,
    "value",
    "key",
]


def text(rng: Random) -> str:
    """Returns any text, odd ones as often as others."""
    if rng.random() < 0.5:
        return rng.choice(ODD_TEXTS)
    return "".join(rng.choices(CHARACTERS, k=rng.randrange(10)))


class Kind:
    """A type of fields.

    Attributes:
        annotation: in the event class.
        sql: the type of a column of PostgreSQL that keeps every value.
        avro: its type in Avro; None: Avro has none.
        wrong: JSON that is no such value, with the reason of its rejection.
    """

    annotation: Any
    sql = "jsonb"
    avro: Any = None
    wrong: Sequence[tuple[str, str]] = ()

    def value(self, rng: Random) -> Any:
        """Returns a value that the column may hold."""
        raise NotImplementedError

    def text(self, rng: Random, value: Any) -> str:
        """Returns one of the ways to write a value in JSON."""
        raise NotImplementedError

    def datum(self, value: Any) -> Any:
        """Returns a value as a writer of Avro takes it."""
        return value

    def of_arrow(self, value: Any) -> Any:
        """Returns the value that a reader of the lake's files gets."""
        return value

    def of_json(self, value: Any, of_any: OfAny) -> Any:
        """Returns the value that a sink has written as JSON, which was parsed to ``value``.

        ``of_any`` is that of a value of type ``Any``.
        """
        return value

    def plain(self, value: Any) -> Any:
        """Returns what is compared of a value where its text does not matter."""
        return value

    def holds_nul(self, value: Any) -> bool:
        """Returns whether a text in the value has a NUL, which PostgreSQL can't hold."""
        return isinstance(value, str) and "\0" in value

    def spoiled(self, rng: Random, value: Any) -> Any:
        """Returns the value with one that is none of its field's, at any depth."""
        return Bad(*rng.choice(self.wrong))


def json_string(rng: Random, value: str) -> str:
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    return text.replace("/", "\\/") if rng.random() < 0.5 else text


class Text(Kind):
    annotation, sql, avro = str, "text", "string"
    wrong = (("5", "wrong-type"), ('"\\ud800"', "lone-surrogate"), ("[]", "wrong-type"))

    def value(self, rng: Random) -> Any:
        return text(rng)

    def text(self, rng: Random, value: str) -> str:
        return json_string(rng, value)


class Choice(Text):
    annotation = Literal["", "b c", "ż'\""]
    wrong = (('"B C"', "unknown-value"), ("7", "wrong-type"))

    def value(self, rng: Random) -> Any:
        return rng.choice(["", "b c", "ż'\""])


class Integer(Kind):
    annotation, sql, avro = int, "bigint", "long"
    wrong = (
        ("1.0", "wrong-type"),
        ("1e3", "wrong-type"),
        ('"1"', "wrong-type"),
        ("true", "wrong-type"),
        (str(2**63), "out-of-range"),
        (str(-(2**63) - 1), "out-of-range"),
    )

    def value(self, rng: Random) -> Any:
        edges = [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
        return rng.choice([*edges, rng.randrange(-(2**63), 2**63)])

    def text(self, rng: Random, value: int) -> str:
        return "-0" if value == 0 and rng.random() < 0.5 else str(value)


class Double(Kind):
    annotation, sql, avro = float, "double precision", "double"
    wrong = (("1e400", "out-of-range"), ("NaN", "not-json"), ('"1"', "wrong-type"))

    def value(self, rng: Random) -> Any:
        edges = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308]
        edges += [0.1 + 0.2, 1e15, 1e16, 1e22, 1e23, 123456789012345680.0, 9007199254740992.0]
        (any_bits,) = struct.unpack("<d", rng.randbytes(8))
        return rng.choice([*edges, any_bits if math.isfinite(any_bits) else rng.random()])

    def text(self, rng: Random, value: float) -> str:
        texts = [repr(value), f"{value:.17e}", f"{value:.20E}"]
        texts += [str(int(value))] if value and value.is_integer() else []
        return rng.choice(texts)

    def of_json(self, value: Any, of_any: OfAny) -> float:
        assert not isinstance(value, str)
        return float(value)


class Truth(Kind):
    annotation, sql, avro = bool, "boolean", "boolean"
    wrong = (("1", "wrong-type"), ('"true"', "wrong-type"))

    def value(self, rng: Random) -> Any:
        return rng.random() < 0.5

    def text(self, rng: Random, value: bool) -> str:
        return "true" if value else "false"


EDGES = [FIRST, FIRST + MICROSECOND, LAST, EPOCH, EPOCH - MICROSECOND, EPOCH + MICROSECOND]
EDGES += [datetime(year, 2, 28, 23, 59, 59, 999999, UTC) for year in (4, 1500, 1582, 1900, 2038)]
EDGES += [datetime(2000, 2, 29, tzinfo=UTC), datetime(1582, 10, 10, 12, tzinfo=UTC)]
EDGES += [datetime(1900, 3, 1, tzinfo=UTC)]


class Time(Kind):
    annotation, sql = datetime, "timestamptz"
    avro: ClassVar[Any] = {"type": "long", "logicalType": "timestamp-micros"}
    wrong = (
        ('"2019-11-24T00:00:00"', "wrong-type"),
        ('"2016-12-31T23:59:60Z"', "wrong-type"),
        ('"2019-02-29T00:00:00Z"', "wrong-type"),
        ('"0001-01-01T00:00:00+00:01"', "out-of-range"),
        ('"9999-12-31T23:59:59.999999-00:01"', "out-of-range"),
        ("1574553617004", "wrong-type"),
    )

    def value(self, rng: Random) -> Any:
        any_time = FIRST + rng.randrange((LAST - FIRST) // MICROSECOND) * MICROSECOND
        return rng.choice([*EDGES, any_time])

    def text(self, rng: Random, value: datetime) -> str:
        minutes = rng.choice([0, 0, 1, -1, 330, -1439, 1439])
        shift = timedelta(minutes=minutes)
        fits = value <= LAST - shift if shift > timedelta(0) else value >= FIRST - shift
        shift = shift if fits else timedelta(0)
        local = value.astimezone(timezone(shift)).replace(tzinfo=None)
        digits = f"{local.microsecond:06}"
        digits = rng.choice([digits, f"{digits}9", f"{digits}999", digits.rstrip("0")])
        zone = f"{'-' if shift < timedelta(0) else '+'}{abs(shift) // timedelta(hours=1):02}"
        zone += f":{abs(shift) // timedelta(minutes=1) % 60:02}"
        zone = rng.choice(["Z", "z", "+00:00", "-00:00"]) if not shift else zone
        between = rng.choice(["T", "t", " "])
        day, clock = local.isoformat(timespec="seconds").split("T")
        return f'"{day}{between}{clock}{"." if digits else ""}{digits}{zone}"'

    def datum(self, value: datetime) -> int:
        return (value - EPOCH) // MICROSECOND

    def of_json(self, value: str, of_any: OfAny) -> datetime:
        return datetime.fromisoformat(value).astimezone(UTC)


class Millis(Time):
    annotation = EpochMillis
    avro: ClassVar[Any] = {"type": "long", "logicalType": "timestamp-millis"}
    wrong = (
        ("253402300800000", "out-of-range"),
        ("-62135596800001", "out-of-range"),
        ("1.5", "wrong-type"),
        ('"2019-11-24T00:00:00Z"', "wrong-type"),
    )

    def value(self, rng: Random) -> Any:
        time = super().value(rng)
        return time.replace(microsecond=time.microsecond // 1000 * 1000)

    def text(self, rng: Random, value: datetime) -> str:
        return str((value - EPOCH) // MILLISECOND)

    def datum(self, value: datetime) -> int:
        return (value - EPOCH) // MILLISECOND

    def of_json(self, value: Any, of_any: OfAny) -> datetime:
        is_number = not isinstance(value, str)
        return EPOCH + int(value) * MILLISECOND if is_number else super().of_json(value, of_any)


class Day(Kind):
    annotation, sql, avro = date, "date", {"type": "int", "logicalType": "date"}
    wrong = (
        ('"2019-02-29"', "wrong-type"),
        ('"20191124"', "wrong-type"),
        ('"2019-11-24T00:00:00Z"', "wrong-type"),
        ('"0000-01-01"', "wrong-type"),
    )

    def value(self, rng: Random) -> Any:
        return Time().value(rng).date()

    def text(self, rng: Random, value: date) -> str:
        return f'"{value.isoformat()}"'

    def datum(self, value: date) -> int:
        return (value - EPOCH.date()).days

    def of_json(self, value: str, of_any: OfAny) -> date:
        return date.fromisoformat(value)


class Exact(Kind):
    """Decimals of a precision."""

    sql = "numeric"

    def __init__(self, digits: int, scale: int) -> None:
        self.annotation = Annotated[Decimal, Precision(digits, scale=scale)]
        self.scale = scale
        self.most = 10**digits - 1
        self.avro = {"type": "bytes", "logicalType": "decimal"}
        self.avro |= {"precision": digits, "scale": scale}
        self.wrong = (
            (f"1e{digits - scale}", "out-of-range"),
            (f'"-1e-{scale + 1}"', "out-of-range"),
            ('"NaN"', "wrong-type"),
            ('"+1"', "wrong-type"),
            ('""', "wrong-type"),
        )

    def value(self, rng: Random) -> Any:
        units = rng.choice([0, 1, -1, self.most, -self.most, rng.randint(-self.most, self.most)])
        # By its text: arithmetic of decimals rounds to the digits of a context.
        return Decimal(f"{units}e-{self.scale}")

    def text(self, rng: Random, value: Decimal) -> str:
        plain = f"{value:f}"
        zeros = f"{plain}00" if "." in plain else f"{plain}.00"
        units = plain.replace(".", "").lstrip("-").lstrip("0") or "0"
        exponent = f"{'-' if value < 0 else ''}{units}e-{self.scale}"
        number = rng.choice([plain, zeros, exponent])
        return f'"{number}"' if rng.random() < 0.5 else number

    def datum(self, value: Decimal) -> bytes:
        sign, digits, _ = value.as_tuple()
        units = int("".join(map(str, digits))) * (-1 if sign else 1)
        return units.to_bytes(units.bit_length() // 8 + 1, "big", signed=True)

    def of_json(self, value: Any, of_any: OfAny) -> Decimal:
        return Decimal(value)


class Bytes(Kind):
    annotation, sql, avro = bytes, "bytea", "bytes"
    wrong = (('"AAH"', "wrong-type"), ('"AA-_"', "wrong-type"), ("5", "wrong-type"))

    def value(self, rng: Random) -> Any:
        return rng.choice([b"", b"\0", b"\\x00", b"\xff\xfe", rng.randbytes(9)])

    def text(self, rng: Random, value: bytes) -> str:
        return json_string(rng, base64.b64encode(value).decode())

    def of_json(self, value: str, of_any: OfAny) -> bytes:
        return base64.b64decode(value, validate=True)


NUMBERS = ["0", "-0", "-0.0", "1.50", "12345678901234567890.10", "1e-400", "9" * 300, "1e5", "1E+5"]
NUMBERS += ["1e308", "1.7976931348623157e308", "5e-324", "9007199254740993", str(2**64)]


def json_text(rng: Random, depth: int = 2) -> str:
    """Returns a JSON value other than null; keys of its objects may be repeated."""
    kinds = ["number", "text", "truth", *(["list", "object"] if depth else [])]
    match rng.choice(kinds):
        case "number":
            return rng.choice(NUMBERS)
        case "text":
            return json_string(rng, text(rng))
        case "truth":
            return rng.choice(["true", "false"])
        case "list":
            return f"[{' ,'.join(_items(rng, depth))} ]"
    members = [f"{json_string(rng, text(rng))}\t: {each}" for each in _items(rng, depth)]
    return "{" + ", ".join(members + members[:1]) + "}"


def _items(rng: Random, depth: int) -> list[str]:
    return [rng.choice(["null", json_text(rng, depth - 1)]) for _ in range(rng.randrange(4))]


def parsed(text: str | bytes) -> Any:
    """Returns JSON with its numbers as they are; of repeated keys the last counts."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


class AnyJson(Kind):
    """Values of type ``Any``: a column of the lake has the text as it came."""

    annotation = Any
    wrong = (('["\\udc00"]', "lone-surrogate"), ("[1e400]", "out-of-range"), ("[01]", "not-json"))

    def value(self, rng: Random) -> Any:
        return json_text(rng)

    def text(self, rng: Random, value: str) -> str:
        return f"{rng.choice(['', ' ', chr(10)])}{value}"

    def of_json(self, value: Any, of_any: OfAny) -> Any:
        return of_any(value)

    def plain(self, value: str) -> Any:
        return parsed(value)

    def holds_nul(self, value: str) -> bool:
        return "\0" in "".join(_texts_in(parsed(value)))


def _texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in _texts_in(each)]
    return [text for item in value for text in _texts_in(item)] if isinstance(value, list) else []


@dataclass(frozen=True)
class Bad:
    """Stands in an event for a value that is none of its field's, as JSON; None: it is absent."""

    text: str | None
    reason: str


@dataclass(frozen=True)
class Held:
    """What a field, a list or a map holds: values of a kind, or null."""

    kind: Kind
    nullable: bool

    @property
    def annotation(self) -> Any:
        is_bare = not self.nullable or isinstance(self.kind, AnyJson)
        return self.kind.annotation if is_bare else self.kind.annotation | None

    def value(self, rng: Random) -> Any:
        return None if self.nullable and rng.random() < 0.3 else self.kind.value(rng)

    @property
    def avro(self) -> Any:
        return ["null", self.kind.avro] if self.nullable else self.kind.avro

    def text(self, rng: Random, value: Any) -> str:
        if isinstance(value, Bad):
            return str(value.text)
        return "null" if value is None else self.kind.text(rng, value)

    def datum(self, value: Any) -> Any:
        return None if value is None else self.kind.datum(value)

    def of_arrow(self, value: Any) -> Any:
        return None if value is None else self.kind.of_arrow(value)

    def of_json(self, value: Any, of_any: OfAny) -> Any:
        return None if value is None else self.kind.of_json(value, of_any)

    def plain(self, value: Any) -> Any:
        return None if value is None else self.kind.plain(value)

    def holds_nul(self, value: Any) -> bool:
        return value is not None and self.kind.holds_nul(value)

    def spoiled(self, rng: Random, value: Any) -> Any:
        """Returns the value with one that is none of its field's, at any depth."""
        if self.nullable is False and rng.random() < 0.2:
            return Bad("null", "wrong-type")
        return self.kind.spoiled(rng, self.kind.value(rng) if value is None else value)


class Array(Kind):
    wrong = (("{}", "wrong-type"), ('"[]"', "wrong-type"))

    def __init__(self, item: Held) -> None:
        self.item = item
        self.annotation = list[item.annotation]  # type: ignore[name-defined]
        self.avro = {"type": "array", "items": item.avro}

    def value(self, rng: Random) -> Any:
        return [self.item.value(rng) for _ in range(rng.randrange(4))]

    def text(self, rng: Random, value: list[Any]) -> str:
        return f"[{', '.join(self.item.text(rng, each) for each in value)}]"

    def datum(self, value: list[Any]) -> Any:
        return [self.item.datum(each) for each in value]

    def of_arrow(self, value: list[Any]) -> Any:
        return [self.item.of_arrow(each) for each in value]

    def of_json(self, value: list[Any], of_any: OfAny) -> Any:
        return [self.item.of_json(each, of_any) for each in value]

    def plain(self, value: list[Any]) -> Any:
        return [self.item.plain(each) for each in value]

    def holds_nul(self, value: list[Any]) -> bool:
        return any(self.item.holds_nul(each) for each in value)

    def spoiled(self, rng: Random, value: Any) -> Any:
        if not value:
            return super().spoiled(rng, value)
        place = rng.randrange(len(value))
        return [
            self.item.spoiled(rng, each) if place == number else each
            for number, each in enumerate(value)
        ]


class Mapped(Kind):
    wrong = (("[]", "wrong-type"), ("5", "wrong-type"))

    def __init__(self, item: Held) -> None:
        self.item = item
        self.annotation = dict[str, item.annotation]  # type: ignore[name-defined]
        self.avro = {"type": "map", "values": item.avro}

    def value(self, rng: Random) -> Any:
        return {text(rng): self.item.value(rng) for _ in range(rng.randrange(4))}

    def text(self, rng: Random, value: dict[str, Any]) -> str:
        members = [(json_string(rng, key), self.item.text(rng, value[key])) for key in value]
        # Of a repeated key the last value counts.
        members = members[:1] + members if rng.random() < 0.5 else members
        return "{" + ",".join(f"{key} : {text}" for key, text in members) + "}"

    def datum(self, value: dict[str, Any]) -> Any:
        return {key: self.item.datum(each) for key, each in value.items()}

    def of_arrow(self, value: Any) -> Any:
        assert len(dict(value)) == len(value)
        return {key: self.item.of_arrow(each) for key, each in value}

    def of_json(self, value: dict[str, Any], of_any: OfAny) -> Any:
        return {key: self.item.of_json(each, of_any) for key, each in value.items()}

    def plain(self, value: dict[str, Any]) -> Any:
        return {key: self.item.plain(each) for key, each in value.items()}

    def holds_nul(self, value: dict[str, Any]) -> bool:
        return any("\0" in key or self.item.holds_nul(each) for key, each in value.items())

    def spoiled(self, rng: Random, value: Any) -> Any:
        if not value:
            return super().spoiled(rng, value)
        key = rng.choice(list(value))
        return value | {key: self.item.spoiled(rng, value[key])}


class Record(Kind):
    """Objects with fields: events, and what is nested in them."""

    wrong = (("[]", "wrong-type"), ('"{}"', "wrong-type"))

    def __init__(self, name: str, fields: Mapping[str, Held]) -> None:
        self.fields = fields
        self.annotation = TypedDict(name, {n: each.annotation for n, each in fields.items()})  # type: ignore[operator]
        parts = [{"name": n, "type": each.avro} for n, each in fields.items()]
        self.avro = {"type": "record", "name": name, "fields": parts}

    def value(self, rng: Random) -> Any:
        return {name: held.value(rng) for name, held in self.fields.items()}

    def text(self, rng: Random, value: dict[str, Any]) -> str:
        members = []
        for name, held in self.fields.items():
            is_absent = isinstance(value[name], Bad) and value[name].text is None
            if is_absent or (value[name] is None and rng.random() < 0.5):
                continue
            members.append((name, held.text(rng, value[name])))
        members = rng.sample(members, len(members))
        odd = rng.choice(["none", "unknown", "repeated"])
        if odd == "unknown":
            members.insert(0, ("not in the class", json_text(rng)))
        elif odd == "repeated" and members:
            members.insert(0, (members[-1][0], json_text(rng)))
        return "{" + ", ".join(f"{json_string(rng, n)}: {text}" for n, text in members) + "}"

    def datum(self, value: dict[str, Any]) -> Any:
        return {name: held.datum(value[name]) for name, held in self.fields.items()}

    def of_arrow(self, value: dict[str, Any]) -> Any:
        assert list(value) == list(self.fields)
        return {name: held.of_arrow(value[name]) for name, held in self.fields.items()}

    def of_json(self, value: dict[str, Any], of_any: OfAny) -> Any:
        assert set(value) == set(self.fields)
        return {name: held.of_json(value[name], of_any) for name, held in self.fields.items()}

    def plain(self, value: dict[str, Any]) -> Any:
        return {name: held.plain(value[name]) for name, held in self.fields.items()}

    def holds_nul(self, value: dict[str, Any]) -> bool:
        return any(held.holds_nul(value[name]) for name, held in self.fields.items())

    def spoiled(self, rng: Random, value: Any) -> Any:
        name = rng.choice(list(self.fields))
        held = self.fields[name]
        if not held.nullable and rng.random() < 0.2:
            return value | {name: Bad(None, "missing-field")}
        return value | {name: held.spoiled(rng, value[name])}


SCALARS = [Text(), Choice(), Integer(), Double(), Truth(), Time(), Millis(), Day(), Bytes()]


def any_kind(rng: Random, depth: int, of: Format, *, is_item: bool = False) -> Kind:
    """Returns a type of fields, or of items, that events of a format may have."""
    digits = rng.randint(1, 38)
    choices = [*SCALARS, *SCALARS, *[Exact(digits, rng.randint(0, digits))] * 3]
    choices += [] if isinstance(of, Avro | Protobuf) else [AnyJson()] * 3
    if depth:
        choices += [any_record(rng, depth - 1, {}, of)] * 4
    if depth and not (is_item and isinstance(of, Protobuf)):
        inner = any_held(rng, depth - 1, of, is_item=True)
        choices += [Array(inner), Mapped(inner)] * 4
    return rng.choice(choices)


def any_held(rng: Random, depth: int, of: Format, *, is_item: bool = False) -> Held:
    """Returns what a field or a list holds. ``Any`` may be null, and absent, by itself."""
    kind = any_kind(rng, depth, of, is_item=is_item)
    if isinstance(of, Protobuf) and (is_item or isinstance(kind, Array | Mapped)):
        return Held(kind, nullable=False)
    return Held(kind, isinstance(kind, AnyJson) or rng.random() < 0.5)


def any_record(rng: Random, depth: int, fixed: Mapping[str, Held], of: Format) -> Record:
    """Returns a class, with the fields of ``fixed`` before its own."""
    is_named_freely = not isinstance(of, Avro | Protobuf)
    names = rng.sample(ODD_NAMES if is_named_freely else AVRO_NAMES, rng.randint(1, 4))
    own = {name: any_held(rng, depth, of) for name in names}
    return Record(f"Class{next(_NUMBERS)}", {**fixed, **own})


@dataclass(frozen=True)
class Sent:
    """A record of a topic.

    Attributes:
        value: of the record.
        event: its values by field; of a record that is no event, those that it was made from.
        reason: why it is no event that the topic takes; empty: it is one.
    """

    value: bytes | None
    event: Mapping[str, Any]
    reason: str = ""


@dataclass(frozen=True)
class Sending:
    """Records of one topic, in their order.

    Attributes:
        record: the event class: ``id`` and ``who`` are texts, ``at`` is the event time.
        format: of the records.
        schema: that they are written with, of Protobuf.
        in_header: whether the ids of their schemas are in headers, where they have any.
        rejects_late: whether events of more than an hour before ``now`` are rejected as late.
        sent: the records.
    """

    record: Record
    format: Format
    schema: str
    in_header: bool
    rejects_late: bool
    sent: Sequence[Sent]


def any_sending(rng: Random, now: datetime, most: int) -> Sending:
    """Returns up to ``most`` records, some of them no events, repeated, changed or late.

    Events of more than a day after ``now`` are rejected.
    """
    record_format, rejects_late = rng.choice(FORMATS), rng.random() < 0.5
    time = rng.choice([Time(), Millis()])
    fixed = {"id": Held(Text(), False), "at": Held(time, False), "who": Held(Text(), False)}
    record = any_record(rng, 2, fixed, record_format)
    is_text = isinstance(record_format, Json | JsonSchema)
    schema = schema_of(rng, record) if isinstance(record_format, Protobuf) else ""
    tick = MILLISECOND if isinstance(time, Millis) else MICROSECOND
    times = [
        now,
        now,
        now - HOUR,
        now - HOUR - tick,
        now - HOUR + tick,
        now - 2 * DAY,
        EPOCH - tick,
    ]
    times += [now + DAY, now + DAY + tick, FIRST, FIRST + tick, *EDGES[-3:]]
    sent: list[Sent] = []
    events: list[Mapping[str, Any]] = []
    for number in range(rng.randint(most // 2, most)):
        event = record.value(rng)
        event |= {"id": f"{number}:{text(rng)}", "at": rng.choice(times)}
        fate = rng.choice(["new", "new", "new", "again", "changed", "wrong", "broken"])
        if fate in ("again", "changed") and events:
            event = dict(rng.choice(events))
            event |= {"who": f"{event['who']}!"} if fate == "changed" else {}
        reason = _reason(event["at"], now, rejects_late=rejects_late)
        if fate == "wrong" and is_text:
            event = record.spoiled(rng, event)
            reason = _bad_in(event).reason
        if is_text:
            value = record.text(rng, event).encode()
        elif schema:
            value = b"\0" + written(rng, schema, record, event)
        else:
            value = _avro(record, event)
        if fate == "broken":
            value, reason = rng.choice(_broken(value, record_format))
        sent.append(Sent(value, event, reason))
        events += [] if reason else [event]
    return Sending(record, record_format, schema, rng.random() < 0.3, rejects_late, sent)


def _reason(at: datetime, now: datetime, *, rejects_late: bool) -> str:
    if at > now + DAY:
        return "event-time-out-of-bounds"
    return "late-event" if rejects_late and at < now - HOUR else ""


def _bad_in(value: Any) -> Bad:
    held = value.values() if isinstance(value, dict) else value
    for each in held:
        if isinstance(each, Bad):
            return each
        if isinstance(each, dict | list):
            with suppress(LookupError):
                return _bad_in(each)
    raise LookupError(value)


def _avro(record: Record, event: Mapping[str, Any]) -> bytes:
    """Returns the value without the id of its schema."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(record.avro), record.datum(event))
    return stream.getvalue()


def _broken(value: bytes, of: Format) -> list[tuple[bytes | None, str]]:
    null: tuple[None, str] = (None, "null-value")
    if isinstance(of, Protobuf):
        return [null, (value[:-1], "not-protobuf"), (value + b"\0", "not-protobuf")]
    is_avro = isinstance(of, Avro)
    cut = (value[:-1], "not-avro" if is_avro else "not-json")
    return [null, cut, (value + (b"\0" if is_avro else b" {}"), "trailing-data")]
