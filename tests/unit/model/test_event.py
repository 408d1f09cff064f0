"""Event classes become schemas; what has no column type is named with its path."""

import enum
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Optional

import pytest

from headrace.model import (
    EpochMillis,
    EventField,
    EventSchema,
    FieldType,
    Precision,
    UnsupportedFieldError,
    declaring_class,
    event_schema,
    readable_schema,
    value_at,
)


class Kind(enum.StrEnum):
    VIEW = "view"
    CLICK = "click"


@dataclass(frozen=True)
class Owner:
    name: str
    email: str | None


@dataclass(frozen=True)
class Repo:
    full_name: str
    owner: Owner
    former: Owner | None
    version: ClassVar[int] = 3


class Tree:
    name: str
    children: "list[Tree]"


class Node:
    parent: "Optional[Node]"  # noqa: UP045


class Nothing:
    pass


class Number(enum.IntEnum):
    ONE = 1


OWNER = EventSchema(
    "Owner",
    (EventField("name", FieldType.STRING), EventField("email", FieldType.STRING, nullable=True)),
)


def fields(**annotations):
    return event_schema(type("Event", (), {"__annotations__": annotations})).fields


def only(annotation):
    (field,) = fields(x=annotation)
    return field


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, FieldType.STRING),
        (int, FieldType.LONG),
        (float, FieldType.DOUBLE),
        (bool, FieldType.BOOLEAN),
        (datetime, FieldType.TIMESTAMP),
        (EpochMillis, FieldType.MILLIS),
        (date, FieldType.DATE),
        (Decimal, FieldType.DECIMAL),
        (bytes, FieldType.BINARY),
    ],
)
def test_a_value_has_the_type_of_its_annotation(annotation, kind):
    assert only(annotation) == EventField("x", kind)
    assert only(annotation | None) == EventField("x", kind, nullable=True)
    assert only(Annotated[annotation, "words"]) == EventField("x", kind)


def test_texts_may_be_limited_to_values():
    expected = EventField("x", FieldType.STRING, values=("view", "click"))
    assert only(Kind) == only(Literal["view", "click"]) == expected


def test_any_may_always_be_null():
    assert only(Any) == only(Any | None) == EventField("x", FieldType.JSON, nullable=True)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[Decimal, Precision(12, scale=2)] | None,
        Annotated[Decimal | None, Precision(12, scale=2)],
    ],
)
def test_a_decimal_has_the_declared_digits(annotation):
    field = only(annotation)
    assert (field.type, field.nullable) == (FieldType.DECIMAL, True)
    assert (field.precision.digits, field.precision.scale) == (12, 2)


def test_a_decimal_has_sparks_default_digits_where_none_are_declared():
    assert only(Decimal).precision == Precision(38, 18)


@pytest.mark.parametrize(
    "precision", [Precision(0), Precision(39), Precision(2, 3), Precision(2, -1), Precision("2")]
)
def test_impossible_digits_are_refused(precision):
    with pytest.raises(UnsupportedFieldError, match="is no precision of a decimal"):
        only(Annotated[Decimal, precision])


def test_classes_lists_and_maps_nest():
    assert only(Owner) == EventField("x", FieldType.STRUCT, schema=OWNER)
    element = EventField("", FieldType.STRUCT, nullable=True, schema=OWNER)
    assert only(list[Owner | None]) == EventField("x", FieldType.LIST, element=element)
    inner = EventField("", FieldType.LIST, element=EventField("", FieldType.LONG))
    expected = EventField("x", FieldType.MAP, nullable=True, element=inner)
    assert only(dict[str, list[int]] | None) == expected


def test_class_variables_are_no_fields():
    assert event_schema(Repo).names == ("full_name", "owner", "former")


def test_a_class_may_be_nested_twice_but_not_in_itself():
    (repo,) = fields(repo=Repo)
    assert [field.schema for field in repo.fields[1:]] == [OWNER, OWNER]
    for event, path in ((Tree, "children[]"), (Node, "parent")):
        _, (error,) = readable_schema(event)
        assert error.field == path
        assert "contains itself" in str(error)


@pytest.mark.parametrize(
    "annotation",
    [list, dict, set[str], tuple[int, ...], complex, object, Number, Nothing, int | str,
     Literal[1, 2], type(None), dict[int, str], list[set[str]]],
)  # fmt: skip
def test_anything_else_has_no_column_type(annotation):
    with pytest.raises(UnsupportedFieldError, match=r"^Event\.x"):
        only(annotation)


class Author:
    name: str
    born: complex


class Page:
    author: Author
    reviews: list[Author]
    tags: dict[int, str]
    notes: dict[str, list[Author | None]]
    empty: Nothing


def test_every_field_without_a_column_type_is_named_by_its_path():
    schema, unsupported = readable_schema(Page)
    assert [error.field for error in unsupported] == [
        "author.born",
        "reviews[].born",
        "tags",
        "notes[][].born",
        "empty",
    ]
    assert "keys that are not str" in str(unsupported[2])
    assert schema.names == ("author", "reviews", "notes")


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("author", (Page, "author")),
        ("author.born", (Author, "born")),
        ("reviews[].born", (Author, "born")),
        ("notes[][].born", (Author, "born")),
        ("tags", (Page, "tags")),
        ("reviews[]", (Page, "reviews")),
        ("(no fields)", (Page, "(no fields)")),
    ],
)
def test_the_class_that_declares_a_path_is_found(path, declared):
    assert declaring_class(Page, path) == declared


def test_a_field_is_found_by_its_path():
    schema = event_schema(type("Event", (), {"__annotations__": {"repo": Repo, "n": int}}))
    assert schema.find("n") == EventField("n", FieldType.LONG)
    assert schema.find("repo.owner.email") == OWNER.fields[1]
    for path in ("", "x", "n.x", "repo.x", "repo.owner.email.x", ".n", "repo."):
        assert schema.find(path) is None


def test_a_value_is_found_by_its_path():
    event = {"repo": {"owner": {"name": "n"}, "former": None}, "tags": ["x"], "n": 0}
    assert value_at(event, "n") == 0
    assert value_at(event, "repo.owner.name") == "n"
    for path in ("x", "repo.x", "repo.former.name", "n.x", "tags.0"):
        assert value_at(event, path) is None
