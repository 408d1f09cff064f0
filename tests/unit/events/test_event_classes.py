"""However a class is written: a reader gives the values of an event, or `check` names the field."""

import abc
import dataclasses
import enum
import json
import typing
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Annotated, ClassVar, Literal, NamedTuple, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.events.instances import event_reader
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import EventCheck
from headrace.model import Topic, event_schema, readable_schema
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.pipelines.source.decode.json_events import JsonDecoder

LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=1 << 20)
NAMES = ("v", "_v", "__v", "__v__", "items", "mro", "userId", "type")
HEADS = {
    "plain": "class Event:",
    "dataclass": "@dataclasses.dataclass(kw_only=True)\nclass Event:",
    "slots": "@dataclasses.dataclass(kw_only=True, slots=True)\nclass Event:",
    "struct": "class Event(msgspec.Struct, kw_only=True):",
    "camel": "class Event(msgspec.Struct, kw_only=True, rename='camel'):",
    "attrs": "@attrs.define(kw_only=True)\nclass Event:",
    "tuple": "class Event(typing.NamedTuple):",
    "dict": "class Event(typing.TypedDict):",
    "optional": "class Event(typing.TypedDict, total=False):",
}
ALIASES = {
    "struct": "msgspec.field(name='aliased')",
    "attrs": "attrs.field(alias='aliased')",
    "slots": "dataclasses.field(default_factory=int)",
}


@dataclass(frozen=True)
class Written:
    """A class of one generated field, besides one that all have.

    Attributes:
        event: the class.
        name: of the field in its source.
        nullable: whether the field allows null.
        default: what the source gives it, as text.
    """

    event: type
    name: str
    nullable: bool
    default: str


@st.composite
def written_classes(draw):
    kind = draw(st.sampled_from(sorted(HEADS)))
    names = [name for name in NAMES if kind != "tuple" or not name.startswith("_")]
    name, nullable = draw(st.sampled_from(names)), draw(st.booleans())
    defaults = ["", "None", "5", *([ALIASES[kind]] if kind in ALIASES else [])]
    default = draw(st.sampled_from(defaults)) if kind not in ("dict", "optional") else ""
    assigned = f" = {default}" if default else ""
    required = "typing.Required[str]" if kind == "optional" else "str"
    annotation = "int | None" if nullable else "int"
    source = f"{HEADS[kind]}\n    id: {required}\n    {name}: {annotation}{assigned}\n"
    names = {"dataclasses": dataclasses, "msgspec": msgspec, "attrs": attrs, "typing": typing}
    exec(compile(source, "generated", "exec"), names)
    return Written(names["Event"], name, nullable, default)


@given(written_classes())
def test_a_field_is_read_by_its_name_or_refused_by_it(written):
    _, errors = readable_schema(written.event)
    if errors:
        assert {f"Event.{written.name}:"} == {str(error).split()[0] for error in errors}
        return
    assert written.default in ("", "None")
    event = {"id": "a", written.name: 7}
    assert rows_of(written.event, event) == [event]
    assert values_of(written.event, event) == event
    if written.nullable:
        assert values_of(written.event, {"id": "a"}) == {"id": "a", written.name: None}


def rows_of(event, *values):
    """What pipelines read, of JSON and, where the names allow it, of Avro that ingest has made."""
    schema, texts = event_schema(event), [json.dumps(value).encode() for value in values]
    decoded = JsonDecoder(schema).decode(texts)
    assert not decoded.rejected
    topic = Topic("t", event=event)
    assert not EventCheck(topic, LIMITS, lambda: 0.0).batch(texts, "", ()).rejected
    if all(name.isascii() and name.isidentifier() for name in schema.names):
        avro = AvroDecoder(schema, {1: avro_schema(schema)}.get)
        assert avro.decode([*map(AvroWriter(schema, 1), texts)]).rows.equals(decoded.rows)
    return decoded.rows.to_pylist()


def values_of(event, value):
    """What a worker reads."""
    instance = event_reader(Topic("t", event=event))(json.dumps(value).encode())
    if isinstance(instance, dict):
        return instance
    return {name: getattr(instance, name) for name in event_schema(event).names}


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5, unique=True), st.booleans())
def test_a_typed_dict_takes_any_names_or_they_are_refused(names, is_typed_dict):
    annotations = dict.fromkeys(names, int | None)
    event = (
        TypedDict("Event", annotations)
        if is_typed_dict
        else type("Event", (), {"__annotations__": annotations})
    )
    _, errors = readable_schema(event)
    if errors:
        refused = [
            name for name in names if not name or set(name) & {'"', "\\"} or not name.isprintable()
        ]
        assert {error.field for error in errors} <= set(refused)
        return
    value = {name: number for number, name in enumerate(names)}
    assert rows_of(event, value) == [value]
    assert values_of(event, value) == value


class Doc:
    id: str
    __v: int | None


class Base:
    at: int


@dataclass
class Grown(Base):
    id: str


class Undecorated(Grown):
    name: str


class Pair(NamedTuple):
    id: str


class Triple(Pair):
    name: str


class Camel(msgspec.Struct, rename="camel"):
    user_id: str | None = None


@attrs.define
class Aliased:
    user_id: str | None = attrs.field(alias="userId")


@dataclass
class WithMetadata:
    user_id: str | None = field(default=None, metadata={"alias": "userId", "unit": "none"})


@dataclass
class Click:
    weight: int | None = 5
    tags: list[str] = field(default_factory=list)
    none: int = None


class Kept:
    weight: int | None


class Overridden(Kept):
    weight = 5


class Validated:
    __pydantic_core_schema__ = None
    id: str


@dataclass
class Nest:
    docs: list[Doc]


class Colour(enum.StrEnum):
    RED = "red"


class Numbered(enum.StrEnum):
    def __new__(cls, text, number):
        member = str.__new__(cls, text)
        member._value_ = number
        return member

    RED = "red", 1


@dataclass
class Literally:
    colour: Literal[Colour.RED] | None


@dataclass
class Nested:
    colours: list[Numbered]


class Array(msgspec.Struct, array_like=True):
    x: list[int]


class Tagged(msgspec.Struct, tag_field="kind", tag="a"):
    x: int


class NumberTagged(msgspec.Struct, tag=7):
    x: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class Described(msgspec.Struct):
    x: Annotated[int, msgspec.Meta(description="a number", examples=[1])]


CONSTRAINTS = {
    "ge": 0,
    "gt": 0,
    "le": 0,
    "lt": 0,
    "multiple_of": 2,
    "pattern": "a",
    "min_length": 1,
    "max_length": 1,
    "tz": True,
}


@attrs.define
class Converted:
    x: int = attrs.field(converter=int)


@attrs.define
class Checked:
    x: int = attrs.field(validator=attrs.validators.ge(0))


@attrs.define
class Completed:
    x: int
    y: int | None = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.y = self.x


@dataclass(init=False)
class Uninitialised:
    x: int


@dataclass
class Constructed:
    x: int

    def __init__(self, y):
        self.x = y


class Abstract(abc.ABC):
    x: int

    @abc.abstractmethod
    def area(self): ...


@dataclass
class AbstractData(Abstract):
    y: int


class FromPair(Pair):
    def __new__(cls, pair):
        return super().__new__(cls, pair.id)


def derived(base):
    return type("Derived", (base,), {"__annotations__": {"x": int}})


@pytest.mark.parametrize(
    "event",
    [
        *map(derived, (dict, tuple, int, Exception, datetime)),
        Uninitialised,
        Constructed,
        Abstract,
        AbstractData,
        FromPair,
    ],
)
def test_a_class_that_no_worker_can_make_an_instance_of_is_refused(event):
    _, [error] = readable_schema(event)
    assert error.field == "(class)"
    assert "no instances that a worker can make: " in str(error)
    assert "declare a dataclass" in str(error)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constraint_of_msgspec_is_refused_at_any_depth(name):
    constrained = Annotated[int, msgspec.Meta(**{name: CONSTRAINTS[name]})]

    class Event(TypedDict):
        x: dict[str, list[constrained | None]]
        y: Described

    _, [error] = readable_schema(Event)
    assert error.field == "x[][]"
    assert f"has the constraint {name!r} of msgspec.Meta" in str(error)


@pytest.mark.parametrize(
    ("event", "sentences"),
    [
        (
            Doc,
            ["Doc.__v: int | None has the name '_Doc__v' in Python", "TypedDict('Doc', {'__v': "],
        ),
        (Nest, ["Nest.docs[].__v: "]),
        (TypedDict("Made", {"_Doc__v": int}), ["Made.__v: "]),
        (
            TypedDict("Unnamed", {"": int, "x": int}),
            ["Unnamed.: ", "has an empty name", "dict[str, T], which takes any key"],
        ),
        (TypedDict("Around", {"docs": list[TypedDict("Doc", {"": int})]}), ["Around.docs[].: "]),
        (Grown, ["Grown.at: ", "is no parameter of Grown"]),
        (Undecorated, ["Undecorated.at: ", "Undecorated.name: "]),
        (Triple, ["Triple.name: ", "is no parameter of Triple"]),
        (Camel, ["Camel.user_id: str | None has the alias 'userId'", "call it so"]),
        (Aliased, ["Aliased.user_id: str | None has the alias 'userId'"]),
        (WithMetadata, ["WithMetadata.user_id: str | None has the alias 'userId'"]),
        (Click, ["Click.weight: int | None has the default 5", "Click.tags: ", "Click.none: "]),
        (Overridden, ["Overridden.weight: int | None has the default 5"]),
        (Validated, ["Validated.(class): ", "use a dataclass"]),
        (Literally, ["Literally.colour: ", "has no column type", "Literal of plain strings"]),
        (Nested, ["Nested.colours[]: ", "'red' whose value is 1", "leave `_value_` out"]),
        (Array, ["Array.(class): ", "array_like", "leave it out"]),
        (
            TypedDict("Around", {"tagged": list[Tagged]}),
            ["Around.tagged[]: ", "the tag 'a'", "declare the field `kind: Literal['a']`"],
        ),
        (NumberTagged, ["NumberTagged.(class): ", "declare the field `type: int`"]),
        (Strict, ["Strict.(class): ", "`forbid_unknown_fields`", "leave it out"]),
        (Converted, ["Converted.x: ", "has a converter", "in a step"]),
        (Checked, ["Checked.x: ", "has a validator", "in a step"]),
        (Completed, ["Completed.(class): ", "__attrs_post_init__", "use a dataclass"]),
    ],
)
def test_what_would_be_read_otherwise_is_named_with_the_way_out(event, sentences):
    _, errors = readable_schema(event)
    text = "\n".join(map(str, errors))
    assert [sentence for sentence in sentences if sentence not in text] == []


def test_what_is_of_the_class_or_of_its_constructor_is_no_field():
    @dataclass
    class Event:
        bare: ClassVar = 3
        typed: ClassVar[int] = 3
        noted: Annotated[ClassVar[int], "words"] = 3
        _: KW_ONLY
        id: str

    assert event_schema(Event).names == ("id",)
